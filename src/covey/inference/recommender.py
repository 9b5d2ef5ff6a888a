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
from covey.run.checkpoint import CHECKPOINT, MODEL, USERS
from covey.run.config.schema import Config
from covey.run.config.tree import parse
from covey.run.rounds_log import ROUNDS

from .catalogue_growth import growth_of
from .new_items import grown
from .scorers import Scorer, load_devices, load_pooled

DATA = "dataset.npz"  # a run folder's own copy of its dataset
FILES = (
    "config.toml",
    "metrics.jsonl",
    "result.json",
    "report.html",
    DATA,
    ROUNDS,
    MODEL,
    USERS,
    CHECKPOINT,
)
SCORES = 1 << 24  # numbers at a time, about 64 for each item that is scored


@dataclass(frozen=True)
class Choice:
    """One place of a list of recommendations."""

    item: Any  # the user's own id
    title: str
    score: float


@dataclass(frozen=True, eq=False)
class Recommender:
    """A trained method with the clients of its simulation; `fit` and `load` make it."""

    config: Config
    prepared: Prepared
    scorer: Scorer
    result: dict[str, Any]  # what the run measured: test figures, floor, ledger, traffic

    @classmethod
    def load(
        cls, path: str | Path, device: str | None = None, trust: Iterable[str] = ()
    ) -> "Recommender":
        """From a folder that `save`, `fit(out=...)` or `covey run` wrote; on another device where one is named.

        `trust` names modules outside of covey that the run's configuration may import, such as your own method's.
        """
        folder = Path(path)
        if not (folder / "config.toml").is_file():
            raise CoveyError(
                f"{folder} is no run folder: it has no config.toml; write one with covey run --out"
            )
        config = Config.of(parse(folder / "config.toml"), trust)
        digest = config.digest()
        if (folder / DATA).exists():
            config = replace(config, data=replace(config.data, name=str(folder / DATA)))
        if device:
            config = replace(config, engine=replace(config.engine, device=device))
        device_of(config)
        prepared = prepare(config)
        pooled = "pooled" in config.tree
        scorer: Scorer = (
            load_pooled(config, prepared, folder)
            if pooled
            else load_devices(config, digest, prepared, folder)
        )
        return cls(config, prepared, scorer, _result(folder / "result.json"))

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Everything in a folder, the dataset and the clients' private state too: it is a simulation's.

        `overwrite`: in the place of the run that the folder may hold; other files in it stay.
        """
        folder = Path(path)
        with hold(folder):
            if (folder / "config.toml").exists():
                if not overwrite:
                    raise CoveyError(
                        f"{folder} holds a run already; choose another path, or say overwrite=True"
                    )
                _clear(folder)
            tree = self.config.tree | {"data": {"name": str((folder / DATA).absolute())}}
            config = Config.of(tree, self.config.trust)
            atomic.write(folder / DATA, self.prepared.dataset.save)
            self.scorer.save(config, folder)
            atomic.write_text(folder / "result.json", json.dumps(self.result, indent=1) + "\n")
            atomic.write_text(
                folder / "config.toml", toml_writer.dumps(config.tree)
            )  # last: now it is a run folder

    def recommend(
        self, users: Any, k: int = 10, filter_seen: bool = True, as_frame: bool = False
    ) -> Any:
        """The best item ids of each user, {user: [item, ...]}; as a DataFrame with titles and scores on demand."""
        lists = self.ranked(users, k, filter_seen)
        if not as_frame:
            return {user: [choice.item for choice in chosen] for user, chosen in lists.items()}
        rows = [
            (u, c.item, place, c.score, c.title)
            for u, cs in lists.items()
            for place, c in enumerate(cs, 1)
        ]
        return _pandas().DataFrame(rows, columns=["user", "item", "rank", "score", "title"])

    def ranked(
        self, users: Any, k: int = 10, filter_seen: bool = True, as_tested: bool = False
    ) -> dict[Any, list[Choice]]:
        """The same with titles and scores. Each user is ranked with what its own device keeps.

        `as_tested`: as in the test, where the test items are not known yet and can be recommended.
        """
        positive("recommend", k=k)
        asked = (
            [users] if isinstance(users, str) or not isinstance(users, Iterable) else list(users)
        )
        ids = torch.tensor([self._place(user) for user in asked], dtype=torch.int64)
        lists: list[list[Choice]] = []
        for ids_C in ids.split(max(1, SCORES // (64 * self.prepared.split.n_items))):
            history = (self._before_test if as_tested else self._known).take(ids_C)
            score_CI = self.scorer.scores(ids_C, history)
            lists += self._best(score_CI, history if filter_seen else None, k)
        return dict(zip(asked, lists, strict=True))

    def recommend_new(
        self, items: Sequence[Any], k: int = 10, filter_seen: bool = True, rounds: int = 0
    ) -> list[Any]:
        """The best item ids for somebody with these items, oldest first, who is not in the dataset."""
        return [choice.item for choice in self.ranked_new(items, k, filter_seen, rounds)]

    def ranked_new(
        self, items: Sequence[Any], k: int = 10, filter_seen: bool = True, rounds: int = 0
    ) -> list[Choice]:
        """The private part is fitted as on a new device with the public parts frozen, over `rounds` participations.

        0: as many as a client of the run had. Models without a private part have nothing to fit.
        """
        positive("recommend", k=k)
        if isinstance(items, str) or not len(items):
            raise CoveyError("a new user is a list of at least one item id")
        places = [self._item(item) for item in items]
        latest = list(dict.fromkeys(reversed(places)))[::-1]
        history = Ragged.of([latest])
        return self._best(
            self.scorer.newcomer(history, rounds), history if filter_seen else None, k
        )[0]

    def add_items(
        self, items: Iterable[Any], interactions: Iterable[tuple[Any, Any]] = (), rounds: int = 0
    ) -> Self:
        """A recommender that knows these items too, {id: title} or ids, while all that was learned stands still.

        `interactions` are (user, new item), oldest first; an item that nobody has is placed by its title. Rows are
        fitted over `rounds` rounds of everybody, 0: as many as a client of the run had.
        """
        growth = growth_of(self.config, self.prepared, self._places, items, interactions)
        return replace(
            self,
            config=growth.config,
            prepared=growth.prepared,
            scorer=grown(self.scorer, growth, rounds),
        )

    def evaluate(self) -> dict[str, dict[str, float]]:
        """Means over clients of the held-out parts, {"valid": {...}, "test": {...}}, with what it ranks with now."""
        return self.scorer.figures(self.config, self.prepared)

    @cached_property
    def _known(self) -> Ragged:
        """All items of each user, held-out ones too, oldest first."""
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
        return _own(self.prepared.dataset.users, self.prepared.dataset.n_users)

    @cached_property
    def items(self) -> list[Any]:
        """The dataset's own item ids."""
        return _own(self.prepared.dataset.items, self.prepared.dataset.n_items)

    @cached_property
    def _places(self) -> tuple[dict[str, int], dict[str, int]]:
        """Numbers by the text of an id: 7 and "7" are the same user, "07" is another."""
        users, items = (
            {str(own): at for at, own in enumerate(ids)} for ids in (self.users, self.items)
        )
        return users, items

    def _place(self, user: Any) -> int:
        if (at := self._places[0].get(str(user))) is None:
            what = "a new one gets a list from its own items: recommend_new(items)"
            raise CoveyError(
                f"there is no user {str(user)!r} in {self.prepared.dataset.name}; {what}"
            )
        return at

    def _item(self, item: Any) -> int:
        if (at := self._places[1].get(str(item))) is None:
            what = "one added after training is made known with add_items, or by fitting again"
            raise CoveyError(
                f"there is no item {str(item)!r} in {self.prepared.dataset.name}; {what}"
            )
        return at

    def _best(self, score_CI: Tensor, hidden: Ragged | None, k: int) -> list[list[Choice]]:
        score_CI = torch.nan_to_num(
            score_CI.float(), nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf
        )
        if hidden is not None:
            score_CI[hidden.owner, hidden.values] = -torch.inf
        best_CK, place_CK = score_CI.topk(min(k, score_CI.shape[1]), 1)
        titles = self.prepared.dataset.titles
        made = lambda at, score: Choice(self.items[at], titles[at] if titles else "", score)
        pairs = (zip(p, s) for p, s in zip(place_CK.tolist(), best_CK.tolist()))
        return [[made(at, score) for at, score in row if score > -torch.inf] for row in pairs]


def _own(ids: Array | None, count: int) -> list[Any]:
    return [str(n) for n in range(count)] if ids is None else list(ids.tolist())


def _clear(folder: Path) -> None:
    """Removes a run; its configuration first, so that what is left is never taken for one."""
    try:
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise CoveyError(
            f"cannot remove the run in {folder}: {error.strerror}; choose another path"
        ) from error


def _result(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except ValueError as error:
        raise CoveyError(f"{path} is damaged ({error}); remove it and try again") from error


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise CoveyError(
            "as_frame=True needs pandas; install it with pip install pandas"
        ) from error
    return pandas
