"""A trained method that recommends by the user's own ids."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from covey.core import CoveyError, Ragged, atomic, positive, toml_writer
from covey.core.lock import hold
from covey.data.dataset import Array
from covey.run.assemble import Prepared, device_of, prepare
from covey.run.checkpoint import CHECKPOINT, MODEL, STATE, USERS
from covey.run.config.schema import Config
from covey.run.config.tree import parse
from covey.run.rounds_log import ROUNDS

from . import writing
from .membership import with_interactions
from .new_items import grow_catalogue, with_new_items
from .ranking import Ranking
from .scorers import Scorer, load_devices, load_pooled
from .writing import Choice

DATA = "dataset.npz"  # a run folder's own copy of its dataset
TENSORS = (MODEL, USERS, CHECKPOINT, STATE)
FILES = ("config.toml", "metrics.jsonl", "result.json", "report.html", DATA, ROUNDS, *TENSORS)


@dataclass(frozen=True, eq=False, repr=False)
class Recommender:
    """A trained method with the clients of its simulation, from `covey.fit` or `Recommender.load`.

    Args:
        config: The configuration of the run.
        prepared: The data of the run.
        scorer: What the items are ranked with.
        result: What the run measured: metrics on the test items, floor, ledger and traffic.
    """

    config: Config
    prepared: Prepared
    scorer: Scorer
    result: dict[str, Any]

    @classmethod
    def load(
        cls, path: str | Path, device: str | None = None, trust: Iterable[str] = ()
    ) -> "Recommender":
        """Loads a run folder that `save`, `fit(out=...)` or `covey run` wrote.

        Args:
            path: The folder.
            device: A device other than that of the run.
            trust: Modules outside of covey that the run may import, such as your method's.
        """
        folder = Path(path)
        if not (folder / "config.toml").is_file():
            why = f"{folder} is no run folder: it has no config.toml"
            raise CoveyError(f"{why}; write one with covey run --out")
        config = Config.of(parse(folder / "config.toml"), trust)
        digest = config.digest()
        if (folder / DATA).exists():
            config = replace(config, data=replace(config.data, name=str(folder / DATA)))
        if device:
            config = replace(config, engine=replace(config.engine, device=device))
        device_of(config)
        prepared = prepare(config)
        scorer: Scorer = (
            load_pooled(config, prepared, folder)
            if "pooled" in config.tree
            else load_devices(config, digest, prepared, folder)
        )
        file = folder / "result.json"
        try:
            result = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        except ValueError as error:
            raise CoveyError(f"{file} is damaged ({error}); remove it and try again") from error
        return cls(config, prepared, scorer, result)

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Writes a run folder with the dataset and the private state of the simulated clients.

        Args:
            path: The folder.
            overwrite: Replace a run that the folder holds; other files in it stay.
        """
        folder = Path(path)
        with hold(folder):
            if (folder / "config.toml").exists():
                if not overwrite:
                    remedy = "choose another path, or say overwrite=True"
                    raise CoveyError(f"{folder} holds a run already; {remedy}")
                _clear(folder)
            tree = self.config.tree | {"data": {"name": str((folder / DATA).absolute())}}
            config = Config.of(tree, self.config.trust)
            atomic.write(folder / DATA, self.prepared.dataset.save)
            self.scorer.save(config, folder)
            atomic.write_text(folder / "result.json", json.dumps(self.result, indent=1) + "\n")
            # The configuration comes last, since it is what makes a folder a run folder.
            atomic.write_text(folder / "config.toml", toml_writer.dumps(config.tree))

    def __repr__(self) -> str:
        return writing.text(self.result, self.prepared)

    def _repr_html_(self) -> str:
        return writing.html(self.result, self.prepared)

    def recommend(
        self,
        users: Any = None,
        k: int = 10,
        filter_seen: bool = True,
        as_frame: bool = False,
        *,
        candidates: Any = None,
        exclude: Any = (),
        out: str | Path | None = None,
    ) -> Any:
        """Recommends items to users of the dataset.

        Args:
            users: The id of a user, or several; all users if it is left out.
            k: The length of each list.
            filter_seen: Leave out the items that a user has.
            as_frame: Return a DataFrame with user, item, rank, score and title instead.
            candidates: The items to choose from; by default all of them.
            exclude: Items to leave out.
            out: Write all of that to a .csv, .jsonl or .parquet file instead, user by user.

        Returns:
            The ids of the best items, best first: {user: [item, ...]}, in the type that ids have in
            the dataset. With `out` it is the path of the file.
        """
        only = {"candidates": candidates, "exclude": exclude}
        lists = self.ranking.lists(users, k, filter_seen, **only)
        if out is not None:
            return writing.write(lists, Path(out), self.prepared.dataset)
        if as_frame:
            return writing.frame(lists)
        return {user: [choice.item for choice in chosen] for user, chosen in lists}

    def ranked(
        self, users: Any = None, k: int = 10, filter_seen: bool = True, **only: Any
    ) -> dict[Any, list[Choice]]:
        """Recommends like `recommend`, with titles and scores.

        With `as_tested=True` the test items are unknown and can be recommended, as in the test.
        """
        return dict(self.ranking.lists(users, k, filter_seen, **only))

    def predict(self, users: Any, items: Any) -> Array:
        """Returns the scores [n] of n pairs, by which `recommend` ranks the items of a user.

        Args:
            users: The id of the user of each pair, or one user for all items.
            items: The id of the item of each pair, or one item for all users.
        """
        return self.ranking.pairs(users, items)

    def similar_items(self, item: Any, k: int = 10) -> list[Choice]:
        """Returns the items that the model holds to be most similar to an item, best first.

        The score is the cosine of the two items' vectors. EASE has no vectors: there it is the
        weight from this item to the other.

        Args:
            item: The id of the item.
            k: The length of the list.
        """
        return self.ranking.similar(item, k)

    def recommend_new(self, items: Sequence[Any], k: int = 10, **options: Any) -> list[Any]:
        """Recommends items to a new user; see `ranked_new`."""
        return [choice.item for choice in self.ranked_new(items, k, **options)]

    def ranked_new(
        self, items: Any, k: int = 10, filter_seen: bool = True, rounds: int = 0, **only: Any
    ) -> list[Choice]:
        """Recommends items to a user who is not in the dataset, with titles and scores.

        Args:
            items: The ids of the user's items, oldest first; unknown ones are skipped with a
                warning.
            k: The length of the list.
            filter_seen: Leave out the user's items.
            rounds: How often the private part is trained, as on a new device with a fixed public
                model; 0 for as often as that of a client of the run.
            **only: `candidates` and `exclude`, as in `recommend`.
        """
        positive("recommend", k=k)
        if isinstance(items, str) or not len(items):
            raise CoveyError("a new user is a list of at least one item id")
        rows = self.ranking.known_items(items, "items of the new user")
        history = Ragged.of([list(dict.fromkeys(reversed(rows)))[::-1]])  # repeated ones once, last
        hidden_I = self.ranking.hidden(**only)
        score_CI = self.scorer.newcomer(history, rounds)
        return self.ranking.best(score_CI, history if filter_seen else None, hidden_I, k)[0]

    def add_items(
        self, items: Iterable[Any], interactions: Iterable[tuple[Any, Any]] = (), rounds: int = 0
    ) -> Self:
        """Returns a recommender with more items; everything that was learned stays as it is.

        Args:
            items: Ids of the new items, or a dictionary from ids to titles. An item without
                interactions needs a title, and gets a row from items with similar titles.
            interactions: Pairs of a user's id and a new item's id, oldest first.
            rounds: The rounds in which all users train the new rows; 0 for as many as a client of
                the run took part in.
        """
        run = self.config, self.prepared, self.ranking.numbers
        growth = grow_catalogue(*run, items, interactions)
        scorer = with_new_items(self.scorer, growth, rounds)
        return replace(self, config=growth.config, prepared=growth.prepared, scorer=scorer)

    def partial_fit(self, interactions: Iterable[tuple[Any, Any]]) -> Self:
        """Returns a recommender that has learned from new interactions too, for methods by sums.

        In `ease-sums`, new users add their parts of the sums and known ones the differences: the
        result is that of a fit with everything. In `spectral`, all clients take part in one more
        sum, from the present basis. In `popularity-private`, new users add their noisy lists; the
        budget of known ones is spent. `result` stays that of the run; `evaluate` gives new figures.

        Args:
            interactions: Pairs of a user's id, known or new, and a known item's id, oldest first.
        """
        new = with_interactions(self.ranking, interactions)
        return replace(self, config=new.config, prepared=new.prepared, scorer=new.scorer)

    def evaluate(self) -> dict[str, dict[str, float]]:
        """Returns averages over users for the held-out parts: {"valid": {...}, "test": {...}}."""
        return self.scorer.averages(self.config, self.prepared)

    @cached_property
    def ranking(self) -> Ranking:
        """What ranks items, and knows users and items by the dataset's own ids."""
        return Ranking(self.config, self.prepared, self.scorer)

    @property
    def users(self) -> list[Any]:
        """The dataset's own user ids."""
        return self.ranking.users

    @property
    def items(self) -> list[Any]:
        """The dataset's own item ids."""
        return self.ranking.items


def _clear(folder: Path) -> None:
    """Removes a run, its configuration first, so that what is left is not taken for a run."""
    try:
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        wrong = f"cannot remove the run in {folder}: {error.strerror}"
        raise CoveyError(f"{wrong}; choose another path") from error
