"""Small searches, for the tests of `covey tune`."""

from covey.run.config.shipped import read
from covey.run.config.tree import assign
from covey.study.tuning.search import Search
from covey.study.tuning.space import space_of

SMALL = ("data.users=30", "data.items=60", "data.mean_items=8", "run.rounds=2", "model.dim=4")
EASE = ("data.users=30", "data.items=60", "data.mean_items=8")


def plan_of(
    method: str = "fedmf", *more: str, trials: int = 4, seeds: int = 1, space: tuple[str, ...] = ()
) -> Search:
    small = EASE if method in ("ease", "mf", "ncf") else SMALL
    tree = assign(read("methods", method) | {"method": method}, [*small, *more])
    return Search(tree, *space_of(method, space), trials, seeds)
