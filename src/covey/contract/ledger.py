"""What leaves the device: every field of every message, declared by whoever puts it there."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from covey.core.errors import CoveyError

from .accountant import Release, basic, tighter

INFINITE = float("inf")
Key = tuple[str, str]


@dataclass(frozen=True)
class Disclosure:
    """One field of one kind of message, and the privacy it is sent with.

    `epsilon` is the local privacy budget that one sending spends on one `unit`; infinite where
    nothing protects the content. After `releases` sendings a client only repeats its last one,
    which spends nothing more; 0: every sending is new. What a field tells beside its content, such as
    its length, is declared under the field's path: "list" tells "list/length".
    """

    step: str  # the exchange it travels in: enrol, report, train, evaluate
    name: str  # path in the message, such as "update/items" or "contribution/list"
    what: str  # in words, for a person
    epsilon: float = INFINITE
    unit: Literal["message", "item", "row"] = "message"
    releases: int = 0
    delta: float = 0.0  # of one unit; 0: pure
    multiplier: float = 0.0  # of Gaussian noise: its deviation over the sensitivity
    of_sum: bool = False  # the epsilon is that of a sum over clients: it holds where nothing but sums can be read
    budget: str = (
        ""  # fields of a message that were protected as one spend one budget, by this name
    )
    given: bool = False  # no message of a run holds it: the server has it from the start
    # Its noise is drawn from the run's seed, so who runs it can take it away; filled by Program.
    simulated: bool = False

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise CoveyError(
                f"{self.name}: epsilon = {self.epsilon}; a privacy budget is over 0, infinite for none"
            )
        if not 0 <= self.delta < 1:
            raise CoveyError(f"{self.name}: delta = {self.delta}; it is from 0 to below 1")


@dataclass(frozen=True)
class PrivacyConfig:
    """What users are owed: a run that is planned to spend more refuses to start."""

    max_epsilon: float = INFINITE  # of a user in total
    delta: float = 1e-5  # of a user in total, where noise is Gaussian or the accountant is tighter
    spent: float = 0.0  # epsilon that users have spent before this run
    unprotected: Literal["refuse", "allow"] = (
        "refuse"  # under a limit: fields that leave without any guarantee
    )

    def __post_init__(self) -> None:
        if not self.max_epsilon > 0:
            raise CoveyError(
                f"privacy.max_epsilon = {self.max_epsilon}; it must be over 0 (inf: no limit)"
            )
        if not 0 <= self.delta < 1 or not 0 <= self.spent < INFINITE:
            raise CoveyError("privacy: delta is from 0 to below 1, spent a number of at least 0")


@dataclass
class Ledger:
    """Adds up what was sent. `bytes` and `sends` are filled by the fleet's meter."""

    declared: dict[Key, Disclosure]
    sends: dict[Key, int] = field(default_factory=dict)  # most messages of one client
    bytes: dict[Key, int] = field(default_factory=dict)
    items_per_user: int = 0  # the longest list, for budgets that are spent per item
    rows: dict[str, int] = field(
        default_factory=dict
    )  # of each field, for budgets that are spent per row

    @classmethod
    def of(cls, disclosures: Iterable[Disclosure], items_per_user: int = 0) -> "Ledger":
        return cls({(d.step, d.name): d for d in disclosures}, items_per_user=items_per_user)

    def undeclared(self, seen: Iterable[Key]) -> list[Key]:
        return sorted(set(seen) - set(self.declared))

    def times(self, key: Key) -> int:
        """Messages of the busiest client with this field, or with the one it is told by; 1 for what is given."""
        step, path = key
        if key in self.declared and self.declared[key].given:
            return 1
        while path and (step, path) not in self.sends:
            path = path.rpartition("/")[0]
        return self.sends.get((step, path), 0)

    def units(self, key: Key) -> int:
        """How often one message spends the field's epsilon."""
        unit = self.declared[key].unit
        return {"message": 1, "item": self.items_per_user, "row": self.rows.get(key[1], 1)}[unit]

    def release(self, key: Key) -> Release:
        """All that the worst user releases of a field in a run."""
        d, times = self.declared[key], self.times(key)
        times = min(times, d.releases) if d.releases else times
        return Release(d.epsilon, d.delta, d.multiplier, times * self.units(key))

    def spent(self, key: Key) -> float:
        """Worst user's total by basic composition: per item, per message, over all messages."""
        if self.times(key) == 0:
            return 0.0
        return INFINITE if self.declared[key].epsilon == INFINITE else basic([self.release(key)])[0]

    def once(self, key: Key) -> float:
        """What one message spends."""
        d = self.declared[key]
        return INFINITE if d.epsilon == INFINITE else d.epsilon * self.units(key)

    def sent(self) -> list[Key]:
        return [key for key in self.declared if self.times(key)]

    def table(self) -> list[dict[str, object]]:
        """One row per field that was sent, in the order of the declarations."""
        return [
            {
                "step": key[0],
                "field": key[1],
                "what": self.declared[key].what,
                "bytes": self.bytes.get(key, 0),
                "messages_per_user": self.times(key),
                "epsilon": _number(self.declared[key].epsilon),
                "delta": self.declared[key].delta,
                "unit": self.declared[key].unit,
                "epsilon_message": _number(self.once(key)),
                "epsilon_user_total": _number(self.spent(key)),
            }
            for key in self.sent()
        ]

    def budgets(self) -> dict[str, list[Key]]:
        """Fields with a guarantee by the budget they spend, study figures left out."""
        found: dict[str, list[Key]] = {}
        for key in self.sent():
            if key[0] != "evaluate" and self.declared[key].epsilon < INFINITE:
                found.setdefault(f"{key[0]} {self.declared[key].budget or key[1]}", []).append(key)
        return found

    def unprotected(self) -> list[Key]:
        return [
            key
            for key in self.sent()
            if key[0] != "evaluate" and self.declared[key].epsilon == INFINITE
        ]

    def summary(self, delta: float = 0.0) -> dict[str, Any]:
        """What a person is owed: epsilon of an item, a report, a round, and in total; and what has none at all."""
        heads = [keys[0] for keys in self.budgets().values()]
        of = lambda *steps: sum(self.once(key) for key in heads if key[0] in steps)
        releases = [self.release(key) for key in heads]
        total, slack = basic(releases)
        better = tighter(releases, delta)
        items = [self.declared[key].epsilon for key in heads if self.declared[key].unit == "item"]
        return {
            "epsilon_item": max(items, default=0.0),
            "epsilon_enrolment": of("enrol"),
            "epsilon_report": of("report"),
            "epsilon_round": of("report", "train"),
            "epsilon_user": total,
            "delta_user": slack,
            "accountant": {"epsilon": better[0], "delta": delta, "by": better[1]}
            if better
            else None,
            "noise": self.noise(),
            "unprotected": [f"{step} {name}" for step, name in self.unprotected()],
            "needs_secure": [
                f"{step} {name}"
                for step, name in self.unprotected()
                if self.declared[step, name].of_sum
            ],
        }

    def noise(self) -> str | None:
        """Where the noise of all guarantees comes from; the weakest source counts, None where there is no guarantee."""
        simulated = [
            self.declared[key].simulated for keys in self.budgets().values() for key in keys
        ]
        return ("simulated" if any(simulated) else "device") if simulated else None


def counts_given(part: str) -> Disclosure:
    """For parts that are told how popular items are: the catalogue's counts are exact, and of everybody's items."""
    what = "how many clients have each item, exactly; the server is given it from the start"
    return Disclosure("enrol", f"{part}/counts", what, given=True)


def _number(epsilon: float) -> float | str:
    """JSON has no infinity; a person reads the word better anyway."""
    return "none" if epsilon == INFINITE else epsilon
