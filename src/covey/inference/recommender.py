"""A trained method that recommends by the user's own ids.

Shape suffixes: C = users of a chunk, I = items, K = places of a list.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from covey.core import atomic, toml_writer
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.lock import hold
from covey.core.ragged import Ragged
from covey.data.dataset import Array
from covey.data.split import SplitConfig
from covey.data.split import split as split_rows
from covey.evaluate.ranking import merged
from covey.run.assemble import Prepared, device_of, prepare
from covey.run.checkpoint import CHECKPOINT, MODEL, STATE, USERS
from covey.run.config.schema import Config
from covey.run.config.tree import parse
from covey.run.rounds_log import ROUNDS

from .catalogue_growth import grow_catalogue
from .new_items import with_new_items
from .scorers import Scorer, load_devices, load_pooled

DATA = "dataset.npz"  # a run folder's own copy of its dataset
TENSORS = (MODEL, USERS, CHECKPOINT, STATE)
FILES = ("config.toml", "metrics.jsonl", "result.json", "report.html", DATA, ROUNDS, *TENSORS)
NUMBERS_AT_ONCE = 1 << 24  # in memory; about 64 for each item that is scored


@dataclass(frozen=True)
class Choice:
    """One item of a list of recommendations, by the id that the dataset has for it."""

    item: Any
    title: str
    score: float


@dataclass(frozen=True, eq=False)
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
        scorer: Scorer
        if "pooled" in config.tree:
            scorer = load_pooled(config, prepared, folder)
        else:
            scorer = load_devices(config, digest, prepared, folder)
        return cls(config, prepared, scorer, _result(folder / "result.json"))

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

    def recommend(
        self, users: Any, k: int = 10, filter_seen: bool = True, as_frame: bool = False
    ) -> Any:
        """Recommends items to users of the dataset.

        Args:
            users: The id of a user, or several.
            k: The length of each list.
            filter_seen: Leave out the items that a user has.
            as_frame: Return a DataFrame with rank, score and title instead.

        Returns:
            The ids of the best items, best first: {user: [item, ...]}.
        """
        lists = self.ranked(users, k, filter_seen)
        if not as_frame:
            return {user: [choice.item for choice in chosen] for user, chosen in lists.items()}
        rows = [
            (user, choice.item, rank, choice.score, choice.title)
            for user, chosen in lists.items()
            for rank, choice in enumerate(chosen, 1)
        ]
        return _pandas().DataFrame(rows, columns=["user", "item", "rank", "score", "title"])

    def ranked(
        self, users: Any, k: int = 10, filter_seen: bool = True, as_tested: bool = False
    ) -> dict[Any, list[Choice]]:
        """Recommends like `recommend`, with titles and scores.

        With `as_tested` a user's test items are unknown and can be recommended, as in the test.
        """
        positive("recommend", k=k)
        single = isinstance(users, str) or not isinstance(users, Iterable)
        asked = [users] if single else list(users)
        ids = torch.tensor([self._user(user) for user in asked], dtype=torch.int64)
        lists: list[list[Choice]] = []
        for ids_C in ids.split(max(1, NUMBERS_AT_ONCE // (64 * self.prepared.split.n_items))):
            history = (self._before_test if as_tested else self._known).take(ids_C)
            score_CI = self.scorer.scores(ids_C, history)
            lists += self._best(score_CI, history if filter_seen else None, k)
        return dict(zip(asked, lists, strict=True))

    def recommend_new(
        self, items: Sequence[Any], k: int = 10, filter_seen: bool = True, rounds: int = 0
    ) -> list[Any]:
        """Recommends items to a new user; see `ranked_new`."""
        return [choice.item for choice in self.ranked_new(items, k, filter_seen, rounds)]

    def ranked_new(
        self, items: Sequence[Any], k: int = 10, filter_seen: bool = True, rounds: int = 0
    ) -> list[Choice]:
        """Recommends items to a user who is not in the dataset, with titles and scores.

        Args:
            items: The ids of the user's items, oldest first.
            k: The length of the list.
            filter_seen: Leave out the user's items.
            rounds: How often the private part is trained, as on a new device with a fixed public
                model; 0 for as often as that of a client of the run.
        """
        positive("recommend", k=k)
        if isinstance(items, str) or not len(items):
            raise CoveyError("a new user is a list of at least one item id")
        rows = [self._item(item) for item in items]
        history = Ragged.of([list(dict.fromkeys(reversed(rows)))[::-1]])  # repeated ones once, last
        score_CI = self.scorer.newcomer(history, rounds)
        return self._best(score_CI, history if filter_seen else None, k)[0]

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
        growth = grow_catalogue(self.config, self.prepared, self._numbers, items, interactions)
        scorer = with_new_items(self.scorer, growth, rounds)
        return replace(self, config=growth.config, prepared=growth.prepared, scorer=scorer)

    def evaluate(self) -> dict[str, dict[str, float]]:
        """Returns averages over users for the held-out parts: {"valid": {...}, "test": {...}}."""
        return self.scorer.averages(self.config, self.prepared)

    @cached_property
    def _known(self) -> Ragged:
        """All items of each user including held-out ones, oldest first."""
        config, split = self.config.split, self.prepared.split
        if config.kind != "loo" or config.order != "time":
            split = split_rows(self.prepared.dataset, SplitConfig(rows=config.rows))
        return merged(merged(split.train, split.valid), split.test)

    @cached_property
    def _before_test(self) -> Ragged:
        return merged(self.prepared.split.train, self.prepared.split.valid)

    @cached_property
    def users(self) -> list[Any]:
        """The dataset's own user ids."""
        return _ids(self.prepared.dataset.users, self.prepared.dataset.n_users)

    @cached_property
    def items(self) -> list[Any]:
        """The dataset's own item ids."""
        return _ids(self.prepared.dataset.items, self.prepared.dataset.n_items)

    @cached_property
    def _numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        """Numbers by the text of an id: 7 and "7" are the same user, "07" is another."""
        users = {str(own): number for number, own in enumerate(self.users)}
        return users, {str(own): number for number, own in enumerate(self.items)}

    def _user(self, user: Any) -> int:
        if (number := self._numbers[0].get(str(user))) is None:
            remedy = "a new one gets a list from its own items: recommend_new(items)"
            where = self.prepared.dataset.name
            raise CoveyError(f"there is no user {str(user)!r} in {where}; {remedy}")
        return number

    def _item(self, item: Any) -> int:
        if (number := self._numbers[1].get(str(item))) is None:
            remedy = "one added after training is made known with add_items, or by fitting again"
            where = self.prepared.dataset.name
            raise CoveyError(f"there is no item {str(item)!r} in {where}; {remedy}")
        return number

    def _best(self, score_CI: Tensor, hidden: Ragged | None, k: int) -> list[list[Choice]]:
        score_CI = score_CI.float()
        score_CI = torch.where(score_CI.isnan(), -torch.inf, score_CI)
        if hidden is not None:
            score_CI[hidden.owner, hidden.values] = -torch.inf
        best_CK, item_CK = score_CI.topk(min(k, score_CI.shape[1]), 1)
        pairs = (zip(row, scores) for row, scores in zip(item_CK.tolist(), best_CK.tolist()))
        return [
            [self._choice(item, score) for item, score in row if score > -torch.inf]
            for row in pairs
        ]

    def _choice(self, item: int, score: float) -> Choice:
        titles = self.prepared.dataset.titles
        return Choice(self.items[item], titles[item] if titles else "", score)


def _ids(ids: Array | None, count: int) -> list[Any]:
    return [str(n) for n in range(count)] if ids is None else list(ids.tolist())


def _clear(folder: Path) -> None:
    """Removes a run, its configuration first, so that what is left is not taken for a run."""
    try:
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        message = f"cannot remove the run in {folder}: {error.strerror}; choose another path"
        raise CoveyError(message) from error


def _result(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except ValueError as error:
        raise CoveyError(f"{path} is damaged ({error}); remove it and try again") from error


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        message = "as_frame=True needs pandas; install it with pip install pandas"
        raise CoveyError(message) from error
    return pandas
