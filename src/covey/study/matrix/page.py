"""A matrix as a page: exposure and accuracy in colours, curves over the rounds, item maps."""

from collections.abc import Sequence

from covey.core import toml_writer
from covey.study.render import markup, wording
from covey.study.render.charts import Line, curves
from covey.study.render.markup import Child, Html, figure, gallery, join, legend, section, tag
from covey.study.render.tables import scrolling, table
from covey.study.render.units import NOTHING, change, fixed, origin, plain, points

from . import formatting
from . import map_page as maps
from .formatting import Cell, DefenceSummary, Format, Record, labels, notes, spread

QUIET = 0.01  # a lower ER is not drawn
DOTS = 1600  # unmarked items on all maps together, which keeps the page small
Drawn = tuple[maps.Items, Sequence[maps.Row]]  # marked items, and maps in common directions


def page(record: Record, k: int = 10, drawn: Drawn | None = None) -> str:
    """Return one self-contained page; without `drawn` it has no maps."""
    where = join(tag("code", plain(record["command"])), f", {origin(record)}.")
    failed = notes(record)
    total = sum(sum(cell["cpu_seconds"]["values"]) for _, _, cell in formatting.cells(record))
    summary = f"CPU seconds of a run; {total:,.0f} for all of them"

    def seconds(_: Record, cell: Cell) -> str:
        return fixed(cell["cpu_seconds"]["mean"], 1)

    return markup.page(
        formatting.title(record),
        tag("p", formatting.setting(record), ".", class_="lead"),
        _verdict(record, k),
        _exposure(record, k),
        _accuracy(record),
        _detection(record),
        _curves(record, k),
        _maps(*drawn) if drawn and drawn[1] else None,
        section("Failed runs", markup.listed(failed, "notes")) if failed else None,
        section("Cost", markup.folded(summary, _plain(record, seconds))),
        _parts(record),
        tag("p", where, class_="aside where"),
    )


def _verdict(record: Record, k: int) -> Html | None:
    """Compare the defences in a table, and describe the strongest attack without a defence."""
    found = formatting.defence_summaries(record, k)
    if found[0].worst is None:
        return None
    worst = f": at its maximum, {found[0].worst:.1%} of the users who do not have the target"
    parts = ["Without a defence, the strongest attack is ", tag("b", found[0].attack), worst]
    lead = tag("p", *parts, f" see it among their best {k}.", class_="verdict")
    rows: list[list[Child]] = []
    for one in found:
        cost = NOTHING if one.cost is None else change(-one.cost)
        figures = [fixed(one.worst, 3), fixed(one.accuracy["mean"]), cost, fixed(one.least)]
        rows.append([one.defence, one.attack if one.worst else NOTHING, *figures])
    head = ["defence", "strongest attack", f"highest ER@{k}", f"{record['metric']} without attack"]
    head += ["change", "lowest under attack"]
    return join(lead, _best(found[1:]), table(head, rows, left=2))


def _best(found: Sequence[DefenceSummary]) -> Html | None:
    """Name the defence with the best worst case; of equals, the one that costs least."""
    figures = ((one.worst, one.cost, one) for one in found)
    known = [(round(w, 3), c, one) for w, c, one in figures if w is not None and c is not None]
    if not known:
        return None
    worst, cost, one = min(known, key=lambda place: place[:2])
    seen = "hardly any user sees the target"
    if worst:
        seen = f"at most {worst:.1%} of the users see the target (under {one.attack})"
    text = f": {seen}, and without an attack accuracy changes by {change(-cost)}."
    return tag("p", "The best defence is ", tag("b", one.defence), text, class_="verdict")


def _matrix(record: Record, name: str, one: Format) -> Html:
    """Show a row for each attack and a column for each defence; `one` returns a cell."""

    def hole(number: str, why: str) -> Html:
        return tag("td", number, tag("small", why), class_="hole")

    rows = formatting.grid(record, one, hole)
    body = (tag("tr", tag("th", attack, scope="row"), *line) for attack, *line in rows)
    across = (tag("th", label, scope="col") for label in labels(record, "defences"))
    head = tag("tr", tag("th"), *across)
    return scrolling(tag("table", tag("thead", head), tag("tbody", *body), class_="matrix"), name)


def _heat(text: str, small: str, share: float, kind: str) -> Html:
    """Return a cell with a colour by `share`, from 0 (good) to 1 (bad)."""
    inner = join(text, tag("small", small) if small else None)
    full = f"--s:{100 * min(max(share, 0.0), 1.0):.0f}%"
    return tag("td", inner, class_=f"heat {kind}", style=full)


def _exposure(record: Record, k: int) -> Html:
    er = f"er@{k}"

    def one(_: Record, cell: Cell) -> Html:
        last, share, rank = cell["last"], cell["last"][er]["mean"], cell["last"]["rank"]["mean"]
        if share is None:
            return tag("td", NOTHING)
        others = [f"@{n} {fixed(last[f'er@{n}']['mean'], 2)}" for n in (5, 10, 20) if n != k]
        lines = [
            " · ".join(others),
            "" if rank is None else f"rank {rank:,.0f}",
            f"highest {fixed(cell['highest'][er]['mean'], 3)}",
            f"selected {fixed(cell['selected'][er]['mean'], 3)}",
        ]
        return _heat(spread(last[er], 3), "\n".join(lines), share, "er")

    note = wording.note("matrix exposure").format(k=k)
    return section("Exposure of the target", tag("p", note), _matrix(record, f"ER@{k}", one))


def _accuracy(record: Record) -> Html:
    metric = record["metric"]

    def one(_: Record, cell: Cell) -> Html:
        lost = formatting.share_lost(record, cell) or 0.0
        best = f"selected {fixed(cell['selected'][metric]['mean'])}"
        return _heat(formatting.accuracy(record, cell), best, 2 * lost, "cost")

    note = wording.note("matrix accuracy").format(metric=metric)
    return section("Accuracy", tag("p", note), _matrix(record, metric, one))


def _detection(record: Record) -> Html | None:
    if not formatting.has_detection(record):
        return None
    note = wording.note("matrix detection")
    heading = "Detection, and rows with too few uploads"
    return section(heading, tag("p", note), _plain(record, formatting.detection))


def _plain(record: Record, fmt: Format) -> Html:
    return table(["", *labels(record, "defences")], formatting.grid(record, fmt))


def _curves(record: Record, k: int) -> Html:
    """Draw a picture for each attack with a line for each defence."""
    figures, quiet = [], []
    for attack in labels(record, "attacks"):
        lines = []
        for i, defence in enumerate(labels(record, "defences")):
            every = record["cells"][attack][defence]["curve"]  # of each seed
            found = (pair for one in every for pair in zip(one["round"], one[f"er@{k}"]))
            rounds = points(found, len(every))
            lines += [Line(defence, rounds, None, i)] if rounds else []
        if max((p.high for line in lines for p in line.points), default=0.0) < QUIET:
            quiet.append(attack)
        else:
            figures.append(figure(attack, curves(f"ER@{k}, {attack}", lines, {}, 1.0)))
    keys = legend((defence, i) for i, defence in enumerate(labels(record, "defences")))
    band = " Bands span the lowest and highest seed." if len(record["seeds"]) > 1 else ""
    flat = f" Always under {QUIET:.0%}, and not drawn: {', '.join(quiet)}." if quiet else ""
    note = tag("p", f"ER@{k} of the target at every evaluation.{band}{flat}")
    shown = [keys, gallery(figures)] if figures else []
    return section("Round by round", note, *shown)


def _maps(items: maps.Items, rows: Sequence[maps.Row]) -> Html:
    every = [one for _, some in rows for one in some]
    most = max(DOTS // len(every), 120)
    shown: list[Child] = []
    for attack, some in rows:
        shown += [tag("h3", attack), maps.row(some, items, maps.frame(some, items), most)]
    note = wording.note("matrix maps").format(explained=every[0].explained)
    return section("Item maps", tag("p", note), maps.key(items), *shown)


def _parts(record: Record) -> Html:
    """Show the sections of the configuration of every attack and defence."""
    shown = []
    for part in (part for of in ("attacks", "defences") for part in record[of] if part["sections"]):
        name = join(part["label"], tag("small", f" {part['title']}"))
        shown.append(markup.folded(name, tag("pre", toml_writer.dumps(part["sections"]))))
    return section("Attacks and defences", *shown)
