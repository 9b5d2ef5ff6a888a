"""The search: trial 0 is the published setting, the others are suggested in batches of one per job.

A suggestion depends on the seed, on the number of the trial and on the trials of earlier batches.
So an interrupted search resumes with the trials that it would have had, and a finished one can be
extended by more trials. Values are first spread over the space, then from Optuna's TPE sampler.
"""

import hashlib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.core import CoveyError, positive, toml_writer
from covey.core.processes import processes
from covey.run.assemble import method_of, prepare
from covey.run.config.schema import Config
from covey.run.config.tree import Tree, assign
from covey.run.workers import sharing

from .space import Space, Values, apply, check, preset
from .trial import RUNS, Run, Trial, opened, validated

STARTUP = 4  # finished trials before the estimator learns from them, including the published one
WORST = -1.0  # the value of a failed trial for the sampler; every metric is 0 or more
Progress = Callable[[str], None]
Pool = ProcessPoolExecutor | None  # None for one job


@dataclass(frozen=True)
class Search:
    """The definition of a search: the configuration that is tuned, and the space of its options.

    `declarations` are the same space as text. The published setting is one of the `trials`, each of
    which is run with `seeds` seeds.
    """

    tree: Tree
    space: Space
    declarations: dict[str, str]
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

    @property
    def about(self) -> Tree:
        """The names of what is tuned."""
        tree = self.config.tree
        names = {"method": tree.get("method", ""), "dataset": self.config.data.name}
        return names | {"preset": tree.get("preset", "")}

    def configs(self, number: int, values: Values) -> list[Config]:
        """Return the runs of a trial, which need no ceilings."""
        tree = assign(apply(self.tree, values if number else {}), ["run.ceilings=[]"])
        first = self.config.run.seed
        return [Config.of(assign(tree, [f"run.seed={first + k}"])) for k in range(self.seeds)]

    def identity(self) -> Tree:
        """Return what must be equal for trials to belong to one search."""
        parts = {"seeds": self.seeds, "space": self.declarations, "config": self.tree}
        return tomllib.loads(toml_writer.dumps(parts))


def search(
    plan: Search, out: Path, jobs: int = 1, progress: Progress = lambda line: None
) -> list[Trial]:
    """Return all trials in order; trials that `out` already holds are not repeated."""
    positive("tune", jobs=jobs)
    needed()
    prepared = prepare(plan.config)
    if not len(prepared.split.valid.values):  # would fail in every trial
        wrong = "nothing is held out for validation, and tuning never uses the test part"
        remedy = "set split.valid above 0, or use a preset with a validation part, such as loo-full"
        raise CoveyError(f"{wrong}; {remedy}")
    if "pooled" not in plan.config.tree:
        method_of(plan.config, prepared.catalogue)
    done: list[Trial] = []
    with opened(out, plan.identity()) as journal, _pool(jobs) as pool:
        for first in range(0, plan.trials, jobs):
            numbers = range(first, min(first + jobs, plan.trials))
            values = suggest(plan.space, plan.published, done, numbers, plan.config.run.seed)
            todo = {n: v for n, v in values.items() if n not in journal.trials}
            for trial in _trials(plan, todo, out / RUNS, pool, jobs):
                journal.add(trial)
                each = ", ".join(f"{k} {v}" for k, v in trial.values.items())
                end = f"failed: {trial.error}"
                if not trial.error:
                    end = f"{plan.metric} {trial.value:.4f} on validation"
                progress(f"trial {trial.number} ({plan.trials} in all), {each}: {end}")
            done += [journal.trials[n] for n in numbers]
    if all(trial.error for trial in done):
        raise CoveyError(f"all {len(done)} trials failed; the first: {done[0].error}")
    return done


def best_of(trials: Iterable[Trial]) -> Trial:
    """Return the best trial on validation, and the earliest of equals."""
    return max(trials, key=lambda t: (WORST if t.value is None else t.value, -t.number))


def summary(plan: Search, trials: Sequence[Trial]) -> Tree:
    """Return the search as plain data, with its budget."""
    best, runs = best_of(trials), [r for t in trials for r in t.runs]
    costs = ("rounds", "seconds", "cpu_seconds")
    return {
        **plan.about,
        "metric": plan.metric,
        "space": plan.declarations,
        "budget": {
            "trials": len(trials),
            "failed": sum(bool(t.error) for t in trials),
            "seeds": plan.seeds,
            "runs": len(runs),
            **{name: round(sum(getattr(r, name) for r in runs), 3) for name in costs},
        },
        "published": trials[0].value,
        "best": {"number": best.number, "value": best.value, "values": best.values},
        "trials": [{**t.plain(), "value": t.value, "error": t.error} for t in trials],
    }


def preset_of(plan: Search, trials: Sequence[Trial], commit: str) -> Tree:
    """Return the best values, without the protocol, as a preset labelled with its cost."""
    best = best_of(trials)
    label = {"trials": len(trials), "seeds": plan.seeds, "metric": plan.metric, "value": best.value}
    return {**preset(plan.tree, best.values), "tuned": label | plan.about | {"commit": commit}}


@contextmanager
def _pool(jobs: int) -> Iterator[Pool]:
    """Yield processes of one thread each, or None for one job."""
    with nullcontext() if jobs == 1 else processes(jobs) as pool:
        try:
            yield pool
        except BaseException:
            if pool:
                pool.shutdown(wait=False, cancel_futures=True)
            raise


def _trials(
    plan: Search, todo: Mapping[int, Values], folder: Path, pool: Pool, jobs: int
) -> Iterator[Trial]:
    """Yield trials as they finish; equal runs are run once."""
    wanted = {number: plan.configs(number, values) for number, values in todo.items()}
    found: dict[str, Run] = {}
    each = {c.digest(): c for configs in wanted.values() for c in configs}
    each = dict(zip(each, sharing(jobs, list(each.values()))))
    for digest, result in _runs(each, folder, pool):
        found[digest] = result
        for number, configs in list(wanted.items()):
            if all(c.digest() in found for c in configs):
                yield Trial(number, todo[number], tuple(found[c.digest()] for c in configs))
                del wanted[number]


def _runs(configs: Mapping[str, Config], folder: Path, pool: Pool) -> Iterator[tuple[str, Run]]:
    if pool is None:
        yield from ((digest, validated(config, folder)) for digest, config in configs.items())
        return
    running = {pool.submit(validated, config, folder): digest for digest, config in configs.items()}
    try:
        yield from ((running[done], done.result()) for done in as_completed(running))
    except BrokenProcessPool as error:
        wrong = "a process of the search died, as one that needs too much memory does"
        raise CoveyError(f"{wrong}; try fewer --jobs: finished trials are kept") from error


def suggest(
    space: Space, published: Values, done: Sequence[Trial], numbers: Iterable[int], seed: int
) -> dict[int, Values]:
    """Return the values of the next trials by number; only trials of earlier batches count."""
    optuna = needed()
    study = optuna.create_study(direction="maximize")
    kinds = {k: axis.distribution(optuna.distributions) for k, axis in space.items()}
    for trial in done:
        # Published values may lie outside the space; the estimator cannot use these.
        if all(axis.holds(trial.values[option]) for option, axis in space.items()):
            value = WORST if trial.value is None else trial.value
            params = {k: axis.code(trial.values[k]) for k, axis in space.items()}
            made = optuna.trial.create_trial(value=value, params=params, distributions=kinds)
            study.add_trial(made)
    out = {}
    for number in numbers:
        if number == 0 or len(done) < STARTUP:
            out[number] = spread(space, number, seed) if number else published
            continue
        study.sampler = optuna.samplers.TPESampler(seed=_draw(seed, number), n_startup_trials=1)
        asked = study.ask(kinds).params
        out[number] = {k: axis.clean(asked[k]) for k, axis in space.items()}
    return out


def spread(space: Space, number: int, seed: int) -> Values:
    """Return point `number` of a low-discrepancy sequence: irrational steps from a seeded start."""
    ratio = 1.0
    for _ in range(32):
        # The root of x^(d+1) = x + 1, which is the golden ratio for one option.
        ratio = (1 + ratio) ** (1 / (len(space) + 1))
    steps = {option: ratio ** -(k + 1) for k, option in enumerate(space)}
    starts = {option: _draw(seed, option) / 2**32 for option in space}
    places = {option: (starts[option] + number * steps[option]) % 1 for option in space}
    return {option: axis.at(places[option]) for option, axis in space.items()}


def _draw(seed: int, what: object) -> int:
    """Return 32 bits that depend on the arguments only."""
    return int(hashlib.sha256(f"tune {seed} {what}".encode()).hexdigest()[:8], 16)


def needed() -> Any:
    """Return the module of Optuna, or raise an error that tells how to install it."""
    try:
        import optuna
    except ImportError as error:
        missing = "covey tune needs Optuna; install it with: pip install 'covey[hpo]'"
        raise CoveyError(missing) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
