"""Which values a search tries next: some spread over the space, then Optuna's tree-structured Parzen estimator."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from covey.core.errors import CoveyError

from .space import Choices, Space, Values
from .trial import Trial

STARTUP = 4  # finished trials before the estimator learns from them, the published one among them
WORST = -1.0  # what the sampler is told of a trial that failed; every metric is 0 or more


def suggest(
    space: Space, published: Values, done: Sequence[Trial], numbers: Iterable[int], seed: int
) -> dict[int, Values]:
    """Values of the next trials by number, a pure function of all this; those asked together know of each other."""
    optuna = needed()
    study, kinds = (
        optuna.create_study(direction="maximize"),
        {k: _kind(axis, optuna) for k, axis in space.items()},
    )
    for trial in done:
        if all(
            axis.holds(trial.values[option]) for option, axis in space.items()
        ):  # published ones may be outside
            value = WORST if trial.value is None else trial.value
            params = {k: _code(axis, trial.values[k]) for k, axis in space.items()}
            study.add_trial(
                optuna.trial.create_trial(value=value, params=params, distributions=kinds)
            )
    out = {}
    for number in numbers:
        if number == 0 or len(done) < STARTUP:
            out[number] = spread(space, number, seed) if number else published
            continue
        study.sampler = optuna.samplers.TPESampler(seed=_draw(seed, number), n_startup_trials=1)
        asked = study.ask(kinds).params
        out[number] = {k: _value(axis, asked[k]) for k, axis in space.items()}
    return out


def spread(space: Space, number: int, seed: int) -> Values:
    """Points far from each other, as few random ones are not: steps of irrational size, from a start by the seed."""
    ratio = 1.0
    for _ in range(32):
        ratio = (1 + ratio) ** (
            1 / (len(space) + 1)
        )  # the root of x^(d+1) = x + 1; for one option the golden ratio
    steps = {option: ratio ** -(k + 1) for k, option in enumerate(space)}
    starts = {option: _draw(seed, option) / 2**32 for option in space}
    return {
        option: axis.at((starts[option] + number * steps[option]) % 1)
        for option, axis in space.items()
    }


def _draw(seed: int, what: object) -> int:
    """32 bits that depend on nothing else."""
    return int(hashlib.sha256(f"tune {seed} {what}".encode()).hexdigest()[:8], 16)


def needed() -> Any:
    """Optuna, or how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise CoveyError(
            "covey tune needs Optuna; install it with: pip install 'covey[hpo]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _kind(axis: Any, optuna: Any) -> Any:
    kinds = optuna.distributions
    if isinstance(axis, Choices):
        return kinds.CategoricalDistribution(range(len(axis.values)))
    return (kinds.IntDistribution if axis.whole else kinds.FloatDistribution)(
        axis.low, axis.high, log=axis.log
    )


def _code(axis: Any, value: Any) -> Any:
    return axis.values.index(value) if isinstance(axis, Choices) else value


def _value(axis: Any, code: Any) -> Any:
    return axis.values[code] if isinstance(axis, Choices) else axis.clean(code)
