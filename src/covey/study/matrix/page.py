"""A matrix as one page: exposure and accuracy in colours, curves over the rounds, item maps."""

from collections.abc import Callable, Sequence

from covey.core import toml_writer
from covey.study.render import page_shell
from covey.study.render.charts import Line, curves
from covey.study.render.markup import Child, Html, join, tag
from covey.study.render.page_shell import figure, folded, gallery, legend, listed, section
from covey.study.render.tables import scrolling, table
from covey.study.render.units import NOTHING, Point, change, fixed, origin, plain, points

from . import maps
from .formatting import (
    Cell,
    Record,
    Say,
    Sight,
    accuracy,
    cells,
    detection,
    grid,
    judges,
    labels,
    notes,
    reasons,
    setting,
    share_lost,
    sights,
    spread,
    title,
    why_not,
)

QUIET = 0.01  # an ER that needs no picture
DOTS = 1600  # of ordinary items on all maps together, so that the page stays small
Heated = Callable[[Cell], Html]


Drawn = tuple[maps.Items, Sequence[maps.Row]]  # what is marked, and maps in common directions


def page(record: Record, k: int = 10, drawn: Drawn | None = None) -> str:
    """Return one self-contained page; without `drawn` it has no maps."""
    where = join(tag("code", plain(record["command"])), f", {origin(record)}.")
    return page_shell.page(
        title(record),
        tag("p", setting(record), ".", class_="lead"),
        _verdict(record, k),
        _exposure(record, k),
        _accuracy(record),
        _detection(record),
        _curves(record, k),
        _maps(*drawn) if drawn and drawn[1] else None,
        _broken(record),
        _cost(record),
        _parts(record),
        tag("p", where, class_="aside where"),
    )


def _verdict(record: Record, k: int) -> Html | None:
    """The defences in one table, and in one sentence what nothing at all would mean."""
    found = sights(record, k)
    if len(record["attacks"]) < 2 or found[0].worst is None:
        return None
    bare = found[0]
    seen = f"{bare.worst:.1%} of the users who do not have the target see it among their best {k}"
    said = tag(
        "p",
        "Without a defence the strongest attack is ",
        tag("b", bare.attack),
        f": at its height {seen}.",
        class_="verdict",
    )
    rows: list[list[Child]] = []
    for one in found:  # as an operator chooses: what it holds, and what it costs
        cost = NOTHING if one.cost is None else change(-one.cost)
        figures = [fixed(one.worst, 3), fixed(one.accuracy["mean"]), cost, fixed(one.least)]
        rows.append([one.defence, one.attack if one.worst else NOTHING, *figures])
    calm = f"{record['metric']}, nobody attacks"
    head = ["defence", "strongest attack", f"highest ER@{k}", calm]
    head += ["change", "lowest under attack"]
    return join(said, _holder(found[1:]), table(head, rows, left=2))


def _holder(found: Sequence[Sight]) -> Html | None:
    """The defence whose worst case is best; of equals, the one that costs least."""
    known = [
        (round(one.worst, 3), one.cost, one)
        for one in found
        if one.worst is not None  # by an attack that was run
        and one.cost is not None
    ]
    if not known:
        return None
    worst, cost, one = min(known, key=lambda place: place[:2])
    seen = "hardly anybody sees the target"
    if worst:
        seen = f"at most {worst:.1%} see the target (under {one.attack})"
    said = f": {seen}, and accuracy changes by {change(-cost)} where nobody attacks."
    lead = "The defence that holds best is "
    return tag("p", lead, tag("b", one.defence), said, class_="verdict")


def _matrix(record: Record, name: str, one: Heated) -> Html:
    """A row for each attack, a column for each defence; `one` says what is in a cell."""
    across = labels(record, "defences")
    body = []
    for attack in labels(record, "attacks"):
        found = (record["cells"][attack][defence] for defence in across)
        line = (_hole(record, cell) or one(cell) for cell in found)
        body.append(tag("tr", tag("th", attack, scope="row"), *line))
    head = tag("tr", tag("th"), *(tag("th", label, scope="col") for label in across))
    whole = tag("table", tag("thead", head), tag("tbody", *body), class_="matrix")
    return scrolling(whole, name)


def _heat(text: str, small: str, share: float, kind: str) -> Html:
    """A cell whose colour says how bad it is, from 0 to 1; the figure says it too."""
    inner = join(text, tag("small", small) if small else None)
    full = f"--s:{100 * min(max(share, 0.0), 1.0):.0f}%"
    return tag("td", inner, class_=f"heat {kind}", style=full)


def _hole(record: Record, cell: Cell) -> Html | None:
    why = why_not(cell)
    return tag("td", f"✗{reasons(record)[why]}", tag("small", why), class_="hole") if why else None


def _exposure(record: Record, k: int) -> Html:
    er = f"er@{k}"

    def one(cell: Cell) -> Html:
        last, share = cell["last"], cell["last"][er]["mean"]
        if share is None:
            return tag("td", NOTHING)
        others = [f"@{n} {fixed(last[f'er@{n}']['mean'], 2)}" for n in (5, 10, 20) if n != k]
        rank = last["rank"]["mean"]
        lines = [
            " · ".join(others),
            "" if rank is None else f"rank {rank:,.0f}",
            f"highest {fixed(cell['highest'][er]['mean'], 3)}",
            f"selected {fixed(cell['selected'][er]['mean'], 3)}",
        ]
        return _heat(spread(last[er], 3), "\n".join(lines), share, "er")

    note = (
        f"ER@{k}: of the honest users who do not have the target, the share that sees it among"
        f" their best {k}. Large: after the last round. Small: the other cut-offs, the mean rank of"
        " the target, the highest ER of all evaluations, and ER at the round that validation"
        " selects."
    )
    return section("Exposure of the target", tag("p", note), _matrix(record, f"ER@{k}", one))


def _accuracy(record: Record) -> Html:
    metric = record["metric"]

    def one(cell: Cell) -> Html:
        lost = share_lost(record, cell)
        best = f"selected {fixed(cell['selected'][metric]['mean'])}"
        return _heat(accuracy(record, cell), best, 0.0 if lost is None else 2 * lost, "cost")

    note = (
        f"{metric} of the honest users on the test after the last round, and how much more or less"
        " that is than where nobody attacks and nothing defends; the colour is full at half of it"
        " lost. Small: at the round that validation selects."
    )
    return section("Accuracy", tag("p", note), _matrix(record, metric, one))


def _detection(record: Record) -> Html | None:
    if not judges(record):
        return None
    note = (
        "Defences that leave out clients: recall, the share of the attackers' uploads that they"
        " left out, and precision, the attackers' share of all that they left out. Rules: rows of"
        " items, over the whole run, that too few clients had sent to judge by; there the mean was"
        " taken."
    )
    heading = "Detection, and where rules had nothing to go by"
    return section(heading, tag("p", note), _plain(record, detection))


def _plain(record: Record, say: Say) -> Html:
    return table(["", *labels(record, "defences")], grid(record, say))


def _curves(record: Record, k: int) -> Html:
    """A picture for each attack, a line for each defence."""
    figures, quiet = [], []
    for attack in labels(record, "attacks"):
        lines = []
        for i, defence in enumerate(labels(record, "defences")):
            rounds = _points(record["cells"][attack][defence], f"er@{k}")
            lines += [Line(defence, rounds, None, i)] if rounds else []
        if max((p.high for line in lines for p in line.points), default=0.0) < QUIET:
            quiet.append(attack)
        else:
            figures.append(figure(attack, curves(f"ER@{k}, {attack}", lines, {}, 1.0)))
    keys = legend((defence, i) for i, defence in enumerate(labels(record, "defences")))
    band = " Bands span the lowest and highest seed." if len(record["seeds"]) > 1 else ""
    flat = f" Under {QUIET:.0%} throughout, and not drawn: {', '.join(quiet)}." if quiet else ""
    note = tag("p", f"ER@{k} of the target at every evaluation.{band}{flat}")
    shown = [keys, gallery(figures)] if figures else []
    return section("Round by round", note, *shown)


def _points(cell: Cell, name: str) -> list[Point]:
    """Over the rounds that all seeds measured."""
    found: dict[int, list[float]] = {}
    for curve in cell["curve"]:
        for at, value in zip(curve["round"], curve[name]):
            if value is not None:
                found.setdefault(at, []).append(value)
    return points(found, len(cell["curve"]))


def _maps(items: maps.Items, rows: Sequence[maps.Row]) -> Html:
    every = [one for _, some in rows for one in some]
    most = max(DOTS // len(every), 120)
    shown: list[Child] = []
    for attack, some in rows:
        shown += [tag("h3", attack), maps.row(some, items, maps.frame(some, items), most)]
    note = (
        "The item tables after the last round (first seed), all in the two directions that hold"
        f" most of the variance where nobody attacks ({every[0].explained:.0%} of it). With each"
        " attack: the defence under which the target is seen least. The maps of a row have one"
        " scale; a ring at the edge lies beyond it. Point at a dot for its title."
    )
    return section("Where the items are", tag("p", note), maps.key(items), *shown)


def _broken(record: Record) -> Html | None:
    said = notes(record)
    return section("What could not be run", listed(said, "notes")) if said else None


def _cost(record: Record) -> Html:
    total = sum(sum(cell["cpu_seconds"]["values"]) for _, _, cell in cells(record))
    summary = f"CPU seconds of a run; {total:,.0f} for all of them"
    return section("What it took", folded(summary, _plain(record, _seconds)))


def _seconds(record: Record, cell: Cell) -> str:
    return fixed(cell["cpu_seconds"]["mean"], 1)


def _parts(record: Record) -> Html:
    """Every attack and defence with the sections that it was run with."""
    shown = (
        folded(
            join(part["label"], tag("small", f" {part['title']}")),
            tag("pre", toml_writer.dumps(part["sections"])),
        )
        for of in ("attacks", "defences")
        for part in record[of]
        if part["sections"]
    )
    return section("Attacks and defences", *shown)
