"""What a matrix is made of: one method, and for every pair of attack and defence the runs of its seeds."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.data.naming import ids_of
from covey.run.assemble import prepare
from covey.run.config.compose import compose
from covey.run.config.overrides import check_applies, options_in
from covey.run.config.schema import Config
from covey.run.config.tree import Tree, merge
from covey.run.schedule import rounds_of

from .parts import NOBODY, NOTHING, Part, attacked, attacks, defences, defended, has_option
from .targets import rows_of

COLD = "cold"  # the target that fewest users have
EVALUATIONS = 10  # of a run, about: a curve, and little time


@dataclass(frozen=True)
class Wish:
    """What a caller asks for."""

    method: str
    dataset: str = ""
    preset: str = ""
    attacks: tuple[str, ...] = ("a-ra", "a-hum", "psmu", "random")
    defences: tuple[str, ...] = ("clip", "median", "trimmed", "krum", "hics")
    share: float = 0.01
    targets: str = COLD
    rounds: int = 0  # 0: as the method says
    seeds: int = 1
    set: tuple[str, ...] = ()

    def command(self) -> str:
        """What makes the same matrix again."""
        words = ["covey matrix", f"--method {self.method}"]
        words += [
            f"--{name} {value}" for name in ("dataset", "preset") if (value := getattr(self, name))
        ]
        words += [f"--attacks {','.join(self.attacks)}", f"--defences {','.join(self.defences)}"]
        words += [f"--share {self.share:g}", f"--targets {shlex.quote(self.targets)}"]
        words += [f"--rounds {self.rounds}"] if self.rounds else []
        words += [f"--seeds {self.seeds}"] if self.seeds > 1 else []
        return " ".join([*words, *(f"--set '{text}'" for text in self.set)])


@dataclass(frozen=True)
class Plan:
    """A wish that can be run: what is in it exists."""

    wish: Wish
    base: Config  # nobody attacks, no defence
    attacks: tuple[Part, ...]
    defences: tuple[Part, ...]
    targets: tuple[int, ...]  # rows of the item table
    ids: tuple[str, ...]  # of the targets, in the data
    titles: tuple[str, ...]  # of the targets; "" where there are none
    count_I: Tensor = field(repr=False)  # how many users have an item in training
    users: int = 0

    @property
    def attackers(self) -> int:
        return max(1, int(self.wish.share * self.users)) if self.wish.share else 0

    @property
    def seeds(self) -> range:
        first = self.base.run.seed
        return range(first, first + self.wish.seeds)

    def config(self, attack: Part, defence: Part, seed: int) -> Config:
        """Of one run; raises where attack, defence and method do not fit."""
        tree = defended(self.base.tree, defence) if defence is not NOTHING else self.base.tree
        if attack is not NOBODY:
            more = _of_attacks(self.wish.set)
            tree = attacked(tree, attack, self.wish.share, self.targets, len(self.count_I), more)
        return Config.of(merge(tree, {"run": {"seed": seed}}))

    def fitted(self, attack: Part, defence: Part, seed: int) -> Config | str:
        """The same, or why there is none."""
        try:
            return self.config(attack, defence, seed)
        except CoveyError as error:
            return str(error)


def planned(wish: Wish) -> Plan:
    """Everything is looked at before anything runs."""
    positive("matrix", seeds=wish.seeds)
    pushing, defending = attacks(wish.attacks), defences(wish.defences)
    if len(pushing) == 1 and len(defending) == 1:
        raise CoveyError("name an attack or a defence; covey list attacks, covey list defences")
    base = _base(wish)
    if "pooled" in base.tree:
        raise CoveyError(
            f"{wish.method} trains on pooled data: it has no clients to attack; name a federated method"
        )
    prepared = prepare(base)
    check_applies(base, options_in(wish.set))
    users, count_I = prepared.split.n_users, prepared.catalogue.popularity_I
    assert count_I is not None
    if not 0 <= wish.share <= 1:
        raise CoveyError(
            f"--share {wish.share:g}: attackers are a share of the {users:,} honest clients, and at most as many;"
            " give 0 to 1"
        )
    ids = ids_of(prepared.dataset)
    targets = _targets(wish.targets, count_I, ids, base.data.name)
    titles = tuple(prepared.dataset.titles[t] if prepared.dataset.titles else "" for t in targets)
    base = Config.of(merge(base.tree, _measuring(base, targets, users)))
    own = tuple(ids[t] for t in targets)
    plan = Plan(wish, base, tuple(pushing), tuple(defending), targets, own, titles, count_I, users)
    _options_are_known(plan)
    return plan


def _base(wish: Wish) -> Config:
    tree = compose(
        wish.method,
        presets=[wish.preset] if wish.preset else [],
        dataset=wish.dataset or None,
        rounds=wish.rounds or None,
        set=[text for text in wish.set if text not in _of_attacks(wish.set)],
    )
    if "attack" in tree:
        raise CoveyError(
            f"{wish.method} has an [attack] of its own; a matrix needs the method alone, and --attacks"
        )
    return Config.of(tree)


def _of_attacks(given: Sequence[str]) -> list[str]:
    return [text for text in given if text.strip().startswith("attack.")]


def _measuring(base: Config, targets: Sequence[int], users: int) -> Tree:
    """The same in every cell; no ceiling, which tells nothing about an attack."""
    often = (
        {}
        if "every" in base.tree.get("evaluate", {})
        else {"every": -(-rounds_of(base, users) // EVALUATIONS)}
    )
    return {"evaluate": {"targets": list(targets), **often}, "run": {"ceilings": []}}


def _targets(given: str, count_I: Tensor, ids: Sequence[str], dataset: str) -> tuple[int, ...]:
    """Named items, or the one that fewest users have in training; the first of equals."""
    if given.strip() == COLD:
        return (int((count_I == count_I.min()).nonzero()[0]),)
    try:
        return rows_of(given, ids, len(count_I), dataset)
    except CoveyError as error:
        raise CoveyError(f"{error}, or say {COLD}") from None


def _options_are_known(plan: Plan) -> None:
    """An option that no attack has, or a value that none takes, is a slip."""
    pushing, given = plan.attacks[1:], _of_attacks(plan.wish.set)
    for text in given:
        if not any(has_option(attack, text) for attack in pushing):
            raise CoveyError(
                f"--set {text}: no attack here has that option; see docs/methods, or leave it out"
            )
    found = [plan.fitted(attack, NOTHING, 0) for attack in pushing] if given else []
    if found and all(isinstance(c, str) for c in found):
        raise CoveyError(str(found[0]))
