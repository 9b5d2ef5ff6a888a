"""Data whose own split has no validation part: a first run on a part of the training items chooses.

It holds out `split.valid` of each user's training items, and selects the round, and what else the
method chooses on validation. The run itself then starts again on all training items, with what was
chosen. The folder of the first run is `selection` in the folder of the run.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from covey.core import atomic
from covey.data.split import Split, hold_out
from covey.run.config.schema import Config
from covey.run.config.tree import Tree, merge

from . import checkpoint
from .assemble import Prepared, prepare_split

FOLDER, RESULT = "selection", "result.json"
Run = Callable[[Config, Prepared, Path], dict[str, Any]]


def lacks_validation(config: Config, split: Split) -> bool:
    """Whether a split that came with the data has no validation part, and one may be made."""
    supplied = config.split.kind == "given" and not len(split.valid.values)
    return supplied and config.split.valid > 0


def is_needed(config: Config, prepared: Prepared) -> bool:
    """Whether a first run has to choose something on validation."""
    mechanisms = config.parts("mechanism")
    chooses = any(part.implements("chosen_options") for part in mechanisms)
    return ("solver" in config.tree or chooses) and lacks_validation(config, prepared.split)


def with_validation(config: Config, prepared: Prepared) -> Prepared:
    """Returns the same data with validation items held out of the training items."""
    return prepare_split(config, prepared.dataset, hold_out(prepared.split, config.split))


def select(config: Config, prepared: Prepared, out: Path, run: Run) -> Config:
    """Makes the first run, if it has not ended; returns the configuration of the second one."""
    folder = out / FOLDER
    if not (folder / RESULT).exists():
        found = run(config, with_validation(config, prepared), folder)
        atomic.write_text(folder / RESULT, json.dumps(found, indent=1) + "\n")
    checkpoint.remove(folder)
    return chosen(config, _read(out))


def summary(out: Path) -> dict[str, Any]:
    """Returns what the result of a run says of its first run; {} if there was none."""
    if not (found := _read(out)):
        return {}
    kept = {k: found[k] for k in ("rounds", "round", "traffic", "privacy")}
    return {"valid": found["valid"], "selection": kept}


def _read(out: Path) -> dict[str, Any]:
    file = out / FOLDER / RESULT
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def chosen(config: Config, found: dict[str, Any]) -> Config:
    """Returns the configuration with the selected round as its last, and with what was chosen."""
    last: Tree = {"rounds": found["round"], "unit": "round", "patience": 0}
    measured = {"every": found["round"], "unit": "round"}
    tree = merge(config.tree, {"split": {"valid": 0.0}, "run": last, "evaluate": measured})
    if spent := found["privacy"]["epsilon_user"]:
        tree = merge(tree, {"privacy": {"spent": config.privacy.spent + spent}})
    for place, part in enumerate(config.parts("mechanism")):
        options = part.chosen_options(found.get("told", {}).get(part.name, {}))
        tree["mechanism"] = list(tree["mechanism"])
        tree["mechanism"][place] = tree["mechanism"][place] | options
    return Config.of(tree, config.trust)
