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


def defences(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_defences.py`, commit {found['commit']}: {found['clients']} clients of FedNCF with"
        f" {found['rows per client']:.0f} rows each, whose training takes {found['training']:.2f} CPU seconds.",
        "",
        "| defence | CPU seconds | of training | times a loop over items | times one over sorted rows, with NumPy |",
        "|---|---|---|---|---|",
    ]
    for name, row in found["defences"].items():
        times = [f"{row[k]:.3g}" if k in row else "" for k in ("times the loop", "times the shorter loop")]
        lines.append(f"| {name} | {row['cpu_seconds']:.3f} | {row['share of training']:.0%} | {' | '.join(times)} |")
    return lines


def privacy(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_privacy.py`, commit {found['commit']}: simulated noise beside OpenDP's.",
        "",
        "| mechanism | CPU seconds | OpenDP | times |",
        "|---|---|---|---|",
    ]
    for name, row in found["mechanisms"].items():
        theirs = [f"{row['library']:.1f}", f"{row['times the library']:.0f}"] if "library" in row else ["", ""]
        lines.append(f"| {name} | {row['cpu_seconds']:.3f} | {' | '.join(theirs)} |")
    return lines


def secure(found: dict[str, Any]) -> list[str]:
    first = found["sums"][0]
    lines = [
        f"`python bench/bench_secure.py`, commit {found['commit']}: secure sums of {first['numbers']:,} numbers over"
        f" {first['clients']} clients with {first['neighbours']} neighbours, on one core.",
        "",
        "| bits | drop out | ms of a client | at most | CPU seconds of the server | at most | bytes a client sends |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["sums"]:
        client, server, up = row["client ms"]["in all"], row["server s"], row["client bytes"]["in all"]
        lines.append(f"| {row['bits']} | {row['dropped out']} | {client:.0f} | 30 | {server:.2f} | 2 | {up:,} |")
    return lines


def pdc(found: dict[str, Any]) -> list[str]:
    draws, passes = found["contribution"], found["auxiliary"]
    learns, recommends, clients = (min(passes["cpu_seconds"][k]) for k in ("learns", "recommends", "clients"))
    return [
        f"`python bench/bench_pdc.py`, commit {found['commit']}: PDC-FRS's contribution of {draws['draws'][0]:,} items"
        f" in {min(draws['cpu_seconds']['ours']):.2f} CPU seconds, {draws['times']:.0f} times as fast as one at a time"
        f" (at least {draws['at least']}). A pass of its auxiliary model: {learns:.1f} CPU seconds of learning and"
        f" {recommends:.1f} of recommending, {passes['share']:.2f} of the {clients:.1f} that {passes['clients']:,}"
        f" clients take (at most {passes['at most']:.0f})."
    ]


def tables(results: Path) -> str:
    parts = {"bench-engine": engine, "bench-cuda": cuda, "bench-million": million, "bench-defences": defences}
    parts |= {"bench-secure": secure}
    parts |= {"bench-privacy": privacy, "bench-pdc": pdc}
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
