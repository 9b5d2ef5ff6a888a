"""A search as text of 80 columns: its trials, best first, and what they cost."""

from typing import Any

from rich.table import Table

from covey.run.config.tree import Tree
from covey.study.render.tables import Screen, framed_table
from covey.study.render.units import many


def table(search: Tree) -> str:
    """Return the text for a `summary` of a search."""
    screen, budget, best = Screen(), search["budget"], search["best"]
    tried = f"{many(budget['trials'], 'trial')} ({budget['failed']} failed)"
    counts = f"{tried}, {many(budget['runs'], 'run')}, {many(budget['rounds'], 'round')}"
    times = f"{budget['seconds']:.1f} s, {budget['cpu_seconds']:.1f} CPU s"
    screen.show(_trials(search), f"budget: {counts}, {times}")
    values = " ".join(f"--set {option}={value}" for option, value in best["values"].items())
    screen.whole(f"best: trial {best['number']}: {values}")
    screen.whole(f"search in {search['out']}; the same command with more --trials continues it")
    if search["written"]:
        screen.whole(f"preset in {search['written']}")
    return str(screen)


def _trials(search: Tree) -> Table:
    on = f"{search['method']} on {search['dataset']}"
    on += f", {search['preset']}" if search["preset"] else ""
    names = short(list(search["space"]))
    heads = ("trial", *names.values(), search["metric"], "round", "CPU s")
    out = framed_table(f"{on}: {search['metric']} on validation", *heads, left=0)
    out.add_column("", overflow="fold")
    for trial in sorted(search["trials"], key=_place):
        runs = trial["runs"]
        figure = "failed" if trial["value"] is None else f"{trial['value']:.4f}"
        spent = f"{sum(r['cpu_seconds'] for r in runs):.1f}"
        rounds = " ".join(str(r["round"]) for r in runs)
        cells = [_text(trial["values"][option]) for option in names]
        note = _note(trial, search["best"]["number"])
        out.add_row(str(trial["number"]), *cells, figure, rounds, spent, note)
    return out


def _place(trial: Tree) -> tuple[bool, float, int]:
    """Sort the best first and failed trials last."""
    return trial["value"] is None, -(trial["value"] or 0.0), trial["number"]


def _note(trial: Tree, best: int) -> str:
    notes = ["best"] * (trial["number"] == best) + ["published"] * (trial["number"] == 0)
    return ", ".join([*notes, *([trial["error"]] if trial["error"] else [])])


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def short(options: list[str]) -> dict[str, str]:
    """Return the last part of each option's name where that part is unique."""
    last = [option.rpartition(".")[2] for option in options]
    pairs = zip(options, last)
    return {option: word if last.count(word) == 1 else option for option, word in pairs}
