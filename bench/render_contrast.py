"""The measured lines of CoFedRec and of CL4FedRec, for render.py."""

from typing import Any


def cofedrec(found: dict[str, Any]) -> list[str]:
    """Milliseconds are those of one batch of one client, evaluation included."""
    spent, steps = found["cpu_seconds"], found["steps"]
    each = {side: 1000 * sorted(spent[side])[len(spent[side]) // 2] / steps[side] for side in steps}
    loop = each["published structure"]
    lines = [
        f"`python bench/bench_cofedrec.py`, commit {found['commit']}: a round of CoFedRec on"
        f" MovieLens-100K beside the published structure, {loop:.0f} ms of the CPU for a client's"
        " batch, one thread each.",
        "",
        "| contrast | ms for a batch | times the published structure | repeats | at least |",
        "|---|---|---|---|---|",
    ]
    for side, name in (
        ("exact", "exact"),
        ("sampled", f"{found['items in the sample']} sampled items"),
    ):
        (low, high), row = found[side]["of single repeats"], found[side]
        lines.append(
            f"| {name} | {each[side]:.1f} | {row['times']:.1f} | {low:.1f} to {high:.1f} |"
            f" {row['at least']} |"
        )
    return lines


def cofedrec_cuda(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_cofedrec.py --gpu`, commit {found['commit']}, {found['machine']}:"
        " rounds with everybody, evaluation included, exact contrast; the median after the first"
        " round.",
        "",
        "| method and data | seconds a round | at most | GiB |",
        "|---|---|---|---|",
    ]
    rows = {name: row for name, row in found.items() if isinstance(row, dict) and "median" in row}
    return lines + [
        f"| {n} | {r['median']:.2f} | {r['at most']} | {r['gib']:.1f} |" for n, r in rows.items()
    ]


def cofedrec_memory(found: dict[str, Any]) -> list[str]:
    form = f"{found['sample']} sampled items" if found["sample"] else "the exact contrast"
    return [
        f"`python bench/bench_cofedrec.py --memory {found['sample']}`, commit {found['commit']}:"
        f" {found['rounds']} rounds with all {found['clients']:,} clients of MovieLens-1M on a CPU,"
        f" {form}, evaluation included: {found['gib']:.2f} GiB (at most {found['at most']:g}),"
        f" {found['cpu_seconds'] / 60:.0f} CPU minutes."
    ]


def contrast(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_contrast.py`, commit {found['commit']}, {found['machine']['cpu']}: a"
        f" pass of {found['rounds']} rounds with {found['clients']} clients on MovieLens-1M, one"
        " thread, in one process.",
        "",
        "| | CPU seconds a pass | times FedNCF | repeats | at most |",
        "|---|---|---|---|---|",
    ]
    for name, seconds in found["cpu_seconds"].items():
        ratios = sorted(found["ratios"][name])
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        most = f"{found['at_most'][name]:g}" if name in found["at_most"] else ""
        lines.append(
            f"| {name} | {seconds:.1f} | {ratios[len(ratios) // 2]:.2f} | {spread} | {most} |"
        )
    return lines


def contrast_cuda(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_contrast.py --device cuda`, commit {found['commit']},"
        f" {found['device']}: passes over MovieLens-1M, 256 clients a round, without evaluation;"
        " the median after the first.",
        "",
        "| | seconds a pass | at most | GiB |",
        "|---|---|---|---|",
    ]
    for name, row in found["passes"].items():
        later = sorted(row["seconds"][1:] or row["seconds"])
        most = f"{found['at_most_seconds'][name]:g}" if name in found["at_most_seconds"] else ""
        lines.append(f"| {name} | {later[len(later) // 2]:.2f} | {most} | {row['gib']:.1f} |")
    return lines


def own_tables(found: dict[str, Any]) -> list[str]:
    lines = [
        f"`python bench/bench_tables.py`, commit {found['commit']}: clients' own tables in CoFedRec"
        " without its contrast, whole or as the last one handed and own rows, to the same bits;"
        " the most over the rounds.",
        "",
        "| data | rounds | whole, MB | as rows, MB | peak, GB | as rows | CPU seconds a round | as"
        " rows |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, sides in found["data"].items():
        whole, rows = sides["whole"], sides["rows"]
        cells = [
            name,
            f"{len(rows['held'])}",
            *(f"{max(s['held']) / 1e6:,.0f}" for s in (whole, rows)),
        ]
        cells += [f"{s['peak'] / 1e9:.2f}" for s in (whole, rows)]
        cells += [
            f"{sorted(s['cpu_seconds'])[len(s['cpu_seconds']) // 2]:.2f}" for s in (whole, rows)
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
