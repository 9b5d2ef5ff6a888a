"""Row-wise defences on one batch of FedNCF, against training and against loops over items.

The batch has 256 clients with about 600 rows each. The loop collects an item's rows client by
client and applies a rule number by number, as published code does, for a sample of the items, and
its time is scaled up. The shorter loop has rows sorted by item, and applies NumPy to all rows of an
item.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from common import Engine, commit, config_of, cpu_seconds, machine, say, write
from covey.contract.aggregation import Combine
from covey.contract.fleet import Request
from covey.contract.mechanism import Mechanism
from covey.core.messages import Download, Round, Sent, Upload
from covey.core.ragged import Rows
from covey.defenses.bulyan import Bulyan
from covey.defenses.clip import ClipRows
from covey.defenses.clip_clients import ClipClients
from covey.defenses.hics import HiCS
from covey.defenses.krum import Krum
from covey.defenses.krum_mean import KrumMean
from covey.defenses.median import Median
from covey.defenses.multi_krum import MultiKrum
from covey.defenses.support import MinimumSupport
from covey.defenses.trimmed import TrimmedMean
from covey.defenses.union import Union
from covey.engine.rounds import view

Array = NDArray[np.float32]
Rule = Callable[[Sequence[Array]], Array]
SHARE, EVERY = 0.1, 25
SIZES = ("data.users=256", "data.items=3706", "data.mean_items=165.6")
AT_LEAST = 50


def by_number(rule: Callable[[Array], float]) -> Rule:
    return lambda rows: np.array(
        [rule(np.array([row[d] for row in rows])) for d in range(len(rows[0]))]
    )


def trim(x: Array) -> float:
    b = max(1, int(SHARE * len(x)))
    return float(np.mean(np.sort(x)[b:-b])) if len(x) > 2 * b else float(np.mean(x))


def scores(rows: Sequence[Array]) -> list[float]:
    k = len(rows) - int(SHARE * len(rows)) - 2
    return [
        sum(sorted(float(((a - b) ** 2).sum()) for b in rows if b is not a)[: max(k, 1)])
        for a in rows
    ]


def krum(rows: Sequence[Array]) -> Array:
    return rows[int(np.argmin(scores(rows)))]


def krum_mean(rows: Sequence[Array]) -> Array:
    middle = np.mean(rows, axis=0)
    return rows[int(np.argmin([np.linalg.norm(row - middle) for row in rows]))]


def multi_krum(rows: Sequence[Array], less: int = 1) -> Array:
    many = len(rows) - less * int(SHARE * len(rows))
    return np.mean([rows[i] for i in np.argsort(scores(rows))[: max(many, 1)]], axis=0)


def bulyan(rows: Sequence[Array]) -> Array:
    many = max(len(rows) - 2 * int(SHARE * len(rows)), 1)
    return by_number(trim)([rows[i] for i in np.argsort(scores(rows))[:many]])


def clip(rows: Sequence[Array]) -> Array:
    return np.mean(
        [row * min(1.0, 1.0 / max(float(np.linalg.norm(row)), 1e-12)) for row in rows], axis=0
    )


LOOPS: dict[str, Rule] = {
    "median": by_number(lambda x: float(np.median(x))),
    "trimmed mean": by_number(trim),
    "Krum": krum,
    "the paper's Krum": krum_mean,
    "Multi-Krum": multi_krum,
    "Bulyan": bulyan,
    "row clipping": clip,
    "HiCS": clip,
}
SHORTER: dict[str, Rule] = {
    "median": lambda rows: np.median(rows, axis=0),
    "trimmed mean": lambda rows: (
        np.sort(rows, axis=0)[1:-1].mean(0) if len(rows) > 2 else np.mean(rows, axis=0)
    ),
}
RULES: dict[str, Combine | Mechanism] = {
    "median": Median(),
    "trimmed mean": TrimmedMean(SHARE),
    "Krum": Krum(SHARE),
    "the paper's Krum": KrumMean(),
    "Multi-Krum": MultiKrum(SHARE),
    "Bulyan": Bulyan(SHARE),
    "row clipping": ClipRows(1.0),
    "client clipping": ClipClients(1.0),
    "HiCS": HiCS(),
    "minimum support": MinimumSupport(3),
    "UNION's filter": Union(),
}


def looped(rows: Rows, rule: Rule, every: int) -> float:
    """CPU seconds of the loop over all items, from every so many-th of them."""
    lists = [x.tolist() for x in rows.items.values.split(rows.items.lengths.tolist())]
    values = [x.numpy() for x in rows.values.split(rows.items.lengths.tolist())]

    def work() -> None:
        for item in range(0, rows.height, every):
            found = [value[mine.index(item)] for mine, value in zip(lists, values) if item in mine]
            if found:
                rule(found)

    return cpu_seconds(work) * every


def sliced(rows: Rows, rule: Rule) -> float:
    """CPU seconds of a loop over items that has their rows side by side."""

    def work() -> None:
        order_T = rows.items.values.argsort(stable=True)
        flat, count = rows.values[order_T].numpy(), torch.bincount(rows.items.values).tolist()
        start = 0
        for n in count:
            if n:
                rule(flat[start : start + n])
            start += n

    return cpu_seconds(work)


def applied(engine: Engine, part: Combine | Mechanism, upload: Upload) -> Callable[[], object]:
    """The part on the item rows of an upload."""
    if isinstance(part, Combine):
        return lambda: part.combine(upload, ["items"])
    seen = view(engine.server, engine.method, part.name, Round(1, upload.ids_C))
    return lambda: part.filter_uploads(seen, upload)


def measure(repeats: int, every: int) -> dict[str, Any]:
    engine = Engine.of(config_of("fedncf", "loo-full", *SIZES))
    ids_C, sent = torch.arange(256), Download(Sent(dict(engine.server.public)))
    train = partial(engine.fleet.ask, Request("train", 1, ids_C, sent))
    upload = train()
    assert isinstance(upload, Upload)
    training = statistics.median(cpu_seconds(train) for _ in range(repeats))
    rows = upload.update["items"]
    assert isinstance(rows, Rows)
    alone = Upload(upload.ids_C, upload.weight_C, {"items": rows})
    out = {}
    for name, part in RULES.items():
        say(f"... {name}")
        work = applied(engine, part, alone)
        work()
        seconds = statistics.median(cpu_seconds(work) for _ in range(repeats))
        record = {"cpu_seconds": seconds, "share of training": seconds / training}
        if name in LOOPS:
            record["times the loop"] = looped(rows, LOOPS[name], every) / seconds
        if name in SHORTER:
            record["times the shorter loop"] = sliced(rows, SHORTER[name]) / seconds
        out[name] = record
    size = {
        "clients": len(upload),
        "rows per client": len(rows.values) / len(upload),
        "training": training,
    }
    return {**size, "defences": out}


def table(found: dict[str, Any]) -> str:
    lines = [
        f"{found['clients']} clients, {found['rows per client']:.0f} rows each; training"
        f" {found['training']:.2f} CPU s",
        f"{'defence':<18} {'CPU s':>8} {'of training':>12} {'loop':>8} {'shorter':>8}",
    ]
    for name, r in found["defences"].items():
        times = [
            f"{r[k]:>7.1f}x" if k in r else f"{'':>8}"
            for k in ("times the loop", "times the shorter loop")
        ]
        missed = r["share of training"] > 1 or r.get("times the loop", AT_LEAST) < AT_LEAST
        share = f"{r['share of training']:>12.1%}"
        lines.append(
            f"{name:<18} {r['cpu_seconds']:>8.3f} {share} {' '.join(times)}{'  MISSED' * missed}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one repeat, fewer items; nothing is written"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(1, 200) if asked.quick else measure(3, EVERY)
    host = machine()
    print(", ".join(f"{k} {v}" for k, v in host.items()))
    print(table(found))
    if not asked.quick:
        print(
            "written to"
            f" {write('bench-defences', {'commit': commit(), 'machine': host, **found}).name}"
        )


if __name__ == "__main__":
    main()
