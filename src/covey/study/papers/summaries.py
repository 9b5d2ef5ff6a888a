"""Short forms of a record: what the server can read in each row, and shares of the ceiling."""

import math
from collections.abc import Iterable, Sequence

from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.run.assemble import method_of
from covey.run.config.schema import Config
from covey.run.config.tree import Tree
from covey.study.render.units import NOTHING, plain

from .cells import Cell, Record, by_role, stat
from .costs import COSTS, cost_of

READS = "the server can read"
SAID = (
    "Trials: settings that a search tried on validation. Rounds: the one that validation selected."
    " Up and down: of one client in the whole run, in clear. Sums: the method needs only the"
    " totals. With `fleet.secure = true` a server that keeps to the protocol learns no more than"
    " these, but an exact total can still reveal single lists; without it, the server reads each"
    " upload. Where a row has both, `fleet.clear` names the single ones."
)


def reads_of(config: Config, result: Tree) -> str:
    """Name the fields that leave a device, and whether the server needs single ones or sums."""
    if "pooled" in config.tree:
        return "everybody's lists"
    sent = [row for row in result.get("ledger", ()) if row["step"] != "evaluate"]
    method = method_of(config, Catalogue(result["dataset"]["items"]))
    single = {step for _, step in method.single_readers()} | {"enrol"}
    parts = []
    for step in ("enrol", "report", "train"):
        if names := dict.fromkeys(_name(row) for row in sent if row["step"] == step):
            parts.append(f"{'single' if step in single else 'sums of'} {', '.join(names)}")
    return "; ".join(parts) or "nothing"


def _name(row: Tree) -> str:
    kind, _, field = row["field"].partition("/")
    name = row["field"]
    if kind in ("update", "model"):
        name = "item rows" if field == "items" else "layers"
    return name if row["epsilon"] == "none" else f"{name} (ε {row['epsilon']:g} per {row['unit']})"


def with_rows(record: Record, labels: Sequence[str]) -> Record:
    """Return the record with only the rows of these labels."""
    known = {row["label"]: row for row in record["rows"]}
    if missing := [label for label in labels if label not in known]:
        wrong = f"{record['paper']}-{record['table']} has no row {missing[0]!r}"
        raise CoveyError(f"{wrong}; its rows are: {'; '.join(known)}")
    return {**record, "rows": [known[label] for label in labels]}


def best(record: Record) -> Iterable[tuple[str, ...]]:
    """Yield the head, then a short line for each row, best first.

    Rows are sorted by the first metric in the first column.
    """
    label, metric = record["columns"][0]["label"], record["metrics"][0]
    yield "", READS, metric, "rounds", "upload of a client"
    means = [(stat(row["cells"].get(label), metric).mean, row) for row in record["rows"]]
    known = [(mean, row) for mean, row in means if not math.isnan(mean)]
    for _, row in sorted(known, key=lambda pair: -pair[0]):
        cell = row["cells"][label]
        _, rounds, up, _ = _cost(cell)
        yield by_role(row), plain(cell["reads"]), _figure(cell, metric), rounds, up


def families(record: Record) -> Iterable[tuple[str, ...]]:
    """Yield the head, then a line for each row, by the first column and metric."""
    label, metric = record["columns"][0]["label"], record["metrics"][0]
    yield "", READS, metric, "trials", "rounds", "up", "down"
    for row in record["rows"]:
        if cell := row["cells"].get(label):
            yield by_role(row), plain(cell["reads"]), _figure(cell, metric), *_cost(cell)


def _figure(cell: Cell, metric: str) -> str:
    found = stat(cell, metric)
    return NOTHING if math.isnan(found.mean) else str(found)


def _cost(cell: Cell) -> tuple[str, ...]:
    costs = dict(zip(COSTS, cost_of([cell])))
    return tuple(costs[name] for name in ("trials", "rounds", "up", "down"))


def shares(record: Record) -> Iterable[tuple[str, ...]]:
    """Yield the head, then each row's last metric as a share of the ceiling in the column."""
    metric, labels = record["metrics"][-1], [column["label"] for column in record["columns"]]
    top = next(row for row in record["rows"] if row["role"] == "ceiling")
    yield f"{metric} over that of {plain(top['label'])}", *labels
    for row in record["rows"]:
        if row is not top:
            pairs = ((row["cells"].get(name), top["cells"].get(name)) for name in labels)
            yield by_role(row), *(_share(cell, above, metric) for cell, above in pairs)


def _share(cell: Cell | None, top: Cell | None, metric: str) -> str:
    share = stat(cell, metric).mean / stat(top, metric).mean
    return NOTHING if math.isnan(share) else f"{share:.1%}"
