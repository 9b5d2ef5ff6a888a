"""The Python interface: load a dataset, fit a method."""

import tempfile
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from covey import data
from covey.core import CoveyError, atomic
from covey.core.lock import hold
from covey.core.progress import Bar
from covey.core.trust import trusted
from covey.data import Dataset, Filter, apply_filter
from covey.data.tables.columns import Columns
from covey.data.tables.importing import Imported, from_file, from_frame
from covey.data.tables.reader import is_file
from covey.run.config.compose import checked, compose, options_of
from covey.run.config.overrides import options_in
from covey.run.config.schema import Config
from covey.run.loop import run
from covey.run.workers import with_workers

from .recommender import DATA, Recommender
from .writing import Choice

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
    core: int = 0,
    **how: Any,
) -> Dataset:
    """Loads a dataset.

    Args:
        source: A name ('synthetic', a folder under $COVEY_DATA), a file (.npz, .csv, .inter,
            .jsonl, .parquet ..., also in .gz and .zip), a DataFrame of polars, pandas or pyarrow,
            a scipy sparse matrix of users and items, or a list of (user, item) or
            (user, item, time).
        user: The column of users, if it has an unusual name; likewise `item`, `time` and `title`.
        split: A column that says train, valid or test for each row.
        items: A second file or DataFrame, with the titles of items.
        name: What the dataset is called.
        core: How many rows every user and every item needs among the rows that are kept.
        **how: Other fields of `covey.data.tables.columns.Columns`, such as `min_rating=4`,
            `where={"event": "buy"}`, `time_format="%d/%m/%Y"`, `drop_incomplete=True`.

    Returns:
        The dataset, which keeps the ids of users and items.
    """
    columns = Columns(user, item, time, title, split=split, **{"python": True} | how)
    if isinstance(source, Dataset) or _is_name(source):
        if columns != Columns(python=True) or items is not None:
            raise CoveyError("this dataset is prepared already: leave out how to read it")
        made = Imported(source if isinstance(source, Dataset) else data.load(source))
    elif isinstance(source, str | Path):
        made = from_file(source, name or Path(source).name.split(".")[0], columns, items)
    else:
        made = from_frame(source, name or "frame", columns, items)
    for note in made.notes:
        warnings.warn(note, stacklevel=2)
    return apply_filter(made.dataset, Filter(core=core))


def _is_name(source: Any) -> bool:
    """Whether a configuration can name the source: raw files and tables have to be imported."""
    return isinstance(source, str | Path) and (str(source).endswith(".npz") or not is_file(source))


def fit(
    method: str,
    dataset: Any = "synthetic",
    *,
    preset: str | None = None,
    rounds: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    set: Iterable[str] = (),
    jobs: int = 0,
    verbose: bool | None = None,
    trust: Iterable[str] = (),
    **sections: Any,
) -> Recommender:
    """Trains a method on a dataset.

    Args:
        method: The name of a shipped method, or a TOML file.
        dataset: A dataset, or what `load` takes as its source.
        preset: The name of a shipped preset, or a TOML file.
        rounds: The number of rounds, or of passes if `run.unit` says so.
        seed: The seed of the run.
        out: A folder in which the run is kept; otherwise it is temporary.
        set: Assignments as on the command line, such as `["model.dim=16"]`.
        jobs: The number of cores to use; 0 for all of them where the run gains from it.
        verbose: Show the progress; by default in a notebook only.
        trust: Modules outside of covey that the configuration may import, such as your method's.
        **sections: Sections of the configuration, such as `model={"dim": 16}`.

    Returns:
        A recommender with the trained method and its clients.
    """
    trust, assignments = trusted(trust), list(set)
    if "data.name" in [*options_of(sections), *options_in(assignments)]:
        raise CoveyError("data.name is what fit takes as its dataset: fit(method, 'ml-100k')")
    with tempfile.TemporaryDirectory(prefix="covey-") as away:
        folder = Path(away) / "run" if out is None else Path(out)
        name = str(dataset if _is_name(dataset) else (folder / DATA).absolute())
        given: dict[str, Any] = {"presets": [preset] if preset else [], "dataset": name}
        given |= {"sections": sections, "set": assignments}
        tree = compose(method, rounds=rounds, seed=seed, **given)
        config = checked(tree, assignments, rounds=rounds, sections=sections, trust=trust)
        _train(with_workers(config, jobs), dataset, folder, verbose)
        return Recommender.load(folder, trust=trust)


def _train(config: Config, dataset: Any, folder: Path, verbose: bool | None) -> None:
    with hold(folder):
        if (folder / "config.toml").exists():
            raise CoveyError(f"{folder} holds a run already; choose another out")
        try:
            if not _is_name(dataset):
                atomic.write(folder / DATA, load(dataset).save)
            with Bar(verbose, config.evaluate.selector) as bar:
                run(config, folder, progress=bar.update, keep="state", locked=True)
        except CoveyError:
            if not (folder / "config.toml").exists():
                with suppress(OSError):
                    (folder / DATA).unlink(missing_ok=True)
            raise
