"""Which clients take part in which round, as a function of the configuration alone."""

from typing import Any

from torch import Tensor

from covey.core import Rng, Round
from covey.run.config.schema import Config


def rounds_of(config: Config, n: int) -> int:
    """The number of rounds of a run with n clients."""
    return config.run.rounds * (batches_of(config, n) if config.run.unit == "pass" else 1)


def ends_early(config: Config, n: int, number: int, best: dict[str, Any]) -> bool:
    """Whether a run stops after a round, since none after `best` was better on validation."""
    if not is_measured(config, n, number):  # only such a round can be the last
        return False
    wait = config.run.patience * (batches_of(config, n) if config.run.unit == "pass" else 1)
    return wait > 0 and "valid" in best and number - int(best["round"]) >= wait


def is_measured(config: Config, n: int, number: int) -> bool:
    """Whether the clients are evaluated after a round."""
    rounds = batches_of(config, n) if config.evaluate.unit == "pass" else 1
    return number % (config.evaluate.every * rounds) == 0 or number == rounds_of(config, n)


def batches_of(config: Config, n: int) -> int:
    """The number of cohorts in one pass over n clients."""
    return -(-n // config.run.cohort) if config.run.cohort else 1


def smallest_cohort(config: Config, n: int) -> int:
    """The size of the smallest cohort of n clients: the last one of a pass is what is left."""
    size = min(config.run.cohort or n, n)
    return n - (batches_of(config, n) - 1) * size if config.run.schedule == "pass" else size


def joins_late(config: Config, number: int, total: int) -> bool:
    """Whether the clients that were absent at the start join before this round."""
    return bool(config.run.late) and number == total // 2 + 1


def cohort(config: Config, ids_N: Tensor, number: int) -> Round:
    """Returns the round with its cohort: a batch of a shuffled pass over all, or a fresh sample."""
    size, n = config.run.cohort or len(ids_N), len(ids_N)
    batches = batches_of(config, n)
    turn, place = divmod(number - 1, batches)
    draw = turn if config.run.schedule == "pass" else number
    order = Rng.server(config.run.seed, draw, "cohort").to(ids_N.device).permutation(n)[0]
    if config.run.schedule == "sample":
        place = 0
    opens, closes = (number - 1) % batches == 0, number % batches == 0
    return Round(number, ids_N[order[place * size : (place + 1) * size]], opens, closes)
