"""A search in a terminal of 80 columns: its trials, the best first, and what they cost."""

from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from covey.run.config.tree import Tree


def table(told: Tree) -> str:
    text = StringIO()
    console = Console(file=text, width=80, markup=False, emoji=False, highlight=False)  # names stand as they are
    console.print(_trials(told))
    budget, best = told["budget"], told["best"]
    console.print(
        f"budget: {_many(budget['trials'], 'trial')} ({budget['failed']} failed), {_many(budget['runs'], 'run')},"
        f" {_many(budget['rounds'], 'round')}, {budget['seconds']:.1f} s, {budget['cpu_seconds']:.1f} CPU s"
    )
    values = " ".join(f"--set {option}={value}" for option, value in best["values"].items())
    console.print(f"best: trial {best['number']}: {values}", soft_wrap=True)  # to be copied in one piece
    console.print(f"search in {told['out']}; the same command with more --trials goes on", soft_wrap=True)
    if told["written"]:
        console.print(f"preset in {told['written']}", soft_wrap=True)
    return text.getvalue().rstrip()


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _trials(told: Tree) -> Table:
    on = f"{told['method']} on {told['dataset']}" + (f", {told['preset']}" if told["preset"] else "")
    out = Table(title=f"{on}: {told['metric']} on validation")
    names = short(list(told["space"]))
    out.add_column("trial", justify="right")
    for head in (*names.values(), told["metric"], "round", "CPU s"):
        out.add_column(head, justify="right", overflow="fold")
    out.add_column("", overflow="fold")
    for trial in sorted(told["trials"], key=lambda t: (t["value"] is None, -(t["value"] or 0.0), t["number"])):
        runs = trial["runs"]
        figure = "failed" if trial["value"] is None else f"{trial['value']:.4f}"
        spent = f"{sum(r['cpu_seconds'] for r in runs):.1f}"
        rounds = " ".join(str(r["round"]) for r in runs)
        cells = [_say(trial["values"][option]) for option in names]
        out.add_row(str(trial["number"]), *cells, figure, rounds, spent, _note(trial, told["best"]["number"]))
    return out


def _note(trial: Tree, best: int) -> str:
    notes = ["best"] * (trial["number"] == best) + ["published"] * (trial["number"] == 0)
    return ", ".join([*notes, *([trial["error"]] if trial["error"] else [])])


def _say(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def short(options: list[str]) -> dict[str, str]:
    """The last word of each option where that is enough to tell it from the others."""
    last = [option.rpartition(".")[2] for option in options]
    return {option: word if last.count(word) == 1 else option for option, word in zip(options, last)}
