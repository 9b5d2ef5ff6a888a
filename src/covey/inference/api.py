"""Covey from Python: load a dataset, fit a method."""

import tempfile
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from covey import data
from covey.core import atomic
from covey.core.errors import CoveyError
from covey.core.lock import hold
from covey.core.progress import Bar
from covey.core.trust import trusted
from covey.data.dataset import Array, Dataset, renumber
from covey.data.tables.importing import Columns, Imported, from_file, from_frame
from covey.run.config.compose import checked, compose, options_of
from covey.run.config.overrides import options_in
from covey.run.config.schema import Config
from covey.run.config.tree import Tree, merge
from covey.run.loop import run_held

from .recommender import DATA, Choice, Recommender

__all__ = ["Choice", "Recommender", "fit", "load"]


def load(
    source: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    title: str | None = None,
    split: str | None = None,
    items: Any = None,
    name: str = "",
) -> Dataset:
    """A dataset by name ('synthetic', a folder under $COVEY_DATA), from a file (.npz, .csv, .inter ...) or a DataFrame.

    The next four name the columns of a file or DataFrame where they have unusual names, `split` one that says
    train, valid or test; `items` is a second one with titles, `name` what the dataset is called.
    """
    if isinstance(source, Dataset):
        return source
    if _is_name(source):
        return data.load(source)
    columns = Columns(user=user, item=item, time=time, title=title, split=split, python=True)
    if not hasattr(source, "columns"):
        return _told(from_file(source, name or Path(source).stem, columns, items))
    made = _told(from_frame(source, name or "frame", columns, items))
    return replace(made, users=_typed(made.users, source), items=_typed(made.items, source))


def _told(imported: Imported) -> Dataset:
    for note in imported.notes:
        warnings.warn(note, stacklevel=3)
    return imported.dataset


def _is_name(source: Any) -> bool:
    """Whether a configuration can name it: not a raw file, nor a table in memory."""
    return isinstance(source, str | Path) and (
        str(source).endswith(".npz") or not Path(source).is_file()
    )


def _typed(ids: Array | None, frame: Any) -> Array | None:
    """Ids as the whole numbers that they are in the frame; the column is known by its values."""
    for column in frame.columns:
        values = np.asarray(frame[column])
        if ids is not None and values.dtype.kind in "iu":
            own = renumber(values)[1]
            if np.array_equal(own.astype(np.str_), ids):
                return own
    return ids


def fit(
    method: str,
    dataset: Any = "synthetic",
    *,
    preset: str | None = None,
    rounds: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    set: Iterable[str] = (),
    verbose: bool = False,
    trust: Iterable[str] = (),
    **sections: Any,
) -> Recommender:
    """Trains a method (a shipped name, or a TOML file) on a dataset, its name or a DataFrame.

    Options are sections of the configuration, `fit(..., model={"dim": 16})`, or assignments as on
    the command line, `set=["model.dim=16"]`. With `out`, the run folder is kept there. `trust` names
    modules outside of covey that the configuration may import: `trust=["mymodel"]` for a method of your own.
    """
    trust = trusted(trust)
    assignments = list(set)
    if "data.name" in [*options_of(sections), *options_in(assignments)]:
        raise CoveyError("data.name is what fit takes as its dataset: fit(method, 'ml-100k')")
    more: Tree = (
        {} if out is not None else {"run": {"ceilings": []}}
    )  # ceilings are for reports, which need `out`
    with tempfile.TemporaryDirectory(prefix="covey-") as away:
        folder = Path(away) / "run" if out is None else Path(out)
        tree = compose(
            method,
            presets=[preset] if preset else [],
            dataset=str(dataset if _is_name(dataset) else (folder / DATA).absolute()),
            rounds=rounds,
            seed=seed,
            sections=merge(more, sections),
            set=assignments,
        )
        config = checked(tree, assignments, rounds=rounds, sections=sections, trust=trust)
        _train(config, dataset, folder, verbose)
        return Recommender.load(folder, trust=trust)


def _train(config: Config, dataset: Any, folder: Path, verbose: bool) -> None:
    with hold(folder):
        if (folder / "config.toml").exists():
            raise CoveyError(f"{folder} holds a run already; choose another out")
        try:
            if not _is_name(dataset):
                atomic.write(folder / DATA, load(dataset).save)
            with Bar(quiet=not verbose) as bar:
                run_held(config, folder, progress=bar.update)
        except CoveyError:
            if not (folder / "config.toml").exists():
                with suppress(OSError):
                    (folder / DATA).unlink(missing_ok=True)
            raise
