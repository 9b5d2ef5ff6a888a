"""The configurations that come with covey, found by kind and name."""

from importlib import resources
from pathlib import Path

from covey.core.errors import CoveyError
from covey.run.config.build import suggestion

from .tree import Tree, parse

# Names that configurations had once, and what became of them.
RENAMED = {
    "fedncf-adam": "it is fedncf now, with other settings;"
    " papers/methods/fedncf-adam.toml in the source of covey has the earlier ones"
}


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
    """Where something is found that has another name now, or was given as something else."""
    if name in RENAMED:
        return f"; {RENAMED[name]}"
    for kind, one in (("attacks", "an attack"), ("defences", "a defence")):
        if name in shipped(kind):
            commands = f"covey list {kind} shows all, covey matrix --{kind} {name} runs it"
            return f"; it is {one}: {commands}"
    return ""
