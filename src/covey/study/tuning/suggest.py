"""The values to try next: first spread over the space, then from Optuna's TPE sampler."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from covey.core.errors import CoveyError

from .space import Space, Values
from .trial import Trial

STARTUP = 4  # finished trials before the estimator learns from them, including the published one
WORST = -1.0  # the value of a failed trial for the sampler; every metric is 0 or more


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
