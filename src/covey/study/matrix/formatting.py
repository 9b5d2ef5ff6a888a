"""A matrix in words: titles, notes, cells and summaries; its tables for terminal and docs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from covey.data.naming import named
from covey.study.render import tables, units
from covey.study.render.tables import Screen, open_table
from covey.study.render.units import brief, change, escaped, fixed, plain

Record = Mapping[str, Any]
Cell = Mapping[str, Any]
Format = Callable[[Record, Cell], str]
DETECTION = "recall, precision of filters; rows with too few uploads for a rule"
WIDTH = 80


class DefenceSummary(NamedTuple):
    """A defence under its strongest attack, and its cost without one."""

    defence: str
    worst: float | None  # the highest ER of all evaluations, under the strongest attack
    attack: str  # the strongest attack
    accuracy: Mapping[str, Any]  # without an attack
    cost: float | None  # the share of the accuracy that the defence costs
    least: float | None  # the lowest accuracy under any attack


def title(record: Record) -> str:
    counts = ", ".join(units.many(len(record[f"{of}s"]) - 1, of) for of in ("attack", "defence"))
    return f"{plain(record['method'])} on {plain(record['dataset'])}: {counts}"


def setting(record: Record) -> str:
    """Describe attackers, targets and the length of the runs."""
    pushed = []
    for target in record["targets"]:
        own = target.get("id")  # older records have none
        name = named(target["item"], own if own is None else plain(own), plain(target["title"]))
        who = f"{target['users']:,} users have" if target["users"] else "nobody has"
        pushed.append(f"{name}, which {who} in training")
    unit = "passes over all clients" if record["unit"] == "pass" else "rounds"
    seeds = f", seeds {', '.join(map(str, record['seeds']))}" if len(record["seeds"]) > 1 else ""
    return (
        f"{record['attackers']:,} attackers beside {record['users']:,} users,"
        f" {record['items']:,} items; target: {'; '.join(pushed)}; {record['rounds']} {unit}{seeds}"
    )


def labels(record: Record, of: str) -> list[str]:
    return [part["label"] for part in record[of]]


def why_not(cell: Cell) -> str:
    """Return why a cell has no figure, or "" if it has."""
    return "" if cell["seeds"] else plain(cell["errors"][0]["error"])


def reasons(record: Record) -> dict[str, int]:
    """Number the reasons why cells have no figure."""
    found = dict.fromkeys(why for _, _, cell in cells(record) if (why := why_not(cell)))
    return {why: number for number, why in enumerate(found, 1)}


def notes(record: Record) -> list[str]:
    """Explain the numbers of missing cells, and name seeds that failed where others did not."""
    out = [f"✗{number} {why}" for why, number in reasons(record).items()]
    for attack, defence, cell in cells(record):
        for error in cell["errors"] if cell["seeds"] else ():
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


def exposure(k: int) -> Format:
    """Format ER as 0.059 (1.000): after the last round, and the highest if that is more."""

    def fmt(record: Record, cell: Cell) -> str:
        last, most = (cell[when][f"er@{k}"] for when in ("last", "highest"))
        higher = last["mean"] is not None and f"{most['mean']:.3f}" != f"{last['mean']:.3f}"
        return spread(last, 3) + (f" ({most['mean']:.3f})" if higher else "")

    return fmt


def accuracy(record: Record, cell: Cell) -> str:
    """Format accuracy and its change, as 0.0429 -17%."""
    part = share_lost(record, cell)
    return spread(cell["last"][record["metric"]], 4) + ("" if part is None else f" {change(-part)}")


def share_lost(record: Record, cell: Cell) -> float | None:
    """Return the cost as a share of the accuracy without attack and defence."""
    _, _, clean = next(cells(record))
    whole, cost = clean["last"][record["metric"]]["mean"], cell["last"]["cost"]["mean"]
    return None if cost is None or not whole or cell is clean else cost / whole


def detection(record: Record, cell: Cell) -> str:
    """Format recall and precision of a filter, or the rows for which a rule had too few uploads."""
    fell = [n for n in cell["fell_back"] if n is not None]
    if fell:
        return f"{sum(fell) / len(fell):,.0f} rows"
    found = [cell[name]["mean"] for name in ("recall", "precision")]
    return units.NOTHING if found[0] is None else ", ".join(map(units.percent, found))


def has_detection(record: Record) -> bool:
    """Return whether any defence excluded clients or had too few uploads for its rule."""
    return any(any(cell["left_out"]) or any(cell["fell_back"]) for _, _, cell in cells(record))


def grid(
    record: Record, fmt: Format, hole: Callable[[str, str], str] = lambda number, why: number
) -> list[list[str]]:
    """Return a row for each attack; `hole` shows a missing cell by its reason and its number."""
    numbers, rows = reasons(record), {attack: [attack] for attack in labels(record, "attacks")}
    for attack, _, cell in cells(record):
        why = why_not(cell)
        rows[attack].append(hole(f"✗{numbers[why]}", why) if why else fmt(record, cell))
    return list(rows.values())


def defence_summaries(record: Record, k: int) -> list[DefenceSummary]:
    """Summarise each defence under the attack that is strongest against it."""
    er, out = f"er@{k}", []
    for defence in labels(record, "defences"):
        clean, *others = [(a, c) for a, of, c in cells(record) if of == defence]
        under = {a: c for a, c in others if c["highest"][er]["mean"] is not None}
        height = {a: (c["highest"][er]["mean"], c["last"][er]["mean"]) for a, c in under.items()}
        worst = max(height, key=lambda a: height[a], default="")
        most = height[worst][0] if worst else None
        least = min((c["last"][record["metric"]]["mean"] for c in under.values()), default=None)
        figure, cost = clean[1]["last"][record["metric"]], share_lost(record, clean[1])
        out.append(DefenceSummary(defence, most, worst, figure, cost, least))
    return out


def shown(record: Record, k: int) -> list[tuple[str, Format]]:
    """Return headings and formats of the tables of a record: exposure, accuracy, detection."""
    tables: list[tuple[str, Format]] = [
        (f"ER@{k} of the target, last round (highest of all evaluations)", exposure(k)),
        (f"{record['metric']} on the test, last round, and its change", accuracy),
    ]
    return [*tables, (DETECTION, detection)] if has_detection(record) else tables


def terminal(record: Record, k: int = 10) -> str:
    """Return tables of exposure and accuracy, and of filters and rules if there are any."""
    screen = Screen(WIDTH)
    screen.show(title(record), setting(record))
    for name, fmt in shown(record, k):
        screen.show(f"\n{name}")
        screen.show(*_tables(record, grid(record, fmt)), end="")
    screen.show(*(f"\n{note}" for note in notes(record)), end="")
    return str(screen)


def _tables(record: Record, lines: Sequence[Sequence[str]]) -> Iterator[Table]:
    """Split a table into tables of as many columns as fit."""
    head = ["", *labels(record, "defences")]
    wide = [max(len(line[i]) for line in (head, *lines)) + 2 for i in range(len(head))]
    at = 1
    while at < len(head):
        end = at + 1
        while end < len(head) and sum(wide[at : end + 1]) + wide[0] <= WIDTH:
            end += 1
        rows = ([line[0], *line[at:end]] for line in lines)
        yield open_table("", *head[at:end], rows=rows)
        at = end


def markdown(record: Record, k: int = 10) -> str:
    """Return the same tables for a page of the docs."""
    parts = [f"**{escaped(title(record))}** ({escaped(setting(record))})"]
    for name, fmt in shown(record, k):
        parts.append(tables.markdown([name, *labels(record, "defences")], grid(record, fmt)))
    lines = [f"- {escaped(note)}" for note in notes(record)]
    parts += ["\n".join(lines)] if lines else []
    taken = [s for _, _, cell in cells(record) for s in cell["cpu_seconds"]["values"]]
    cost = f"{len(taken)} runs, {sum(taken) / 60:.1f} CPU minutes in all"
    parts.append(f"{units.code(record['command'])}, {units.origin(record)}: {cost}.")
    return "\n\n".join(parts)
