"""Composes configurations from a method, presets, a dataset and overrides, in this order."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from covey.core.errors import CoveyError

from .overrides import changed, check_applies, check_keeps_mechanisms, options_in
from .schema import Config
from .shipped import read
from .tree import Tree, merge, parse


def compose(
    method: str = "",
    *,
    file: str = "",
    label: str = "",
    presets: Sequence[str] = (),
    dataset: str | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    sections: Tree | None = None,
    set: Iterable[str] = (),
) -> Tree:
    """Returns the configuration that these describe; each argument overrides those before it.

    Args:
        method: A shipped method by name, or the path of a TOML file.
        file: The path of a TOML file on top of the method, or in its place.
        label: What the configuration calls the method; otherwise `method` itself.
        presets: Shipped presets by name, or paths of TOML files; "one + two" names two of them.
        dataset, rounds, seed: For `data.name`, `run.rounds` and `run.seed`.
        sections: Sections of a configuration as nested dictionaries.
        set: Assignments such as `model.dim=16`, as `--set` takes them.
    """
    tree = read("methods", method) | {"method": label or method} if method else {}
    tree = merge(tree, parse(Path(file)) if file else {})
    presets = [name.strip() for preset in presets for name in _names(preset)]
    for preset in presets:
        tree = merge(tree, _of_method(preset, read("presets", preset), Path(method).stem))
    if presets:
        tree = tree | {"preset": " + ".join(presets)}
    given = (("data", "name", dataset), ("run", "rounds", rounds), ("run", "seed", seed))
    for section, key, value in given:
        tree = merge(tree, {section: {key: value}} if value is not None else {})
    if sections and "mechanism" in sections:
        check_keeps_mechanisms(tree, sections)
    return changed(merge(tree, sections or {}), set)


def _names(presets: str) -> list[str]:
    return [presets] if Path(presets).is_file() else presets.split("+")


def _of_method(name: str, preset: Tree, method: str) -> Tree:
    """Returns a preset with what it has for a method, if it has own settings of some methods."""
    if "methods" not in preset:
        return preset
    known = preset["methods"]
    if method not in known:
        wrong = f"preset {name!r} has no settings of {method or 'a method of this name'!r}"
        raise CoveyError(f"{wrong}; it has those of {', '.join(known)}")
    return merge({k: v for k, v in preset.items() if k != "methods"}, known[method])


def checked(
    tree: Tree,
    set: Iterable[str] = (),
    *,
    rounds: int | None = None,
    sections: Tree | None = None,
    trust: Iterable[str] = (),
) -> Config:
    """Builds what `compose` returned for the same arguments; one without effect is an error."""
    config = Config.of(tree, trust)
    given = [] if rounds is None else ["run.rounds"]
    check_applies(tree, [*options_of(sections or {}), *options_in(set), *given])
    return config


def options_of(sections: Tree) -> Iterator[str]:
    """Names of all options in the sections, such as model.dim."""
    for name, section in sections.items():
        yield from (f"{name}.{key}" for key in section) if isinstance(section, dict) else ()
