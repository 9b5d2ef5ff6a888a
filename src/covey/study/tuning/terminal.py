"""A search in a terminal of 80 columns: its trials, the best first, and what they cost."""

from typing import Any

from rich.table import Table

from covey.run.config.tree import Tree
from covey.study.render.tables import Screen, framed_table
from covey.study.render.units import many


def table(told: Tree) -> str:
    screen, budget, best = Screen(), told["budget"], told["best"]
    tried = f"{many(budget['trials'], 'trial')} ({budget['failed']} failed)"
    counts = f"{tried}, {many(budget['runs'], 'run')}, {many(budget['rounds'], 'round')}"
    times = f"{budget['seconds']:.1f} s, {budget['cpu_seconds']:.1f} CPU s"
    screen.show(_trials(told), f"budget: {counts}, {times}")
    values = " ".join(f"--set {option}={value}" for option, value in best["values"].items())
    screen.whole(f"best: trial {best['number']}: {values}")
    screen.whole(f"search in {told['out']}; the same command with more --trials goes on")
    if told["written"]:
        screen.whole(f"preset in {told['written']}")
    return str(screen)


def _trials(told: Tree) -> Table:
    on = f"{told['method']} on {told['dataset']}"
    on += f", {told['preset']}" if told["preset"] else ""
    names = short(list(told["space"]))
    heads = ("trial", *names.values(), told["metric"], "round", "CPU s")
    out = framed_table(f"{on}: {told['metric']} on validation", *heads, left=0)
    out.add_column("", overflow="fold")
    for trial in sorted(told["trials"], key=_place):
        runs = trial["runs"]
        figure = "failed" if trial["value"] is None else f"{trial['value']:.4f}"
        spent = f"{sum(r['cpu_seconds'] for r in runs):.1f}"
        rounds = " ".join(str(r["round"]) for r in runs)
        cells = [_say(trial["values"][option]) for option in names]
        note = _note(trial, told["best"]["number"])
        out.add_row(str(trial["number"]), *cells, figure, rounds, spent, note)
    return out


def _place(trial: Tree) -> tuple[bool, float, int]:
    """The best first, what failed last."""
    return trial["value"] is None, -(trial["value"] or 0.0), trial["number"]


def _note(trial: Tree, best: int) -> str:
    notes = ["best"] * (trial["number"] == best) + ["published"] * (trial["number"] == 0)
    return ", ".join([*notes, *([trial["error"]] if trial["error"] else [])])


def _say(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def short(options: list[str]) -> dict[str, str]:
    """The last word of each option where that is enough to tell it from the others."""
    last = [option.rpartition(".")[2] for option in options]
    pairs = zip(options, last)
    return {option: word if last.count(word) == 1 else option for option, word in pairs}
