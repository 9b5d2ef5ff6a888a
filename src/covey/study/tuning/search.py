"""The search: trial 0 is the published setting, the others are suggested in batches of as many as run together.

Suggestions depend on the seed, the number of the trial and the trials of earlier batches. So a search that was
killed goes on to the same trials as one that was not, and more trials go on with a search of fewer.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from covey.core import toml_writer
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.processes import processes
from covey.run.assemble import method_of, prepare
from covey.run.config.schema import Config
from covey.run.config.tree import Tree, assign

from .journal import RUNS, opened
from .space import Space, Values, apply, check, preset
from .suggest import WORST, needed, suggest
from .trial import Run, Trial, validated

Say = Callable[[str], None]


@dataclass(frozen=True)
class Search:
    """What is searched, by how many trials of how many seeds each."""

    tree: Tree
    space: Space
    told: dict[str, str]  # the space as it was declared
    trials: int
    seeds: int = 1
    published: Values = field(init=False)

    def __post_init__(self) -> None:
        positive("tune", trials=self.trials, seeds=self.seeds)
        object.__setattr__(self, "published", check(self.tree, self.space))

    @property
    def metric(self) -> str:
        return self.config.evaluate.selector

    @property
    def config(self) -> Config:
        return Config.of(self.tree)

    def configs(self, number: int, values: Values) -> list[Config]:
        """The runs of a trial, without the ceilings beside them."""
        tree = apply(self.tree, values if number else {})
        first = self.config.run.seed
        return [
            Config.of(assign(tree, ["run.ceilings=[]", f"run.seed={first + k}"]))
            for k in range(self.seeds)
        ]

    def identity(self) -> Tree:
        """What must be the same for trials to be of one search; more trials go on with it."""
        text = toml_writer.dumps({"seeds": self.seeds, "space": self.told, "config": self.tree})
        return tomllib.loads(text)


def search(plan: Search, out: Path, jobs: int = 1, say: Say = lambda line: None) -> list[Trial]:
    """All trials in order; what `out` holds of the same search is not repeated."""
    positive("tune", jobs=jobs)
    needed()
    _possible(plan.config)
    done: list[Trial] = []
    with opened(out, plan.identity()) as journal, _pool(jobs) as pool:
        for first in range(0, plan.trials, jobs):
            numbers = range(first, min(first + jobs, plan.trials))
            values = suggest(plan.space, plan.published, done, numbers, plan.config.run.seed)
            todo = {n: v for n, v in values.items() if n not in journal.trials}
            for trial in _trials(plan, todo, out / RUNS, pool):
                journal.add(trial)
                say(_line(plan, trial))
            done += [journal.trials[n] for n in numbers]
    if all(trial.error for trial in done):
        raise CoveyError(f"all {len(done)} trials failed; the first: {done[0].error}")
    return done


def best_of(trials: Iterable[Trial]) -> Trial:
    """The best on validation, the earlier of equals: the published setting unless another is better."""
    return max(trials, key=lambda t: (WORST if t.value is None else t.value, -t.number))


def summary(plan: Search, trials: Sequence[Trial]) -> Tree:
    """The search for a program to read, with its budget."""
    best, config, runs = best_of(trials), plan.config, [r for t in trials for r in t.runs]
    total = lambda name: round(sum(getattr(r, name) for r in runs), 3)
    return {
        "method": config.tree.get("method", ""),
        "dataset": config.data.name,
        "preset": config.tree.get("preset", ""),
        "metric": plan.metric,
        "space": plan.told,
        "budget": {
            "trials": len(trials),
            "failed": sum(bool(t.error) for t in trials),
            "seeds": plan.seeds,
            "runs": len(runs),
            **{name: total(name) for name in ("rounds", "seconds", "cpu_seconds")},
        },
        "published": trials[0].value,
        "best": {"number": best.number, "value": best.value, "values": best.values},
        "trials": [{**t.plain(), "value": t.value, "error": t.error} for t in trials],
    }


def preset_of(plan: Search, trials: Sequence[Trial], commit: str) -> Tree:
    """The best values and nothing of the protocol, labelled with what they cost."""
    best, config = best_of(trials), plan.config
    label = {
        "trials": len(trials),
        "seeds": plan.seeds,
        "metric": plan.metric,
        "value": best.value,
        "method": config.tree.get("method", ""),
        "dataset": config.data.name,
        "preset": config.tree.get("preset", ""),
        "commit": commit,
    }
    return {**preset(plan.tree, best.values), "tuned": label}


def _possible(config: Config) -> None:
    """What would fail in every trial fails here."""
    prepared = prepare(config)
    if not len(prepared.split.valid.values):
        raise CoveyError(
            "nothing is held out for validation, and the test part selects nothing;"
            " set split.valid above 0, or use a preset with a validation part, such as loo-full"
        )
    if "pooled" not in config.tree:
        method_of(config, prepared.catalogue)


def _line(plan: Search, trial: Trial) -> str:
    said = ", ".join(f"{k} {v}" for k, v in trial.values.items())
    end = (
        f"failed: {trial.error}"
        if trial.error
        else f"{plan.metric} {trial.value:.4f} on validation"
    )
    return f"trial {trial.number} ({plan.trials} in all), {said}: {end}"


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor | None]:
    """Processes of one thread each; none for one job."""
    with nullcontext() if jobs == 1 else processes(jobs) as pool:
        try:
            yield pool
        except BaseException:
            if pool:
                pool.shutdown(wait=False, cancel_futures=True)
            raise


def _trials(
    plan: Search, todo: Mapping[int, Values], folder: Path, pool: ProcessPoolExecutor | None
) -> Iterator[Trial]:
    """Trials as they are finished; equal runs are run once."""
    wanted = {number: plan.configs(number, values) for number, values in todo.items()}
    found: dict[str, Run] = {}
    for digest, result in _runs(
        {c.digest(): c for configs in wanted.values() for c in configs}, folder, pool
    ):
        found[digest] = result
        for number, configs in list(wanted.items()):
            if all(c.digest() in found for c in configs):
                yield Trial(number, todo[number], tuple(found[c.digest()] for c in configs))
                del wanted[number]


def _runs(
    configs: Mapping[str, Config], folder: Path, pool: ProcessPoolExecutor | None
) -> Iterator[tuple[str, Run]]:
    if pool is None:
        yield from ((digest, validated(config, folder)) for digest, config in configs.items())
        return
    running = {pool.submit(validated, config, folder): digest for digest, config in configs.items()}
    try:
        yield from ((running[done], done.result()) for done in as_completed(running))
    except BrokenProcessPool as error:
        raise CoveyError(
            "a process of the search died, as one that needs too much memory does;"
            " try fewer --jobs: finished trials are kept"
        ) from error
