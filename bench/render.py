"""The measured lines of docs/, rendered from results/bench-*.json: python bench/render.py"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from render_contrast import (
    cofedrec,
    cofedrec_cuda,
    cofedrec_memory,
    contrast,
    contrast_cuda,
    own_tables,
)
from render_peers import peers


def engine(found: dict[str, Any]) -> list[str]:
    about = found["machine"]
    peak = ", ".join(f"{k} {v:.0f}" for k, v in found["ceilings per CPU second"].items())
    lines = [
        f"`make bench`, commit {found['commit']}, {about['cpu']} ({about['instructions']}), torch"
        f" {about['torch']}."
    ]
    lines += [f"Ceilings of one core: {peak}.", ""]
    lines += [
        "| workload | data | clients | clients per CPU second | plain loop | times | repeats | at"
        " least | fused loop |"
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
        cells += [
            f"{row['times the plain loop']:.1f}",
            f"{low:.1f} to {high:.1f}",
            f"{row['at least']}",
        ]
        cells += [f"{fused:.1f}" if fused else ""]
        lines.append("| " + " | ".join(cells) + " |")
    for row in found["workloads"].values():
        smaller = {
            k.split()[-2]: v
            for k, v in row["notes"].items()
            if k.startswith("times the plain loop with")
        }
        if smaller:
            sizes = ", ".join(f"{v:.0f} times with {k} clients" for k, v in smaller.items())
            lines += [
                "",
                f"{row['workload']}: the fixed cost of a round weighs more in a small one:"
                f" {sizes}.",
            ]
        if "share of sgemm" in row:
            useful, share = row["useful GFLOP per CPU second"], row["share of sgemm"]
            lines += [
                "",
                f"Useful arithmetic of {row['workload']}: {useful:.0f} GFLOP per CPU second,"
                f" {share:.0%} of sgemm.",
            ]
    return lines


def ranking(found: dict[str, Any]) -> list[str]:
    low, high = found["of single repeats"]
    mine, loop = (found["microseconds per user"][k] for k in ("covey", "plain loop"))
    return [
        "`python bench/bench_ranking.py --out results/bench-ranking.json`, commit"
        f" {found['commit']}: full-rank evaluation of {found['users']:,} users among"
        f" {found['items']:,} items ({found['data']}, {found['dim']} dimensions, seen items hidden,"
        f" validation and test) in {found['cpu_seconds of everybody']:.1f} CPU seconds and"
        f" {found['peak_gib']:.2f} GiB, data and libraries included (at most"
        f" {found['target']['peak_gib']:.0f}). For {found['sample']:,} of them {mine:.0f}"
        f" microseconds a user, a loop over users {loop:.0f}: {found['times the loop']:.1f} times,"
        f" {low:.1f} to {high:.1f} in single repeats (at least"
        f" {found['target']['times the loop']:.0f})."
    ]


def sequence(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_sequence.py`, commit {found['commit']}: sequence clients, one"
        " gradient each, summed.",
        "",
        "| workload | data | clients | items each | clients per CPU second | times the plain loop"
        " | repeats | at least | accumulating loop | at most |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        low, high = row["of single repeats"]
        cells = [
            row["workload"],
            row["data"],
            f"{row['clients']}",
            f"{row['items per client']:.0f}",
        ]
        cells += [
            f"{row['clients per CPU second']['covey']:,.0f}",
            f"{row['times the plain loop']:.1f}",
        ]
        cells += [
            f"{low:.1f} to {high:.1f}",
            f"{row['at least']}",
            f"{row['times the accumulating loop']:.1f}",
        ]
        lines.append("| " + " | ".join([*cells, f"{row['times at most']:.0f}"]) + " |")
    missed = [row for row in found["rows"] if not row["reached"]]
    if missed:
        short = "; ".join(
            f"{r['workload'].split(',')[0]} on {r['data'].split(',')[0]}" for r in missed
        )
        lines += [
            "",
            f"Short of it: {short}. At most: if all of its arithmetic ran at the speed of sgemm.",
        ]
    return lines


def cuda(found: dict[str, Any]) -> list[str]:
    lines = [f"`python bench/bench_cuda.py`, commit {found['commit']}, {found['machine']}.", ""]
    lines += ["| what | seconds | at most | GiB |", "|---|---|---|---|"]
    for name, case in found["cases"].items():
        short = "" if case["reached"] else " (short)"
        lines.append(
            f"| {name} | {case['median']:.2f} | {case['at most']:.2f}{short} | {case['gib']:.1f} |"
        )
    return lines


def million(found: dict[str, Any]) -> list[str]:
    wall, cpu = found["wall_seconds"] / 60, found["cpu_seconds"] / 60
    return [
        f"`python bench/bench_million.py`, commit {found['commit']}: a million clients with 20 of"
        f" 100,000 items, one round with everybody and 10,000 evaluated: {wall:.1f} minutes,"
        f" {cpu:.1f} CPU minutes, {found['peak_gib']:.2f} GiB at most."
        + "".join(
            f" With {jobs} workers: {more['wall_seconds'] / 60:.1f} minutes,"
            f" {more['cpu_seconds'] / 60:.1f} CPU minutes, {more['peak_gib']:.2f} GiB in all."
            for jobs, more in found.get("more", {}).items()
        )
    ]


def workers(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_workers.py`, commit {found['commit']}: a round with"
        f" {found['users']:,} clients and {found['items']:,} items, two workers over one. Where"
        " other work shares the cores, the CPU seconds of the busiest process, the server's"
        " included, say more than the wall time.",
        "",
        "| method | CPU seconds of one | busiest of two, at most 0.56 | wall | CPU in all, at most"
        " 1.15 | memory of a worker, at most 0.6 | above an idle one |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in found["methods"].items():
        one = row["round"]
        cells = [f"{one['cpu_seconds'][0]:.1f}", f"{one['busiest']:.2f}", f"{one['wall']:.2f}"]
        cells += [f"{one['cpu']:.2f}", f"{row['memory']:.2f}", f"{row['memory_above_idle']:.2f}"]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    lines += ["", "One gradient of each client, 256 clients of MovieLens-100K, two rounds:", ""]
    lines += ["| method | CPU seconds, each rounded | in one pass | times |", "|---|---|---|---|"]
    for name, row in found["one_pass"].items():
        times = f"{row['times']:.1f} ({row['low']:.1f} to {row['high']:.1f})"
        lines.append(f"| {name} | {row['each']:.2f} | {row['one_pass']:.2f} | {times} |")
    return lines


def defences(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_defences.py`, commit {found['commit']}: {found['clients']} clients of"
        f" FedNCF with {found['rows per client']:.0f} rows each, whose training takes"
        f" {found['training']:.2f} CPU seconds.",
        "",
        "| defence | CPU seconds | of training | times a loop over items | times one over sorted"
        " rows, with NumPy |",
        "|---|---|---|---|---|",
    ]
    for name, row in found["defences"].items():
        times = [
            f"{row[k]:.3g}" if k in row else ""
            for k in ("times the loop", "times the shorter loop")
        ]
        lines.append(
            f"| {name} | {row['cpu_seconds']:.3f} | {row['share of training']:.0%} |"
            f" {' | '.join(times)} |"
        )
    return lines


def privacy(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_privacy.py`, commit {found['commit']}: simulated noise beside"
        " OpenDP's.",
        "",
        "| mechanism | CPU seconds | OpenDP | times |",
        "|---|---|---|---|",
    ]
    for name, row in found["mechanisms"].items():
        theirs = (
            [f"{row['library']:.1f}", f"{row['times the library']:.0f}"]
            if "library" in row
            else ["", ""]
        )
        lines.append(f"| {name} | {row['cpu_seconds']:.3f} | {' | '.join(theirs)} |")
    return lines


def secure(found: dict[str, Any]) -> list[str]:
    first = found["sums"][0]
    lines = [
        f"`python bench/bench_secure.py`, commit {found['commit']}: secure sums of"
        f" {first['numbers']:,} numbers over {first['clients']} clients with {first['neighbours']}"
        " neighbours, on one core.",
        "",
        "| bits | drop out | ms of a client | at most | CPU seconds of the server | at most |"
        " bytes a client sends |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["sums"]:
        client, server, up = (
            row["client ms"]["in all"],
            row["server s"],
            row["client bytes"]["in all"],
        )
        lines.append(
            f"| {row['bits']} | {row['dropped out']} | {client:.0f} | 30 | {server:.2f} | 2 |"
            f" {up:,} |"
        )
    return lines


def encrypted(found: dict[str, Any]) -> list[str]:
    most = found["at most"]
    lines = [
        f"`python bench/bench_encrypted.py`, commit {found['commit']},"
        f" {found['machine']['cpu']}: a round of FedMF on {found['data']} with"
        f" {found['clients']} clients and {found['numbers']:,} numbers, all parties on one core."
        f" Errors are to the table in clear, at most {most['error']:g}; a round takes at most"
        f" {most['seconds']} CPU seconds.",
        "",
        "| combine | how | MB up per client | MB down per client | CPU seconds of the round | ms a"
        " client encrypts | ms it decrypts | ms of the server per client | largest error |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        cells = [row["combine"], row["how"], f"{row['up'] / 1e6:.3f}", f"{row['down'] / 1e6:.3f}"]
        cells += [f"{row['cpu seconds']:.1f}"]
        cells += [
            f"{row[k]:.0f}" if k in row else "" for k in ("encrypt ms", "decrypt ms", "add ms")
        ]
        lines.append("| " + " | ".join([*cells, f"{row['largest error']:.1e}"]) + " |")
    return lines


def pdc(found: dict[str, Any]) -> list[str]:
    draws, passes = found["contribution"], found["auxiliary"]
    learns, recommends, clients = (
        min(passes["cpu_seconds"][k]) for k in ("learns", "recommends", "clients")
    )
    return [
        f"`python bench/bench_pdc.py`, commit {found['commit']}: PDC-FRS's contribution of"
        f" {draws['draws'][0]:,} items in {min(draws['cpu_seconds']['ours']):.2f} CPU seconds,"
        f" {draws['times']:.0f} times as fast as one at a time (at least {draws['at least']}). A"
        f" pass of its auxiliary model: {learns:.1f} CPU seconds of learning and {recommends:.1f}"
        f" of recommending, {passes['share']:.2f} of the {clients:.1f} that {passes['clients']:,}"
        f" clients take (at most {passes['at most']:.0f})."
    ]


def sums(found: dict[str, Any]) -> list[str]:
    times, about = found["times_faster"], found["machine"]
    lines = [
        f"`python bench/bench_sums.py`, commit {found['commit']}, {about['cpu']}: sums beside"
        f" gradients, one core; {times['without the choice']:.0f} times as fast,"
        f" {times['with the choice']:.0f} with the choice of a filter (at least"
        f" {times['target']}).",
        "",
        "| what | CPU seconds |",
        "|---|---|",
    ]
    return lines + [f"| {name} | {seconds:.1f} |" for name, seconds in found["seconds"].items()]


def recovery(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_recovery.py`, commit {found['commit']}: label recovery,"
        f" {found['clients']} clients of which {found['in the sum']} are in the sum.",
        "",
        "| from | F1 | standard error |",
        "|---|---|---|",
    ]
    return lines + [
        f"| {name} | {f1:.2f} | {found['standard error'][name]:.2f} |"
        for name, f1 in found["f1"].items()
    ]


def signal(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_signal.py`, commit {found['commit']}: {found['clients']:,} reports of"
        f" {found['data']} after {found['passes']} passes without noise, {found['mean length']:.2f}"
        f" long on average in {found['width']} dimensions. Clusters formed again from noisy"
        f" reports, {len(found['budgets'][0]['rand index'])} draws: means, and the lowest and the"
        " highest.",
        "",
        "| ε | clusters found again (Rand index, 0 is chance) | items of the clean pool that are"
        " in the noisy one |",
        "|---|---|---|",
    ]
    for row in found["budgets"]:
        name = f"{row['epsilon']:g}" if row["epsilon"] else "noise alone"
        cells = [
            f"{sum(x) / len(x):.3f} ({min(x):.3f} to {max(x):.3f})"
            for x in (row["rand index"], row["pool kept"])
        ]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return lines


def ward(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_ward.py`, commit {found['commit']}, {found['machine']['cpu']}: noisy"
        f" reports of {found['width']} numbers in {found['clusters']} clusters, one thread. Memory"
        " is above what the process had before.",
        "",
        "| reports | how | CPU seconds | GiB |",
        "|---|---|---|---|",
    ]
    return lines + [
        f"| {row['reports']:,} | {row['how']} | {row['cpu_seconds']:.1f} | {row['gib']:.2f} |"
        for row in found["rows"]
    ]


def imports(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_import.py`, commit {found['commit']}, {found['machine']['cpu']}:"
        f" imports of {found['count']:,} rows beside commit {found['before']}, one thread. Memory"
        f" is above what the process had before (at most {found['megabytes']} MB), that of the"
        " command is all of it.",
        "",
        "| what | CPU seconds | before | at most | MB | before |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        now, before = row["now"], row["before"] or {}
        most = f"{row['at most']:g}" if row["at most"] else "–"
        cells = [f"{now['seconds']:.1f}", _or_none(before.get("seconds"), ".1f"), most]
        cells += [f"{now['megabytes']:.0f}", _or_none(before.get("megabytes"), ".0f")]
        lines.append("| " + " | ".join([row["what"], *cells]) + " |")
    return lines


def _or_none(value: float | None, form: str) -> str:
    return "not read" if value is None else f"{value:{form}}"


def parts() -> dict[str, Callable[[dict[str, Any]], list[str]]]:
    parts = {
        "bench-engine": engine,
        "bench-cuda": cuda,
        "bench-million": million,
        "bench-defences": defences,
    }
    parts |= {"bench-ranking": ranking, "bench-sequence": sequence, "bench-secure": secure}
    parts |= {"bench-encrypted": encrypted}
    parts |= {
        "bench-privacy": privacy,
        "bench-pdc": pdc,
        "bench-sums": sums,
        "bench-recovery": recovery,
    }
    parts |= {"bench-signal": signal, "bench-ward": ward}
    parts |= {"bench-contrast": contrast, "bench-contrast-cuda": contrast_cuda}
    parts |= {f"bench-cofedrec-memory{form}": cofedrec_memory for form in ("", "-sampled")}
    return parts | {
        "bench-cofedrec": cofedrec,
        "bench-cofedrec-cuda": cofedrec_cuda,
        "bench-tables": own_tables,
        "bench-import": imports,
        "bench-workers": workers,
        "bench-peers": peers,
    }


NOT_SPEED = (
    "bench-signal",
    "bench-encrypted",
    "bench-cofedrec-memory",
    "bench-cofedrec-memory-sampled",
    "bench-peers",
)  # on the page it belongs to, and only there


def tables(results: Path, only: str = "") -> str:
    """All that is stored, or one of them."""
    made = []
    for name, say in parts().items():
        path = results / f"{name}.json"
        if path.exists() and (only == name or (not only and name not in NOT_SPEED)):
            made.append("\n".join(say(json.loads(path.read_text()))))
    return "\n\n".join(made)


def rendered(page: str, results: Path) -> str:
    """Between `bench` marks all of it, between `bench:NAME` marks one file's."""

    def fill(mark: re.Match[str]) -> str:
        made = tables(results, mark[2] or "")
        return f"{mark[1]}{made}\n{mark[3]}" if made else mark[1] + mark[3]

    return re.sub(r"(<!-- bench(?::([\w-]+))? -->\n).*?(<!-- end -->)", fill, page, flags=re.DOTALL)


if __name__ == "__main__":
    root = Path(__file__).parent.parent
    for target in sorted((root / "docs").rglob("*.md")):
        before = target.read_text()
        if (after := rendered(before, root / "results")) != before:
            target.write_text(after)
