"""The privacy ledger: every field that leaves a device, as declared by the part that sends it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from covey.core.errors import CoveyError
from covey.core.fixed_point import REPORT

from .accountant import Release, basic, tighter

INFINITE = float("inf")
Key = tuple[str, str]


@dataclass(frozen=True)
class Disclosure:
    """One field of one kind of message, and the privacy with which it is sent.

    What a field discloses in addition to its content, such as its length, is declared under the
    path of the field: "list/length" for "list". Sums are as precise as `largest` allows.
    """

    step: str  # the exchange: "enrol", "report", "train" or "evaluate"
    name: str  # the path in the message, such as "update/items" or "contribution/list"
    what: str  # a description for people
    epsilon: float = INFINITE  # that one message spends on one `unit`; infinite without protection
    unit: Literal["message", "item", "row"] = "message"  # what `epsilon` and `delta` refer to
    # After so many messages a client repeats its last one, which spends nothing more; 0: all new.
    releases: int = 0
    delta: float = 0.0  # the delta of one unit; 0 for pure privacy
    multiplier: float = 0.0  # deviation of Gaussian noise over the sensitivity; 0: other noise
    of_sum: bool = False  # whether the guarantee holds only if the server reads nothing but sums
    budget: str = ""  # the name of the budget that several fields of a message spend together
    given: bool = False  # whether the server has it from the start, so that no message contains it
    simulated: bool = False  # whether the noise comes from the seed; the engine fills this in
    largest: float = REPORT  # of any number; a client with a larger one is left out of the round

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            limits = "a privacy budget is over 0, infinite for none"
            raise CoveyError(f"{self.name}: epsilon = {self.epsilon}; {limits}")
        if not 0 <= self.delta < 1:
            raise CoveyError(f"{self.name}: delta = {self.delta}; it is from 0 to below 1")
        if not 0 < self.largest < INFINITE:
            raise CoveyError(f"{self.name}: largest = {self.largest}; it is over 0 and finite")


@dataclass(frozen=True)
class PrivacyConfig:
    """The privacy that users are promised: a run that is planned to spend more does not start."""

    max_epsilon: float = INFINITE  # of a user in total
    delta: float = 1e-5  # of a user in total, where noise is Gaussian or the accountant is tighter
    spent: float = 0.0  # epsilon that users have spent before this run
    unprotected: Literal["refuse", "allow"] = "refuse"  # fields without any guarantee, if limited

    def __post_init__(self) -> None:
        if not self.max_epsilon > 0:
            limits = "it must be over 0 (inf: no limit)"
            raise CoveyError(f"privacy.max_epsilon = {self.max_epsilon}; {limits}")
        if not 0 <= self.delta < 1 or not 0 <= self.spent < INFINITE:
            raise CoveyError("privacy: delta is from 0 to below 1, spent a number of at least 0")


@dataclass
class Ledger:
    """Adds up what was sent, by (step, field); the fleet's meter fills in `bytes` and `sends`."""

    declared: dict[Key, Disclosure]
    sends: dict[Key, int] = field(default_factory=dict)  # most messages of one client
    bytes: dict[Key, int] = field(default_factory=dict)
    items_per_user: int = 0  # the longest list, for budgets that are spent per item
    rows: dict[str, int] = field(default_factory=dict)  # by field, for budgets spent per row

    @classmethod
    def of(cls, disclosures: Iterable[Disclosure], items_per_user: int = 0) -> "Ledger":
        return cls({(d.step, d.name): d for d in disclosures}, items_per_user=items_per_user)

    def undeclared(self, seen: Iterable[Key]) -> list[Key]:
        """The fields that were sent although no part declared them."""
        return sorted(set(seen) - set(self.declared))

    def times(self, key: Key) -> int:
        """How many messages of a client at most have this field, or the one that discloses it."""
        step, path = key
        if key in self.declared and self.declared[key].given:
            return 1
        while path and (step, path) not in self.sends:
            path = path.rpartition("/")[0]
        return self.sends.get((step, path), 0)

    def units(self, key: Key) -> int:
        """How often one message spends the epsilon of a field."""
        unit = self.declared[key].unit
        return {"message": 1, "item": self.items_per_user, "row": self.rows.get(key[1], 1)}[unit]

    def release(self, key: Key) -> Release:
        """All that the user with the largest loss releases of a field in a run."""
        d, times = self.declared[key], self.times(key)
        times = min(times, d.releases) if d.releases else times
        return Release(d.epsilon, d.delta, d.multiplier, times * self.units(key))

    def spent(self, key: Key) -> float:
        """The largest total of a user for one field, by basic composition over all messages."""
        if self.times(key) == 0:
            return 0.0
        return INFINITE if self.declared[key].epsilon == INFINITE else basic([self.release(key)])[0]

    def once(self, key: Key) -> float:
        """The epsilon that one message spends on a field."""
        d = self.declared[key]
        return INFINITE if d.epsilon == INFINITE else d.epsilon * self.units(key)

    def sent(self) -> list[Key]:
        """The fields that were sent, in the order of the declarations."""
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
        """The fields with a guarantee by the budget that they spend, without evaluation metrics."""
        found: dict[str, list[Key]] = {}
        for key in self.sent():
            if key[0] != "evaluate" and self.declared[key].epsilon < INFINITE:
                found.setdefault(f"{key[0]} {self.declared[key].budget or key[1]}", []).append(key)
        return found

    def unprotected(self) -> list[Key]:
        """The fields without a guarantee, without evaluation metrics."""
        study = [key for key in self.sent() if key[0] != "evaluate"]
        return [key for key in study if self.declared[key].epsilon == INFINITE]

    def summary(self, delta: float = 0.0) -> dict[str, Any]:
        """The privacy of a user: per item, report, round and in total, and the unprotected fields.

        The accountant computes a smaller total at this `delta`.
        """
        heads = [keys[0] for keys in self.budgets().values()]

        def once(*steps: str) -> float:
            return sum(self.once(key) for key in heads if key[0] in steps)

        releases = [self.release(key) for key in heads]
        (total, total_delta), better = basic(releases), tighter(releases, delta)
        items = [self.declared[key].epsilon for key in heads if self.declared[key].unit == "item"]
        open_fields = self.unprotected()
        return {
            "epsilon_item": max(items, default=0.0),
            "epsilon_enrolment": once("enrol"),
            "epsilon_report": once("report"),
            "epsilon_round": once("report", "train"),
            "epsilon_user": total,
            "delta_user": total_delta,
            "accountant": better and {"epsilon": better[0], "delta": delta, "by": better[1]},
            "noise": self.noise(),
            "unprotected": [" ".join(key) for key in open_fields],
            "needs_secure": [" ".join(key) for key in open_fields if self.declared[key].of_sum],
        }

    def noise(self) -> str | None:
        """Where the noise of the guarantees comes from, or None; "simulated" if any of it is."""
        keys = [key for budget in self.budgets().values() for key in budget]
        if any(self.declared[key].simulated for key in keys):
            return "simulated"
        return "device" if keys else None


def counts_given(part: str) -> Disclosure:
    """The disclosure of a part that knows exactly how many clients have each item."""
    what = "how many clients have each item, exactly; the server is given it from the start"
    return Disclosure("enrol", f"{part}/counts", what, given=True)


def _number(epsilon: float) -> float | str:
    """JSON has no infinity, and the word is easier to read."""
    return "none" if epsilon == INFINITE else epsilon
