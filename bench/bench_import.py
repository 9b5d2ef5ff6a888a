"""Imports of two million rows: CPU seconds and peak memory, beside an earlier commit.

Each import runs in a process of its own, on one thread. Its seconds and its memory are above what
the process had before, with libraries and DataFrames loaded; those of the whole command include
them. Rows are made from a fixed seed: 60,000 users, 20,000 items.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from common import ROOT, commit, machine, say, write

ROWS = 2_000_000
LIMITS = {"csv": 3.0, "pandas": 1.5, "polars": 1.5, "command": 3.0}
MEGABYTES = 300
NAMES = {
    "csv": "CSV file, times as numbers",
    "dates": "CSV file, times as 12/13/2010 8:26",
    "pandas": "pandas DataFrame",
    "polars": "polars DataFrame",
    "command": "`covey data import` of the CSV file, as a whole",
}
CHILD = """
import json, runpy, sys, time, warnings
warnings.simplefilter("ignore")
kind, source = sys.argv[1:]
before = begin = 0.0

def memory(name):
    return next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith(name)) / 1e3

try:
    if kind == "command":
        sys.argv = ["covey", "data", "import", source, "--replace", "--json"]
        try:
            runpy.run_module("covey", run_name="__main__")
        except SystemExit as end:
            assert not end.code
    else:
        import covey
        if kind in ("pandas", "polars"):
            import importlib, numpy
            rows = numpy.load(source)
            source = importlib.import_module(kind).DataFrame({k: rows[k] for k in rows})
        covey.load("synthetic")  # loads what is loaded late
        open("/proc/self/clear_refs", "w").write("5")  # forgets the peak
        before, begin = memory("VmRSS"), time.process_time()
        assert len(covey.load(source)) == 2_000_000
except Exception:  # this version cannot read it
    print("null")
else:
    seconds = time.process_time() - begin
    print(json.dumps({"seconds": seconds, "megabytes": memory("VmHWM") - before}))
"""


def make(folder: Path) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    rows = {
        "userId": np.sort(rng.integers(0, 60_000, ROWS)),
        "movieId": rng.zipf(1.3, ROWS) % 20_000,
        "rating": rng.integers(1, 6, ROWS),
        "timestamp": rng.integers(1_200_000_000, 1_300_000_000, ROWS),
    }
    np.savez(folder / "rows.npz", **rows)  # type: ignore[arg-type]
    times = rows["timestamp"].astype("datetime64[s]").astype(str)
    dates = [f"{int(t[5:7])}/{int(t[8:10])}/{t[:4]} {int(t[11:13])}:{t[14:16]}" for t in times]
    for name, last in (("csv", rows["timestamp"]), ("dates", dates)):
        columns = [rows["userId"], rows["movieId"], rows["rating"], last]
        lines = ("{},{},{},{}\n".format(*row) for row in zip(*columns))
        with (folder / f"{name}.csv").open("w") as file:
            file.write("userId,movieId,rating,timestamp\n")
            file.writelines(lines)
    frames = dict.fromkeys(("pandas", "polars"), folder / "rows.npz")
    texts = {"csv": "csv", "command": "csv", "dates": "dates"}
    return {name: folder / f"{file}.csv" for name, file in texts.items()} | frames


def environment(source: Path, folder: Path) -> dict[str, str]:
    own = {"PYTHONPATH": str(source), "COVEY_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    return {**os.environ, **own}


def measured(kind: str, path: Path, source: Path) -> dict[str, float] | None:
    words = [sys.executable, "-c", CHILD, kind, str(path)]
    env = environment(source, path.parent)
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def best(kind: str, files: dict[str, Path], source: Path, repeats: int) -> Any:
    """The repeat with the fewest seconds; None if this version cannot read it."""
    found = [measured(kind, files[kind], source) for _ in range(repeats)]
    return min((one for one in found if one), key=lambda one: one["seconds"], default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default="9deabec", help="the earlier commit")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, of which the best")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words = ["git", "archive", options.before, "src"]
        old = subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(old)) as archive:
            archive.extractall(folder / "before", filter="data")
        files = make(folder)
        for kind, name in NAMES.items():
            row = {"what": name, "at most": LIMITS.get(kind)}
            for side, source in (("before", folder / "before/src"), ("now", ROOT / "src")):
                row[side] = best(kind, files, source, options.repeats)
            say(json.dumps(row))
            rows.append(row)
    result = {"rows": rows, "count": ROWS, "megabytes": MEGABYTES, "before": options.before}
    result |= {"machine": machine(), "commit": commit()}
    say(str(write("bench-import", result)))


if __name__ == "__main__":
    main()
