"""Short forms of a record: a line for each row with what the server can read, and shares of the ceiling."""

import math
from collections.abc import Iterable, Sequence

from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.run.assemble import method_of
from covey.run.config.schema import Config
from covey.run.config.tree import Tree
from covey.study.render.units import NOTHING, plain, size, span

from .formatting import Cell, Record, by_role, stat

READS = "the server can read"
SAID = (
    "Trials: settings that a search tried on validation. Rounds: the one that validation selected. Up and down: of"
    " one client in the whole run, in clear. Sums: the method needs only the totals. With `fleet.secure = true` a"
    " server that keeps to the protocol learns no more than these, but an exact total can still reveal single lists;"
    " without it, the server reads each upload. Where a row has both, `fleet.clear` names the single ones."
)


def reads_of(config: Config, result: Tree) -> str:
    """In words: the fields that left a device, and whether the server needs each client's or only their sum."""
    if "pooled" in config.tree:
        return "everybody's lists"
    sent = [row for row in result.get("ledger", ()) if row["step"] != "evaluate"]
    single = {
        step
        for _, step in method_of(config, Catalogue(result["dataset"]["items"])).single_readers()
    }
    said = []
    for step in ("enrol", "report", "train"):
        names = list(dict.fromkeys(_name(row) for row in sent if row["step"] == step))
        if names:
            said.append(
                f"{'single' if step in single or step == 'enrol' else 'sums of'} {', '.join(names)}"
            )
    return "; ".join(said) or "nothing"


def _name(row: Tree) -> str:
    kind, _, field = row["field"].partition("/")
    name = (
        row["field"]
        if kind not in ("update", "model")
        else "item rows"
        if field == "items"
        else "layers"
    )
    return name if row["epsilon"] == "none" else f"{name} (ε {row['epsilon']:g} per {row['unit']})"


def with_rows(record: Record, labels: Sequence[str]) -> Record:
    """The same record with the rows of these labels alone."""
    known = {row["label"]: row for row in record["rows"]}
    if missing := [label for label in labels if label not in known]:
        there = "; ".join(known)
        raise CoveyError(
            f"{record['paper']}-{record['table']} has no row {missing[0]!r}; its rows are: {there}"
        )
    return {**record, "rows": [known[label] for label in labels]}


def best(record: Record) -> Iterable[tuple[str, ...]]:
    """The head, then a short line for each row, sorted by the first metric of the first column, best first."""
    label, metric = record["columns"][0]["label"], record["metrics"][0]
    yield "", READS, metric, "rounds", "upload of a client"
    rows = [
        row for row in record["rows"] if not math.isnan(stat(row["cells"].get(label), metric).mean)
    ]
    for row in sorted(rows, key=lambda row: -stat(row["cells"][label], metric).mean):
        cell = row["cells"][label]
        _, rounds, up, _ = _cost(cell)
        yield by_role(row), plain(cell["reads"]), _figure(cell, metric), rounds, up


def families(record: Record) -> Iterable[tuple[str, ...]]:
    """The head, then a line for each row, by the first column and metric."""
    label, metric = record["columns"][0]["label"], record["metrics"][0]
    yield "", READS, metric, "trials", "rounds", "up", "down"
    for row in record["rows"]:
        if cell := row["cells"].get(label):
            yield by_role(row), plain(cell["reads"]), _figure(cell, metric), *_cost(cell)


def _figure(cell: Cell, metric: str) -> str:
    found = stat(cell, metric)
    return NOTHING if math.isnan(found.mean) else str(found)


def _cost(cell: Cell) -> tuple[str, ...]:
    trials = NOTHING if cell.get("tuned") is None else str(cell["tuned"])
    rounds = span([n for n in cell["rounds"] if n], lambda n: f"{n:,}")
    each = lambda key: size(cell[key] / cell["users"]) if cell[key] else NOTHING
    return trials, rounds, each("up_bytes"), each("down_bytes")


def shares(record: Record) -> Iterable[tuple[str, ...]]:
    """The head, then each row's last metric as a share of the ceiling's in the same column."""
    metric, labels = record["metrics"][-1], [column["label"] for column in record["columns"]]
    top = next(row for row in record["rows"] if row["role"] == "ceiling")
    yield f"{metric} over that of {plain(top['label'])}", *labels
    for row in record["rows"]:
        if row is not top:
            yield (
                by_role(row),
                *(_share(row["cells"].get(n), top["cells"].get(n), metric) for n in labels),
            )


def _share(cell: Cell | None, top: Cell | None, metric: str) -> str:
    share = stat(cell, metric).mean / stat(top, metric).mean
    return NOTHING if math.isnan(share) else f"{share:.1%}"
