"""Validates overrides from the command line and `fit`; files may set options without effect."""

from collections.abc import Iterable, Iterator

from covey.core.errors import CoveyError

from .tree import Tree, assign, assignment

# Options of [run] without effect on pooled training, and of [data] on all but synthetic data.
ROUNDS = ("rounds", "unit", "cohort", "schedule", "late")
SIZES = ("users", "items", "mean_items", "groups", "seed")


def changed(tree: Tree, assignments: Iterable[str]) -> Tree:
    """Applies assignments; a new list of mechanisms must be empty or keep those of the method."""
    for text in assignments:
        after = assign(tree, [text])
        if assignment(text)[0] == ["mechanism"]:
            check_keeps_mechanisms(tree, after)
        tree = after
    return tree


def check_keeps_mechanisms(before: Tree, after: Tree) -> None:
    """Refuses a list of mechanisms that leaves out some of those before it."""
    old, new = _uses(before), _uses(after)
    if after.get("mechanism") and (lost := [use for use in old if use not in new]):
        owner = before.get("method", "the method")
        wrong = f"this list of mechanisms leaves out {lost[0]}, which {owner} has"
        ways = "add to it with 'mechanism.+={use=\"...\"}', or empty it first with 'mechanism=[]'"
        raise CoveyError(f"{wrong}; {ways}")


def _uses(tree: Tree) -> list[str]:
    found = tree.get("mechanism", [])
    listed = found if isinstance(found, list) else []
    return [str(m.get("use")) for m in listed if isinstance(m, dict)]


def options_in(assignments: Iterable[str]) -> Iterator[str]:
    """Names of assigned options, such as run.rounds; a section yields all options in it."""
    for text in assignments:
        keys, value = assignment(text)
        yield ".".join(keys)
        yield from (".".join([*keys, key]) for key in value) if isinstance(value, dict) else ()


def check_applies(tree: Tree, options: Iterable[str]) -> None:
    """Refuses options that would have no effect."""
    given, dataset = set(options), tree.get("data", {}).get("name", "synthetic")
    for option in (f"run.{name}" for name in ROUNDS if "pooled" in tree):
        if option in given:
            method = tree.get("method", "this method")
            why = f"trains on pooled data, where {option} means nothing"
            raise CoveyError(f"{method} {why}; leave it out, or set pooled.epochs if it has them")
    for option in (f"data.{name}" for name in SIZES if dataset != "synthetic"):
        if option in given:
            wrong = f"{option} is of the built-in dataset 'synthetic' and changes no other"
            raise CoveyError(f"{wrong}; leave it out, or name that one")
