"""A matrix in a terminal of 100 columns, and as Markdown for the docs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from covey.data.naming import named
from covey.study.papers.formatting import plain
from covey.study.papers.terminal import escaped

Record = Mapping[str, Any]
Cell = Mapping[str, Any]
Say = Callable[[Record, Cell], str]
WIDTH = 100
NOTHING = "–"
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
        f"{record['attackers']:,} attackers beside {record['users']:,} users, {record['items']:,} items;"
        f" target: {pushed}; {record['rounds']} {unit}{seeds}"
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
            broken = (f"seed {error['seed']} failed: {plain(error['error'])}" for error in cell["errors"])
            out += [f"{attack}, {defence}, {text}" for text in broken]
    return out


def cells(record: Record) -> Iterator[tuple[str, str, Cell]]:
    for attack in labels(record, "attacks"):
        for defence in labels(record, "defences"):
            yield attack, defence, record["cells"][attack][defence]


def spread(stat: Record, digits: int) -> str:
    if stat["mean"] is None:
        return NOTHING
    small = "" if stat["spread"] is None else f"±{stat['spread']:.{digits}f}".replace("±0.", "±.")
    return f"{stat['mean']:.{digits}f}{small}"


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
    return spread(cell["last"][record["metric"]], 4) + ("" if part is None else f" {signed(-part)}")


def signed(share: float) -> str:
    """-17%, and no sign where it rounds to nothing."""
    whole = round(100 * share)
    return f"{whole:+d}%" if whole else "0%"


def share_lost(record: Record, cell: Cell) -> float | None:
    """Of the accuracy that the method has where nobody attacks or defends."""
    clean = _clean(record)["last"][record["metric"]]["mean"]
    cost = cell["last"]["cost"]["mean"]
    return None if cost is None or not clean or cell is _clean(record) else cost / clean


def _clean(record: Record) -> Cell:
    first = record["cells"][labels(record, "attacks")[0]]
    return first[labels(record, "defences")[0]]


def detection(record: Record, cell: Cell) -> str:
    """Recall and precision of a filter, or rows that a rule had too few uploads for; nothing where there is neither."""
    fell = [n for n in cell["fell_back"] if n is not None]
    if fell:
        return f"{sum(fell) / len(fell):,.0f} rows"
    return NOTHING if cell["recall"]["mean"] is None else f"{cell['recall']['mean']:.0%}, {_percent(cell)}"


def _percent(cell: Cell) -> str:
    """A filter that left out nobody has no precision."""
    mean = cell["precision"]["mean"]
    return NOTHING if mean is None else f"{mean:.0%}"


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
    """Each defence under the attack that is strongest against it, and what it costs where there is none."""
    nobody, *others = labels(record, "attacks")
    out = []
    for defence in labels(record, "defences"):
        calm = record["cells"][nobody][defence]
        under = {a: c for a in others if (c := record["cells"][a][defence])["highest"][f"er@{k}"]["mean"] is not None}
        height = {a: (c["highest"][f"er@{k}"]["mean"], c["last"][f"er@{k}"]["mean"]) for a, c in under.items()}
        worst = max(height, key=lambda a: height[a], default="")
        er = height[worst][0] if worst else None
        least = min((c["last"][record["metric"]]["mean"] for c in under.values()), default=None)
        figure = calm["last"][record["metric"]]
        out.append(Sight(defence, er, worst, figure, share_lost(record, calm), least))
    return out


def terminal(record: Record, k: int = 10) -> str:
    """One table of exposure, one of accuracy, and what filters and rules say where there are some."""
    text = StringIO()
    console = Console(file=text, width=WIDTH, markup=False, emoji=False, highlight=False)  # names stand as they are
    console.print(title(record))
    console.print(setting(record))
    for name, say in _shown(record, k):
        console.print(f"\n{name}")
        for table in _tables(record, grid(record, say)):
            console.print(table, end="")
    console.print(*[f"\n{note}" for note in notes(record)], sep="")
    return text.getvalue().rstrip()


def _shown(record: Record, k: int) -> list[tuple[str, Say]]:
    metric = record["metric"]
    shown: list[tuple[str, Say]] = [
        (f"ER@{k} of the target, last round (highest of all evaluations)", exposure(k)),
        (f"{metric} on the test, last round, and its change", accuracy),
    ]
    return [*shown, (DETECTION, detection)] if judges(record) else shown


def _tables(record: Record, lines: Sequence[Sequence[str]]) -> Iterator[Table]:
    """As many columns beside each other as fit."""
    head = ["", *labels(record, "defences")]
    wide = [max(len(line[i]) for line in (head, *lines)) + 2 for i in range(len(head))]
    at = 1
    while at < len(head):
        end = at + 1
        while end < len(head) and sum(wide[at : end + 1]) + wide[0] <= WIDTH:
            end += 1
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("", no_wrap=True)
        for label in head[at:end]:
            table.add_column(label, justify="right", no_wrap=True)
        for line in lines:
            table.add_row(line[0], *line[at:end])
        yield table
        at = end


def markdown(record: Record, k: int = 10) -> str:
    """The same for a page of the docs."""
    parts = [f"**{escaped(title(record))}** ({escaped(setting(record))})"]
    for name, say in _shown(record, k):
        head = [name, *labels(record, "defences")]
        rule = ["---", *["---:"] * (len(head) - 1)]
        rows = (head, rule, *grid(record, say))
        parts.append("\n".join(f"| {' | '.join(map(escaped, row))} |" for row in rows))
    said = [f"- {escaped(note)}" for note in notes(record)]
    parts += ["\n".join(said)] if said else []
    command = plain(record["command"]).replace("`", "'")
    taken = [s for _, _, cell in cells(record) for s in cell["cpu_seconds"]["values"]]
    cost = f"{len(taken)} runs, {sum(taken) / 60:.1f} CPU minutes in all"
    parts.append(f"`{command}`, commit {plain(record['commit'])}, {plain(record['machine'])}: {cost}.")
    return "\n\n".join(parts)
