"""A table from one command: several runs of several seeds, their results kept, the docs rendered from them.

A study is a TOML file: `title`, `metrics`, and one `[[row]]` per line of the table with `label`,
`method`, optional `preset`, `seeds` and `set` (a list of a.b=c).
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from . import atomic
from .config import Config, Tree, assign, fill, merge, read
from .core import CoveyError, positive
from .run import run


@dataclass(frozen=True)
class Row:
    """What a line of the table may say."""

    label: str
    method: str
    preset: str = ""
    seeds: int = 0
    set: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What a study may say beside its rows, for all of them."""

    title: str
    metrics: tuple[str, ...]
    preset: str = ""
    seeds: int = 1
    set: tuple[str, ...] = ()


def machine() -> str:
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    return f"{platform.machine()} CPU, torch {torch.__version__}"


def commit() -> str:
    """The code's version; COVEY_COMMIT says it where there is no checkout."""
    if "COVEY_COMMIT" in os.environ:
        return os.environ["COVEY_COMMIT"]
    try:
        return subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def tree_of(row: Tree, shared: Tree, seed: int) -> Tree:
    tree = merge(read("methods", row["method"]) | {"method": row["method"]}, {})
    preset = row.get("preset", shared.get("preset", ""))
    if preset:
        tree = merge(tree, read("presets", preset)) | {"preset": preset}
    return assign(tree, [*shared.get("set", []), *row.get("set", []), f"run.seed={seed}"])


def study(name: str, work: Path, more: Sequence[str] = (), jobs: int = 1) -> Tree:
    """Runs what has not been run yet, several at a time, and returns the table."""
    plan = _checked(read("studies", name), name)
    seeds = lambda row: range(row.get("seeds", plan.get("seeds", 1)))
    wanted = [(row, Config.of(assign(tree_of(row, plan, seed), more))) for row in plan["row"] for seed in seeds(row)]
    for row, config in wanted:
        if lacks := set(plan["metrics"]) - set(config.evaluate.metrics):
            raise CoveyError(f"row {row['label']!r} does not measure {min(lacks)}; name it in evaluate.metrics")
    results = {}
    with ProcessPoolExecutor(jobs, get_context("spawn"), partial(torch.set_num_threads, 1)) as pool:
        running = {pool.submit(_cached, config, work): (row, config) for row, config in wanted}
        for done in as_completed(running):
            row, config = running[done]
            result = results[config.digest()] = done.result()
            note = {m: round(result["test"][m], 4) for m in plan["metrics"]}
            print(f"{row['label']} seed {config.run.seed}: {note}, {result['seconds']} s", file=sys.stderr, flush=True)
    rows = [
        _summary(row, plan["metrics"], [results[config.digest()] for r, config in wanted if r is row])
        for row in plan["row"]
    ]
    command = " ".join([f"python -m covey.studies {name}", *(f"--set '{text}'" for text in more)])
    about = {"study": name, "title": plan["title"], "metrics": plan["metrics"], "command": command}
    return {**about, "commit": commit(), "machine": machine(), "rows": rows}


def _checked(plan: Tree, name: str) -> Tree:
    """The same, if it says all it must and nothing unknown."""
    rows = plan.get("row", [])
    fill(Plan, {k: v for k, v in plan.items() if k != "row"}, f"study {name}")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise CoveyError(f"study {name} has no rows; write [[row]] with a label and a method for each")
    for number, row in enumerate(rows, 1):
        fill(Row, row, f"row {number}")
        positive(f"row {number}", seeds=row.get("seeds", plan.get("seeds", 1)))
    return plan


def _cached(config: Config, work: Path) -> Tree:
    """A finished run of the same configuration is not repeated; a broken-off one goes on."""
    out = work / config.digest()
    if (out / "result.json").exists():
        return dict(json.loads((out / "result.json").read_text()))
    result = run(config, out, resume=(out / "config.toml").exists())
    (out / "checkpoint.safetensors").unlink(missing_ok=True)  # large, and the run is done
    return result


def _summary(row: Tree, metrics: Sequence[str], found: list[Tree]) -> Tree:
    figures = {m: [r["test"][m] for r in found] for m in metrics}
    first = found[0]
    return {
        "label": row["label"],
        "method": first["method"],
        "preset": first["preset"],
        "seeds": len(found),
        "figures": figures,
        "mean": {m: statistics.fmean(v) for m, v in figures.items()},
        "spread": {m: statistics.stdev(v) if len(v) > 1 else 0.0 for m, v in figures.items()},
        "rounds": [r.get("round", 0) for r in found],
        "up_bytes": first.get("traffic", {}).get("up_bytes", 0),
        "seconds": statistics.fmean(r["seconds"] for r in found),
        "config": first["config"],
    }


def render(table: Tree) -> str:
    """Markdown of a stored table."""
    head = ["", *table["metrics"], "seeds", "rounds"]
    lines = [f"{table['title']}. `{table['command']}`, commit {table['commit']}, {table['machine']}.", ""]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in table["rows"]:
        cells = [_cell(row, m) for m in table["metrics"]]
        rounds = sorted(set(row["rounds"]))
        span = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
        lines.append("| " + " | ".join([row["label"], *cells, str(row["seeds"]), span]) + " |")
    return "\n".join(lines)


def _cell(row: Tree, metric: str) -> str:
    spread = f" ± {row['spread'][metric]:.4f}" if row["seeds"] > 1 else ""
    return f"{row['mean'][metric]:.4f}{spread}"


def render_docs(docs: Path, results: Path) -> list[Path]:
    """Puts every stored table between its marks in the docs; returns the pages that changed."""

    def stored(mark: re.Match[str]) -> str:
        file = results / f"{mark[2]}.json"
        return f"{mark[1]}{render(json.loads(file.read_text()))}\n{mark[3]}" if file.exists() else mark[0]

    changed = []
    for page in sorted(docs.rglob("*.md")):
        old = page.read_text()
        new = re.sub(r"(<!-- study:([\w-]+) -->\n).*?(<!-- end -->)", stored, old, flags=re.DOTALL)
        if new != old:
            atomic.write_text(page, new)
            changed.append(page)
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m covey.studies", description="Tables of several runs and seeds.")
    parser.add_argument("names", nargs="*", help="studies to run; none: only render the docs")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--work", type=Path, default=Path("runs/studies"), help="where the runs are kept")
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="of every run: engine.device=cuda")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, each with one thread")
    options = parser.parse_args(arguments)
    try:
        for name in options.names:
            table = study(name, options.work, options.set, options.jobs)
            options.results.mkdir(parents=True, exist_ok=True)
            atomic.write_text(options.results / f"{Path(name).stem}.json", json.dumps(table, indent=1) + "\n")
            print(render(table))
        if options.docs.exists():
            render_docs(options.docs, options.results)
    except CoveyError as error:
        print(f"covey: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
