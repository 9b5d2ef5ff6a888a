"""A search as text of 80 columns: its trials, best first, and what they cost."""

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
    place = {t["number"]: (t["value"] is None, -(t["value"] or 0.0)) for t in search["trials"]}
    for trial in sorted(search["trials"], key=lambda t: (place[t["number"]], t["number"])):
        runs, number = trial["runs"], trial["number"]
        spent = f"{sum(r['cpu_seconds'] for r in runs):.1f}"
        rounds = " ".join(str(r["round"]) for r in runs)
        values = (trial["values"][option] for option in names)
        cells = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in values]
        figure = "failed" if trial["value"] is None else f"{trial['value']:.4f}"
        notes = ["best"] * (number == search["best"]["number"]) + ["published"] * (number == 0)
        notes += [trial["error"]] if trial["error"] else []
        out.add_row(str(number), *cells, figure, rounds, spent, ", ".join(notes))
    return out


def short(options: list[str]) -> dict[str, str]:
    """Return the last part of each option's name where that part is unique."""
    last = [option.rpartition(".")[2] for option in options]
    pairs = zip(options, last)
    return {option: word if last.count(word) == 1 else option for option, word in pairs}
