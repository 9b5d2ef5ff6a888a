"""The tables of docs/performance.md, rendered from results/bench-*.json: python bench/render.py"""

import json
import re
from pathlib import Path
from typing import Any


def engine(found: dict[str, Any]) -> list[str]:
    about = found["machine"]
    peak = ", ".join(f"{k} {v:.0f}" for k, v in found["ceilings per CPU second"].items())
    lines = [
        f"`make bench`, commit {found['commit']}, {about['cpu']} ({about['instructions']}), torch {about['torch']}."
    ]
    lines += [f"Ceilings of one core: {peak}.", ""]
    lines += [
        "| workload | data | clients | clients per CPU second | plain loop | times | repeats | at least | fused loop |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for row in found["workloads"].values():
        rate, (low, high) = row["clients per CPU second"], row["of single repeats"]
        fused = row["times the other loops"].get("plain loop, fused optimiser")
        cells = [
            row["workload"],
            row["data"],
            f"{row['clients']:,}",
            f"{rate['covey']:,.0f}",
            f"{rate['plain loop']:,.1f}",
        ]
        cells += [f"{row['times the plain loop']:.1f}", f"{low:.1f} to {high:.1f}", f"{row['at least']}"]
        cells += [f"{fused:.1f}" if fused else ""]
        lines.append("| " + " | ".join(cells) + " |")
    for row in found["workloads"].values():
        smaller = {k.split()[-2]: v for k, v in row["notes"].items() if k.startswith("times the plain loop with")}
        if smaller:
            sizes = ", ".join(f"{v:.0f} times with {k} clients" for k, v in smaller.items())
            lines += ["", f"{row['workload']}: the fixed cost of a round weighs more in a small one: {sizes}."]
        if "share of sgemm" in row:
            useful, share = row["useful GFLOP per CPU second"], row["share of sgemm"]
            lines += [
                "",
                f"Useful arithmetic of {row['workload']}: {useful:.0f} GFLOP per CPU second, {share:.0%} of sgemm.",
            ]
    return lines


def cuda(found: dict[str, Any]) -> list[str]:
    return [
        f"`python bench/bench_cuda.py`, commit {found['commit']}, {found['machine']}: {found['what'].strip()}"
        f" Median {found['median_ms']:.0f} ms a round of {len(found['all_ms'])}, {found['gib']:.1f} GiB."
    ]


def million(found: dict[str, Any]) -> list[str]:
    wall, cpu = found["wall_seconds"] / 60, found["cpu_seconds"] / 60
    return [
        f"`python bench/bench_million.py`, commit {found['commit']}: a million clients with 20 of 100,000 items,"
        f" one round with everybody and 10,000 evaluated: {wall:.1f} minutes, {cpu:.1f} CPU minutes,"
        f" {found['peak_gib']:.2f} GiB at most."
    ]


def tables(results: Path) -> str:
    parts = {"bench-engine": engine, "bench-cuda": cuda, "bench-million": million}
    there = {name: results / f"{name}.json" for name in parts}
    made = ["\n".join(parts[name](json.loads(path.read_text()))) for name, path in there.items() if path.exists()]
    return "\n\n".join(made)


def rendered(page: str, results: Path) -> str:
    return re.sub(
        r"(<!-- bench -->\n).*?(<!-- end -->)", lambda m: f"{m[1]}{tables(results)}\n{m[2]}", page, flags=re.DOTALL
    )


if __name__ == "__main__":
    root = Path(__file__).parent.parent
    target = root / "docs" / "performance.md"
    target.write_text(rendered(target.read_text(), root / "results"))
