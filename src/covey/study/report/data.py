"""Run folders as a report needs them: runs, methods with their seeds, and comparable settings."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from covey import __version__
from covey.core.errors import CoveyError
from covey.core.trust import check_tree, trusted
from covey.data.settings import SplitConfig
from covey.evaluate.settings import EvaluateConfig
from covey.run import ROUNDS
from covey.run.config.build import fill
from covey.run.config.schema import DataConfig, NegativesConfig
from covey.run.config.tree import parse
from covey.study.render.units import Point, Stat, known, points
from covey.study.render.wording import reference_name

DICTS = ("dataset", "test", "floor", "ceiling", "config")
NEEDED: dict[str, Any] = {"method": str, "seed": int, "rounds": int, "seconds": (int, float)}
NEEDED |= dict.fromkeys(DICTS, dict)
SPENT = ("round", "clients", "up_bytes", "down_bytes", "seconds")


@dataclass(frozen=True)
class Run:
    folder: Path
    result: dict[str, Any]
    rows: tuple[dict[str, Any], ...]  # of metrics.jsonl; none without training in rounds
    spent: tuple[dict[str, Any], ...] = ()  # of rounds.jsonl; none in folders of older versions

    @property
    def seed(self) -> int:
        return int(self.result["seed"])

    @property
    def label(self) -> str:
        return Path(self.result["method"]).stem or self.folder.resolve().name

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.result["config"])


@dataclass(frozen=True)
class Group:
    """The runs of one method: the same configuration with different seeds."""

    name: str
    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def pooled(self) -> bool:
        return "pooled" in self.first.config

    def test(self, metric: str) -> Stat:
        return Stat.of(float(run.result["test"].get(metric, math.nan)) for run in self.runs)

    def lists(self, figure: str) -> Stat:
        """Return how personal the lists are; NaN in results of older versions."""
        found = (run.result.get("lists", {}).get(figure, math.nan) for run in self.runs)
        return Stat.of(float(value) for value in found)

    def traffic(self, way: str) -> float | None:
        """Return the bytes of a whole run, `up` or `down`, averaged over the seeds."""
        known = [r.result["traffic"][f"{way}_bytes"] for r in self.runs if "traffic" in r.result]
        return statistics.fmean(known) if known else None

    def each(self, way: str) -> float | None:
        """Return the bytes of one client in one round."""
        rounds = [row for run in self.runs for row in run.spent if row["round"]]
        if rounds:
            clients = sum(row["clients"] for row in rounds)
            return float(sum(row[f"{way}_bytes"] for row in rounds)) / max(clients, 1)
        whole, run = self.traffic(way), self.first
        cohort = int(run.config.get("run", {}).get("cohort", 0))
        clients = cohort or int(run.result["dataset"]["users"])
        return None if whole is None else whole / max(run.result["rounds"], 1) / max(clients, 1)

    @property
    def seconds(self) -> float:
        return statistics.fmean(float(run.result["seconds"]) for run in self.runs)

    @property
    def round_seconds(self) -> float | None:
        """Training time of one round; for folders of older versions, a share of the whole run."""
        each = [float(row["seconds"]) for run in self.runs for row in run.spent if row["round"]]
        many = 0 if self.pooled else self.first.result["rounds"]
        return statistics.fmean(each) if each else self.seconds / many if many else None

    @property
    def private(self) -> list[dict[str, Any]]:
        """The fields that the method sends, without those that are sent for evaluation."""
        return [row for row in self.first.result.get("ledger", ()) if row["step"] != "evaluate"]

    def curve(self, part: str, metric: str) -> list[Point]:
        rows = (row for run in self.runs for row in run.rows)
        found = ((int(row["round"]), row.get(part, {}).get(metric)) for row in rows)
        return points(found, len(self.runs))


@dataclass(frozen=True)
class Setting:
    """Runs that can be compared: they share dataset, split and evaluation."""

    groups: tuple[Group, ...]

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]

    @property
    def metrics(self) -> list[str]:
        """Return the names of the metrics, the one that selects the round first."""
        return selecting_first(self.runs[0].result)

    @property
    def activities(self) -> list[str]:
        parts = (k.partition("/")[2] for k in self.runs[0].result["test"] if "/" in k)
        return list(dict.fromkeys(parts))

    def others(self, kind: str) -> dict[str, dict[str, float]]:
        """Return the references that are not among the groups."""
        own = {reference_name(g.first.result, g.first.label) for g in self.groups}
        return {n: figures for n, figures in references(self.runs, kind).items() if n not in own}

    def role(self, group: Group) -> str:
        """Return whether a method on pooled data is a floor or a ceiling; "" if federated."""
        if not group.pooled:
            return ""
        label, result = group.first.label, group.first.result
        if label in result["floor"]:
            return "floor"
        return "ceiling, pooled data" if label in result["ceiling"] else "pooled data"

    @property
    def title(self) -> str:
        data = self.runs[0].result["dataset"]
        presets = dict.fromkeys(run.result.get("preset", "") for run in self.runs)
        named = "".join(f", {preset}" for preset in presets if preset)
        return f"{data['name']} ({data['users']:,} users, {data['items']:,} items){named}"

    @property
    def protocol(self) -> str:
        """Describe the split and the evaluation."""
        _, split, negatives, evaluate = _protocol(self.runs[0])
        kinds = {
            "loo": "the test set is the last item of each user",
            "ratio": f"the test set is {split.test:.0%} of each user's items",
            "given": "the split comes with the data",
        }
        last = f"the test set is the last {split.test:.0%} of all rows"
        words = [kinds.get(split.kind, last), f"order: {split.order}"]
        seen = "all items are ranked, including seen ones"
        full = "all unseen items are ranked" if evaluate.seen == "filtered" else seen
        sampled = "test items are ranked among 99 sampled items, not the catalogue"
        words.append(full if evaluate.candidates == "full" else sampled)
        if negatives.pool == "all":
            words.append("negative samples avoid held-out items, which leaks these")
        return "; ".join(words)


def selecting_first(result: dict[str, Any]) -> list[str]:
    """Return a run's metrics: the one that selects the round, those of its cut-off, the others."""
    select = str(result.get("config", {}).get("evaluate", {}).get("select", ""))
    names = (k for k in result["test"] if "/" not in k)
    return sorted(names, key=lambda k: (k != select, k.split("@")[-1] != select.split("@")[-1]))


def references(runs: Sequence[Run], kind: str) -> dict[str, dict[str, float]]:
    """Return the floors or ceilings of some runs, with the lists that these are scored from."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        for name, figures in run.result[kind].items():
            mine = found.setdefault(reference_name(run.result, name), {})
            for metric, value in figures.items():
                mine.setdefault(metric, []).append(float(value))
    return {n: {k: Stat.of(values).mean for k, values in of.items()} for n, of in found.items()}


def _protocol(run: Run) -> tuple[DataConfig, SplitConfig, NegativesConfig, EvaluateConfig]:
    tree = {k: run.config.get(k, {}) for k in ("data", "split", "negatives", "evaluate")}
    parts = fill(DataConfig, tree["data"], "data"), fill(SplitConfig, tree["split"], "split")
    negatives = fill(NegativesConfig, tree["negatives"], "negatives")
    evaluate = fill(EvaluateConfig, tree["evaluate"], "evaluate")
    # These have no effect on a round's figures.
    return *parts, negatives, replace(evaluate, every=1, select="", targets=())


def read_run(folder: Path) -> Run:
    path = folder / "result.json"
    if not folder.is_dir():
        start = f"start one with covey run --out {folder}"
        raise CoveyError(f"there is no run folder {folder}; {start}")
    if not path.exists():
        hint = "no run; start one with covey run --out"
        if (folder / "config.toml").exists():
            hint = f"the run is not finished; finish it with covey resume {folder}"
        raise CoveyError(f"{folder} has no result.json: {hint}")
    result = _json(path.read_bytes(), path)
    wrong = [k for k, kind in NEEDED.items() if not isinstance(result.get(k), kind)]
    if wrong or not {"name", "users", "items"} <= set(result["dataset"]):
        this = f"not {__version__}; run it again with covey run"
        raise CoveyError(f"{path} was written by another version of covey, {this}")
    check_tree(result["config"], trusted())
    if (folder / "config.toml").exists():
        check_tree(parse(folder / "config.toml"), trusted())
    spent = _rows(folder / ROUNDS)
    if any(not isinstance(row.get(k), int | float) for row in spent for k in SPENT):
        other = f"{folder / ROUNDS} was written by another version of covey"
        raise CoveyError(f"{other}; run it again with covey run")
    return Run(folder, result, _rows(folder / "metrics.jsonl"), spent)


def _rows(path: Path) -> tuple[dict[str, Any], ...]:
    lines = path.read_bytes().splitlines() if path.exists() else []
    return tuple(_json(line, path) for line in lines)


def _json(raw: bytes, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(raw)
        if not isinstance(found, dict):
            raise ValueError("it holds no object")
    except ValueError as error:
        again = "run it again with covey run and another --out"
        raise CoveyError(f"{path} is damaged ({error}); {again}") from error
    return found


def read_settings(folders: Sequence[Path]) -> list[Setting]:
    """Group run folders that can be compared; in each: floor, federated methods, pooled ones."""
    runs = [read_run(folder) for folder in {f.resolve(): f for f in folders}.values()]
    settings: dict[str, list[Run]] = {}
    for run in runs:
        parts = [asdict(part) for part in _protocol(run)]
        same = [run.result["dataset"], parts, sorted(run.result["test"])]
        settings.setdefault(json.dumps(same, sort_keys=True), []).append(run)
    return [Setting(_groups(mine)) for mine in settings.values()]


def _groups(runs: Sequence[Run]) -> tuple[Group, ...]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        # The configuration without the seed and what changes no result.
        tree = {k: v for k, v in run.config.items() if k != "engine"}
        own = tree.get("run", {}).items()
        tree["run"] = {k: v for k, v in own if k not in ("seed", "checkpoint")}
        same = [run.result["method"], run.result.get("preset", ""), tree]
        found.setdefault(json.dumps(same, sort_keys=True), []).append(run)
    for mine in found.values():
        seeds = [run.seed for run in mine]
        if len(set(seeds)) < len(seeds):
            twin = next(run for i, run in enumerate(mine) if run.seed in seeds[:i])
            wrong = f"{twin.folder} repeats a run of seed {twin.seed}"
            raise CoveyError(f"{wrong}, and equal runs have no spread; leave one out")
    names = unique_names([mine[0] for mine in found.values()])
    groups = [Group(name, tuple(mine)) for name, mine in zip(names, found.values())]
    return tuple(sorted(groups, key=_place))


def unique_names(runs: Sequence[Run]) -> list[str]:
    """Name runs by their method, and by their folder too where the method is not unique."""
    labels = [run.label for run in runs]
    longer = (f"{run.label} ({run.folder.resolve().name})" for run in runs)
    return [name if labels.count(name) == 1 else more for name, more in zip(labels, longer)]


def _place(group: Group) -> tuple[int, float]:
    """Sort the floor first, then federated and pooled methods, each by ascending quality."""
    there = known(group.first.result["test"])
    first = next((m for m in selecting_first(group.first.result) if m in there), "")
    kind = 0 if group.first.label == "popularity" else 2 if group.pooled else 1
    return kind, group.test(first).mean
