"""The folder of a search: its definition, and its finished trials with one line each."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from covey.core import CoveyError, atomic, toml_writer
from covey.run.config.tree import Tree, parse

from .trial import Trial

STUDY, TRIALS, RUNS = "study.toml", "trials.jsonl", "runs"


class Journal:
    """The finished trials by number; an incomplete last line is ignored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_bytes() if path.exists() else b""
        self.end = text.rfind(b"\n") + 1
        try:
            rows = [Trial.of(json.loads(line)) for line in text[: self.end].splitlines()]
        except (ValueError, KeyError, TypeError, CoveyError) as error:
            raise CoveyError(
                f"{path} is damaged ({error}); remove its folder, or choose another --out"
            ) from error
        self.trials = {trial.number: trial for trial in rows}

    def add(self, trial: Trial) -> None:
        self.end = atomic.append(self.path, self.end, json.dumps(trial.plain()) + "\n")
        self.trials[trial.number] = trial


@contextmanager
def opened(out: Path, identity: Tree) -> Iterator[Journal]:
    """Open the folder of a search for this process alone; refuse the folder of another search."""
    if (out / STUDY).exists() and (held := parse(out / STUDY)) != identity:
        other = next(k for k in identity if held.get(k) != identity[k])
        raise CoveyError(
            f"{out} holds another search: its {other} differs; choose another --out, or remove it"
        )
    try:
        (out / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CoveyError(
            f"cannot make the folder {out}: {error.strerror}; choose another --out"
        ) from error
    try:
        with atomic.exclusive(out / ".lock", wait=False):
            if not (out / STUDY).exists():
                atomic.write_text(out / TRIALS, "")
                atomic.write_text(out / STUDY, toml_writer.dumps(identity))
            yield Journal(out / TRIALS)
    except BlockingIOError as error:
        raise CoveyError(
            f"another covey tune is running in {out}; wait for it, or choose another --out"
        ) from error
