"""The plan of a matrix: one method, its targets, and the runs of every attack and defence."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from covey.core import CoveyError, positive
from covey.data.naming import ids_of, named
from covey.run.assemble import prepare
from covey.run.config.compose import compose
from covey.run.config.overrides import check_applies, options_in
from covey.run.config.schema import Config
from covey.run.config.tree import merge
from covey.run.schedule import rounds_of

from .parts import NOBODY, NOTHING, Part, attacked, attacks, defences, defended, has_option

BY_ID = "id:"  # before the id of a target, which is a row of the item table otherwise
COLD = "cold"  # the target that fewest users have
EVALUATIONS = 10  # of a run, about: enough for a curve


@dataclass(frozen=True)
class MatrixOptions:
    """What a user asks for, as options of `covey matrix`."""

    method: str
    dataset: str = ""
    preset: str = ""
    attacks: tuple[str, ...] = ("a-ra", "a-hum", "psmu", "random")
    defences: tuple[str, ...] = ("clip", "median", "trimmed", "krum", "hics")
    share: float = 0.01
    targets: str = COLD
    rounds: int = 0  # 0: as in the method's configuration
    seeds: int = 1
    set: tuple[str, ...] = ()

    def command(self) -> str:
        """Return the command that makes the same matrix."""
        names = {"method": self.method, "dataset": self.dataset, "preset": self.preset}
        words = ["covey matrix", *(f"--{key} {name}" for key, name in names.items() if name)]
        words += [f"--attacks {','.join(self.attacks)}", f"--defences {','.join(self.defences)}"]
        words += [f"--share {self.share:g}", f"--targets {shlex.quote(self.targets)}"]
        words += [f"--rounds {self.rounds}"] if self.rounds else []
        words += [f"--seeds {self.seeds}"] if self.seeds > 1 else []
        return " ".join([*words, *(f"--set '{text}'" for text in self.set)])


@dataclass(frozen=True)
class Plan:
    """A request that can be run: everything that it names exists."""

    request: MatrixOptions
    base: Config  # without attack and defence
    attacks: tuple[Part, ...]
    defences: tuple[Part, ...]
    targets: tuple[int, ...]  # rows of the item table
    ids: tuple[str, ...]  # of the targets, in the data
    titles: tuple[str, ...]  # of the targets; "" if the data has none
    count_I: Tensor = field(repr=False)  # how many users have an item in training
    users: int = 0

    @property
    def attackers(self) -> int:
        return max(1, int(self.request.share * self.users)) if self.request.share else 0

    @property
    def seeds(self) -> range:
        first = self.base.run.seed
        return range(first, first + self.request.seeds)

    def config(self, attack: Part, defence: Part, seed: int) -> Config:
        """Return the configuration of one run; refuse parts that do not fit the method."""
        tree = defended(self.base.tree, defence) if defence is not NOTHING else self.base.tree
        if attack is not NOBODY:
            more = _of_attacks(self.request.set)
            tree = attacked(tree, attack, self.request.share, self.targets, len(self.count_I), more)
        return Config.of(merge(tree, {"run": {"seed": seed}}))

    def fitted(self, attack: Part, defence: Part, seed: int) -> Config | str:
        """Return the configuration of one run, or why there is none."""
        try:
            return self.config(attack, defence, seed)
        except CoveyError as error:
            return str(error)


def planned(request: MatrixOptions) -> Plan:
    """Check a request before anything runs."""
    positive("matrix", seeds=request.seeds)
    pushing, defending = attacks(request.attacks), defences(request.defences)
    if len(pushing) == 1 and len(defending) == 1:
        raise CoveyError("name an attack or a defence; covey list attacks, covey list defences")
    base = _base(request)
    if "pooled" in base.tree:
        wrong = f"{request.method} trains on pooled data and has no clients to attack"
        raise CoveyError(f"{wrong}; name a federated method")
    prepared = prepare(base)
    check_applies(base.tree, options_in(request.set))
    users, count_I = prepared.split.n_users, prepared.catalogue.popularity_I
    assert count_I is not None
    if not 0 <= request.share <= 1:
        what = f"attackers are a share of the {users:,} honest clients"
        raise CoveyError(f"--share {request.share:g}: {what}; give 0 to 1")
    ids = ids_of(prepared.dataset)
    targets = _targets(request.targets, count_I, ids, base.data.name)
    titles = tuple(prepared.dataset.titles[t] if prepared.dataset.titles else "" for t in targets)
    every = base.tree.get("evaluate", {}).get("every", -(-rounds_of(base, users) // EVALUATIONS))
    measuring = {"targets": list(targets), "every": every}  # no cell needs ceilings
    base = Config.of(merge(base.tree, {"evaluate": measuring, "run": {"ceilings": []}}))
    own, parts = tuple(ids[t] for t in targets), (tuple(pushing), tuple(defending))
    plan = Plan(request, base, *parts, targets, own, titles, count_I, users)
    given = _of_attacks(request.set)
    for text in given:
        if not any(has_option(attack, text) for attack in pushing[1:]):
            wrong = "none of these attacks has that option"
            raise CoveyError(f"--set {text}: {wrong}; see docs/methods, or leave it out")
    found = [plan.fitted(attack, NOTHING, 0) for attack in pushing[1:]] if given else []
    if found and all(isinstance(c, str) for c in found):  # no attack accepts a value
        raise CoveyError(str(found[0]))
    return plan


def _base(request: MatrixOptions) -> Config:
    tree = compose(
        request.method,
        presets=[request.preset] if request.preset else [],
        dataset=request.dataset or None,
        rounds=request.rounds or None,
        set=[text for text in request.set if text not in _of_attacks(request.set)],
    )
    if "attack" in tree:
        wrong = f"{request.method} has an [attack] in its configuration"
        raise CoveyError(f"{wrong}; remove it and name attacks with --attacks")
    return Config.of(tree)


def _of_attacks(given: Sequence[str]) -> list[str]:
    return [text for text in given if text.strip().startswith("attack.")]


def _targets(given: str, count_I: Tensor, ids: Sequence[str], dataset: str) -> tuple[int, ...]:
    """Return named items, or the first of those that fewest users have in training."""
    if given.strip() == COLD:
        return (int((count_I == count_I.min()).nonzero()[0]),)
    try:
        return rows_of(given, ids, len(count_I), dataset)
    except CoveyError as error:
        raise CoveyError(f"{error}; or give {COLD}") from None


def rows_of(given: str, ids: Sequence[str] | None, n_items: int, dataset: str) -> tuple[int, ...]:
    """Return the rows of items such as "7,id:50", sorted and without repetition."""
    words = [word.strip() for word in given.split(",") if word.strip()]
    if not words:
        raise _wrong(given, n_items)
    return tuple(sorted({_row(word, ids, n_items, dataset) for word in words}))


def _row(word: str, ids: Sequence[str] | None, n_items: int, dataset: str) -> int:
    if word.startswith(BY_ID):
        own = word.removeprefix(BY_ID).strip()
        if ids is None:
            wrong = "the dataset is not available, so ids are unknown; name items by row"
            raise CoveyError(f"--targets {BY_ID}{own}: {wrong}")
        if own not in ids:
            find = f"find it with covey data show {dataset} --find TITLE"
            raise CoveyError(f"--targets {BY_ID}{own}: {dataset} has no item with that id; {find}")
        return ids.index(own)
    row = int(word) if word.removeprefix("-").isdecimal() else -1
    if not 0 <= row < n_items:
        raise _wrong(word, n_items)
    return row


def _wrong(word: str, n_items: int) -> CoveyError:
    rows = f"name items by row, from 0 to {n_items - 1}, or by their id in the data"
    return CoveyError(f"--targets {word}: {rows}, such as {BY_ID}50, separated by commas")


def with_names(titles: Sequence[str], ids: Sequence[str] | None, rows: Sequence[int]) -> list[str]:
    """Return titles of all items, with the full names of those in some rows."""
    out = list(titles)
    for row in rows:
        own = None if ids is None else ids[row]
        untitled = titles[row] == f"item {row if own is None else own}"  # made of the id
        out[row] = named(row, own, "" if untitled else titles[row])
    return out
