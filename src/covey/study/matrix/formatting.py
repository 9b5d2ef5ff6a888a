"""What is said of a matrix, whatever it is shown in: titles, notes, cells, defences at a glance."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from covey.data.naming import named
from covey.study.render.units import NOTHING, brief, change, fixed, percent, plain

Record = Mapping[str, Any]
Cell = Mapping[str, Any]
Say = Callable[[Record, Cell], str]
DETECTION = "recall, precision of filters; rows with too few uploads for a rule"


class Sight(NamedTuple):
    """A defence at a glance."""

    defence: str
    worst: float | None  # the highest ER of all evaluations, under the strongest attack
    attack: str  # which one that is
    accuracy: Mapping[str, Any]  # where nobody attacks
    cost: float | None  # of that, as a share
    least: float | None  # the lowest accuracy under an attack


def title(record: Record) -> str:
    many = len(record["attacks"]) - 1, len(record["defences"]) - 1
    names = [f"{n} {word}{'s' if n != 1 else ''}" for n, word in zip(many, ("attack", "defence"))]
    return f"{plain(record['method'])} on {plain(record['dataset'])}: {names[0]}, {names[1]}"


def setting(record: Record) -> str:
    """Who attacks what, in words."""
    pushed = "; ".join(_target(target) for target in record["targets"])
    unit = "passes over all clients" if record["unit"] == "pass" else "rounds"
    seeds = f", seeds {', '.join(map(str, record['seeds']))}" if len(record["seeds"]) > 1 else ""
    return (
        f"{record['attackers']:,} attackers beside {record['users']:,} users,"
        f" {record['items']:,} items; target: {pushed}; {record['rounds']} {unit}{seeds}"
    )


def _target(target: Record) -> str:
    own = target.get("id")  # older records have none
    name = named(target["item"], own if own is None else plain(own), plain(target["title"]))
    who = f"{target['users']:,} users have" if target["users"] else "nobody has"
    return f"{name}, which {who} in training"


def labels(record: Record, of: str) -> list[str]:
    return [part["label"] for part in record[of]]


def why_not(cell: Cell) -> str:
    """Why a cell has no figure at all."""
    return "" if cell["seeds"] else plain(cell["errors"][0]["error"])


def reasons(record: Record) -> dict[str, int]:
    """Each reason once, with the number that stands in its cells."""
    found = dict.fromkeys(why for _, _, cell in cells(record) if (why := why_not(cell)))
    return {why: number for number, why in enumerate(found, 1)}


def notes(record: Record) -> list[str]:
    """What the numbers stand for, and seeds that failed where others came through."""
    out = [f"✗{number} {why}" for why, number in reasons(record).items()]
    for attack, defence, cell in cells(record):
        if cell["seeds"]:
            for error in cell["errors"]:
                broken = f"seed {error['seed']} failed: {plain(error['error'])}"
                out.append(f"{attack}, {defence}, {broken}")
    return out


def cells(record: Record) -> Iterator[tuple[str, str, Cell]]:
    for attack in labels(record, "attacks"):
        for defence in labels(record, "defences"):
            yield attack, defence, record["cells"][attack][defence]


def spread(stat: Record, digits: int) -> str:
    around = "" if stat["spread"] is None else f" ± {fixed(stat['spread'], digits)}"
    return brief(fixed(stat["mean"], digits) + around)


def exposure(k: int) -> Say:
    """0.059 (1.000): after the last round, and at the highest where that is more."""

    def say(record: Record, cell: Cell) -> str:
        last, most = (cell[when][f"er@{k}"] for when in ("last", "highest"))
        higher = last["mean"] is not None and f"{most['mean']:.3f}" != f"{last['mean']:.3f}"
        return spread(last, 3) + (f" ({most['mean']:.3f})" if higher else "")

    return say


def accuracy(record: Record, cell: Cell) -> str:
    """0.0429 -17%"""
    part = share_lost(record, cell)
    return spread(cell["last"][record["metric"]], 4) + ("" if part is None else f" {change(-part)}")


def share_lost(record: Record, cell: Cell) -> float | None:
    """Of the accuracy that the method has where nobody attacks or defends."""
    clean = _clean(record)["last"][record["metric"]]["mean"]
    cost = cell["last"]["cost"]["mean"]
    return None if cost is None or not clean or cell is _clean(record) else cost / clean


def _clean(record: Record) -> Cell:
    first = record["cells"][labels(record, "attacks")[0]]
    return first[labels(record, "defences")[0]]


def detection(record: Record, cell: Cell) -> str:
    """Recall and precision of a filter, or rows that a rule had too few uploads for.

    A filter that left out nobody has no precision.
    """
    fell = [n for n in cell["fell_back"] if n is not None]
    if fell:
        return f"{sum(fell) / len(fell):,.0f} rows"
    recall, precision = cell["recall"]["mean"], cell["precision"]["mean"]
    return NOTHING if recall is None else f"{percent(recall)}, {percent(precision)}"


def judges(record: Record) -> bool:
    """Whether a defence left out clients anywhere, or had too few uploads to judge by."""
    return any(any(cell["left_out"]) or any(cell["fell_back"]) for _, _, cell in cells(record))


def grid(record: Record, say: Say) -> list[list[str]]:
    """A line of text for each attack; the number of its reason where a cell is empty."""
    numbers, out = reasons(record), []
    for attack in labels(record, "attacks"):
        line = [attack]
        for defence in labels(record, "defences"):
            cell = record["cells"][attack][defence]
            line.append(f"✗{numbers[why]}" if (why := why_not(cell)) else say(record, cell))
        out.append(line)
    return out


def sights(record: Record, k: int) -> list[Sight]:
    """Each defence under the attack that is strongest against it, and what it costs without one."""
    nobody, *others = labels(record, "attacks")
    er, out = f"er@{k}", []
    for defence in labels(record, "defences"):
        calm = record["cells"][nobody][defence]
        every = {attack: record["cells"][attack][defence] for attack in others}
        under = {a: c for a, c in every.items() if c["highest"][er]["mean"] is not None}
        height = {a: (c["highest"][er]["mean"], c["last"][er]["mean"]) for a, c in under.items()}
        worst = max(height, key=lambda a: height[a], default="")
        most = height[worst][0] if worst else None
        least = min((c["last"][record["metric"]]["mean"] for c in under.values()), default=None)
        figure = calm["last"][record["metric"]]
        out.append(Sight(defence, most, worst, figure, share_lost(record, calm), least))
    return out


def shown(record: Record, k: int) -> list[tuple[str, Say]]:
    """Tables of a record with their headings: exposure, accuracy, detection if there is any."""
    metric = record["metric"]
    tables: list[tuple[str, Say]] = [
        (f"ER@{k} of the target, last round (highest of all evaluations)", exposure(k)),
        (f"{metric} on the test, last round, and its change", accuracy),
    ]
    return [*tables, (DETECTION, detection)] if judges(record) else tables
