"""The configurations that come with covey, found by kind and name."""

from importlib import resources
from pathlib import Path

from covey.core.errors import CoveyError
from covey.run.config.build import suggestion

from .tree import Tree, parse


def shipped(kind: str) -> dict[str, Path]:
    """Returns the files of a kind: "methods", "presets", "attacks", "defences" or "spaces"."""
    return {p.stem: p for p in sorted(shipped_folder(kind).glob("*.toml"))}


def shipped_folder(kind: str) -> Path:
    return Path(str(resources.files("covey"))) / "configs" / kind


def read(kind: str, name: str) -> Tree:
    """Reads a shipped configuration by name, or a file by path."""
    if name.endswith(".toml"):
        return parse(Path(name))
    files = shipped(kind)
    if name not in files:
        hint = _elsewhere(name) or suggestion(name, files)
        raise CoveyError(f"there is no {kind.removesuffix('s')} {name!r}{hint}")
    return parse(files[name])


def _elsewhere(name: str) -> str:
    """Where an attack or a defence is found that was given as something else."""
    for kind, one in (("attacks", "an attack"), ("defences", "a defence")):
        if name in shipped(kind):
            commands = f"covey list {kind} shows all, covey matrix --{kind} {name} runs it"
            return f"; it is {one}: {commands}"
    return ""
