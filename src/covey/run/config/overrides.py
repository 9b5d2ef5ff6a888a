"""What somebody says on top of a method, on the command line or to `fit`: nothing of it is lost in silence.

Files are not held to this. One table sets the rounds of federated and pooled rows alike.
"""

from collections.abc import Iterable, Iterator

from covey.core.errors import CoveyError

from .schema import Config
from .tree import Tree, assign, assignment

ROUNDS = ("rounds", "unit", "cohort", "schedule", "late")  # of [run]: pooled training has none
SIZES = (
    "users",
    "items",
    "mean_items",
    "groups",
    "seed",
)  # of [data]: how the synthetic one is generated


def changed(tree: Tree, assignments: Iterable[str]) -> Tree:
    """`assign`, except that a list of mechanisms may not leave out those that were there; an empty one means it."""
    for text in assignments:
        after = assign(tree, [text])
        if assignment(text)[0] == ["mechanism"]:
            keeps_mechanisms(tree, after)
        tree = after
    return tree


def keeps_mechanisms(before: Tree, after: Tree) -> None:
    old, new = _uses(before), _uses(after)
    if after.get("mechanism") and (lost := [use for use in old if use not in new]):
        raise CoveyError(
            f"this list of mechanisms leaves out {lost[0]}, which {before.get('method', 'the method')} has; add to it"
            " with 'mechanism.+={use=\"...\"}', or empty it first with 'mechanism=[]'"
        )


def _uses(tree: Tree) -> list[str]:
    listed = tree.get("mechanism", [])
    return (
        [str(m.get("use")) for m in listed if isinstance(m, dict)]
        if isinstance(listed, list)
        else []
    )


def options_in(assignments: Iterable[str]) -> Iterator[str]:
    """Names such as run.rounds, also where a whole section is given."""
    for text in assignments:
        keys, value = assignment(text)
        yield ".".join(keys)
        yield from (".".join([*keys, key]) for key in value) if isinstance(value, dict) else ()


def check_applies(config: Config, options: Iterable[str]) -> None:
    """Refuses options that would change nothing."""
    said = set(options)
    pooled, method = config.part("pooled"), config.tree.get("method", "this method")
    for option in (f"run.{name}" for name in ROUNDS if pooled is not None):
        if option in said:
            epochs = ", or set pooled.epochs" if hasattr(pooled, "epochs") else ""
            raise CoveyError(
                f"{method} trains on pooled data, where {option} means nothing; leave it out{epochs}"
            )
    for option in (f"data.{name}" for name in SIZES if config.data.name != "synthetic"):
        if option in said:
            raise CoveyError(
                f"{option} is of the built-in dataset 'synthetic' and changes no other; leave it out, or name that one"
            )
