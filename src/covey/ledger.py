"""What leaves the device: every field of every message, declared by whoever puts it there."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from .core import CoveyError

INFINITE = float("inf")


@dataclass(frozen=True)
class Disclosure:
    """One field of one kind of message, and the privacy it is sent with.

    `epsilon` is the local privacy budget that one sending spends on one `unit`; infinite where
    nothing protects the content. After `releases` sendings a client only repeats its last one,
    which spends nothing more; 0: every sending is new.
    """

    step: str  # the exchange it travels in: enrol, report, train, evaluate
    name: str  # path in the message, such as "update/items" or "contribution/list"
    what: str  # in words, for a person
    epsilon: float = INFINITE
    unit: Literal["message", "item"] = "message"
    releases: int = 0

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise CoveyError(f"{self.name}: epsilon = {self.epsilon}; a privacy budget is over 0, infinite for none")


@dataclass
class Ledger:
    """Adds up what was sent. `bytes` and `sends` are filled by the fleet's meter."""

    declared: dict[tuple[str, str], Disclosure]
    sends: dict[tuple[str, str], int] = field(default_factory=dict)  # most messages of one client
    bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    items_per_user: int = 0  # the longest list, for budgets that are spent per item

    @classmethod
    def of(cls, disclosures: Iterable[Disclosure], items_per_user: int = 0) -> "Ledger":
        return cls({(d.step, d.name): d for d in disclosures}, items_per_user=items_per_user)

    def undeclared(self, seen: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        return sorted(set(seen) - set(self.declared))

    def spent(self, key: tuple[str, str]) -> float:
        """Worst user's total by basic composition: per item, per message, over all messages."""
        entry, times = self.declared[key], self.sends.get(key, 0)
        if times == 0:
            return 0.0
        if entry.epsilon == INFINITE:
            return INFINITE
        times = min(times, entry.releases) if entry.releases else times
        return entry.epsilon * times * (self.items_per_user if entry.unit == "item" else 1)

    def table(self) -> list[dict[str, object]]:
        """One row per field that was sent, in the order of the declarations."""
        return [
            {
                "step": d.step,
                "field": d.name,
                "what": d.what,
                "bytes": self.bytes.get(key, 0),
                "messages_per_user": self.sends.get(key, 0),
                "epsilon": _number(d.epsilon),
                "unit": d.unit,
                "epsilon_user_total": _number(self.spent(key)),
            }
            for key, d in self.declared.items()
            if self.sends.get(key, 0)
        ]


def _number(epsilon: float) -> float | str:
    """JSON has no infinity; a person reads the word better anyway."""
    return "none" if epsilon == INFINITE else epsilon
