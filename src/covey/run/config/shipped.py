"""The configurations that come with covey, by kind and name."""

from importlib import resources
from pathlib import Path

from covey.core.errors import CoveyError
from covey.run.config.build import _hint

from .tree import Tree, parse


def shipped(kind: str) -> dict[str, Path]:
    """The configurations that come with covey: "methods", "presets", "attacks", "defences" or "spaces"."""
    return {p.stem: p for p in sorted(shipped_folder(kind).glob("*.toml"))}


def shipped_folder(kind: str) -> Path:
    return Path(str(resources.files("covey"))) / "configs" / kind


def read(kind: str, name: str) -> Tree:
    """A shipped configuration by name, or a file by path."""
    if name.endswith(".toml"):
        return parse(Path(name))
    files = shipped(kind)
    if name not in files:
        raise CoveyError(
            f"there is no {kind.removesuffix('s')} {name!r}{_elsewhere(name) or _hint(name, files)}"
        )
    return parse(files[name])


def _elsewhere(name: str) -> str:
    """An attack or a defence is a part of a run, and has a place of its own."""
    for kind, one in (("attacks", "an attack"), ("defences", "a defence")):
        if name in shipped(kind):
            return (
                f"; it is {one}: covey list {kind} shows all, covey matrix --{kind} {name} runs it"
            )
    return ""
