"""Attacks and defences by name: sections of a configuration that are added to any method.

Shipped ones are in configs/attacks and configs/defences; others are given as the path of a TOML
file. What a file does not set follows from the method: an attacker's learning rate, and whether a
robust rule replaces a mean or a sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.aggregate.combine import ItemMean, Mean, Sum
from covey.aggregate.step import Add
from covey.contract.attack import Profiled
from covey.core.errors import CoveyError
from covey.run.config.build import part_of
from covey.run.config.schema import ATTACK_SETTINGS, Config
from covey.run.config.shipped import read
from covey.run.config.tree import Tree, assign, merge
from covey.solvers import Local

SECTIONS = {"attacks": ("attack",), "defences": ("combine", "step", "mechanism")}


@dataclass(frozen=True)
class Part:
    """An attack or a defence as its file describes it."""

    label: str
    title: str = ""
    sections: Tree = field(default_factory=dict)


SCALES: dict[type, str] = {Sum: "sum", Mean: "everybody"}  # the scale of a rule that replaces it
NOBODY = Part("nobody attacks")
NOTHING = Part("no defence")


def attacks(names: Sequence[str]) -> list[Part]:
    """Return the named attacks after `NOBODY`."""
    return _all("attacks", names, NOBODY)


def defences(names: Sequence[str]) -> list[Part]:
    """Return the named defences after `NOTHING`; `clip+support` combines two."""
    return _all("defences", names, NOTHING)


def _all(kind: str, names: Sequence[str], first: Part) -> list[Part]:
    wanted = dict.fromkeys(name.strip() for name in names)
    found = [first, *(_several(kind, name) for name in wanted if name not in ("", "none"))]
    labels = [part.label for part in found]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise CoveyError(f"two {kind} are called {twice[0]!r}; rename one of the files")
    return found


def _several(kind: str, name: str) -> Part:
    parts = [_one(kind, one) for one in name.split("+")]
    if kind == "attacks" and len(parts) > 1:
        raise CoveyError(f"{name!r}: attacks cannot be combined; separate them by commas")
    for at in SECTIONS[kind]:
        if at != "mechanism" and len(who := [p.label for p in parts if at in p.sections]) > 1:
            raise CoveyError(f"{' and '.join(who)} both have a [{at}]; use only one of them")
    sections: Tree = {}
    for part in parts:
        sections = stacked(sections, part.sections)
    title = "; ".join(p.title for p in parts if p.title)
    return Part("+".join(p.label for p in parts), title, sections)


def _one(kind: str, name: str) -> Part:
    """Read a part from its file, and refuse missing or unknown keys."""
    tree = read(kind, name)
    sections = {k: v for k, v in tree.items() if k != "title"}
    known = " or ".join(f"[[{k}]]" if k == "mechanism" else f"[{k}]" for k in SECTIONS[kind])
    if not sections or (strange := [k for k in sections if k not in SECTIONS[kind]]):
        what = f"{strange[0]!r}" if sections else "nothing"
        a = "an attack" if kind == "attacks" else "a defence"
        raise CoveyError(f"{name} has {what}, but {a} is {known}, and a title")
    for key, value in sections.items():
        _checked(name, key, value)
    return Part(Path(name).stem, str(tree.get("title", "")), sections)


def _checked(name: str, key: str, value: Any) -> None:
    many, listed = isinstance(value, list), value if isinstance(value, list) else [value]
    if many is not (key == "mechanism") or not all(isinstance(v, dict) for v in listed):
        section = "[[mechanism]]" if key == "mechanism" else f"[{key}]"
        raise CoveyError(f"{name}: write {section} as a section")
    for section in listed:
        if "use" not in section:
            raise CoveyError(f'{name}: [{key}] names no class; write use = "module:Class"')
        if key == "attack" and (fixed := {"targets", "share"} & set(section)):
            wrong = f"{name}: {min(fixed)} is the same for all attacks"
            raise CoveyError(f"{wrong}; leave it out and give --{min(fixed)}")
        settings = ATTACK_SETTINGS if key == "attack" else ()
        part_of({k: v for k, v in section.items() if k not in settings}, ATTACK_SETTINGS)


def stacked(tree: Tree, sections: Tree) -> Tree:
    """Merge sections into a tree; mechanisms are appended to those of the tree."""
    rest = {k: v for k, v in sections.items() if k != "mechanism"}
    more = sections.get("mechanism", [])
    return merge(tree, rest) | ({"mechanism": [*tree.get("mechanism", []), *more]} if more else {})


def defended(tree: Tree, defence: Part) -> Tree:
    """Add a defence to a method; refuse one that would replace a part that the method needs."""
    sections, method, name = dict(defence.sections), Config.of(tree), defence.label
    mechanisms = map(part_of, sections.get("mechanism", []))
    filters = any(mechanism.implements("filter_uploads") for mechanism in mechanisms)
    if method.part("solver") is None and (filters or {"combine", "step"} & sections.keys()):
        raise CoveyError(f"{name} judges updates, and the method has none: its clients only report")
    combine, step = method.part("combine") or ItemMean(), method.part("step") or Add()
    if "combine" in sections:
        if not isinstance(combine, Sum | Mean | ItemMean):
            has = type(combine).__name__
            raise CoveyError(f"{name} replaces a mean or a sum; the method has {has}")
        scale = SCALES.get(type(combine))
        if scale and getattr(part_of(sections["combine"]), "scale", "") == "mean":
            sections["combine"] = {"scale": scale, **sections["combine"]}
    if "step" in sections and not isinstance(step, Add):
        needs = type(step).__name__
        raise CoveyError(f"{name} has its own server step, and the method needs {needs}")
    return stacked(tree, sections)


def attacked(
    tree: Tree,
    attack: Part,
    share: float,
    targets: Sequence[int],
    n_items: int,
    more: Sequence[str],
) -> Tree:
    """Add an attack with options `more`; its clients are a `share` of the honest ones."""
    section, solver = dict(attack.sections["attack"]), Config.of(tree).part("solver")
    part = _made(attack)
    if solver is None and not isinstance(part, Profiled):
        wrong = f"{attack.label} makes up updates, and the method has none"
        raise CoveyError(f"{wrong}; use an attack that makes up lists")
    follows: Tree = {"targets": list(targets)}
    if isinstance(solver, Local):  # moves in one step as far as honest clients in all
        rate = solver.rate("items", n_items)
        follows |= {"rate": rate * solver.epochs, "mine_rate": rate}
    section |= {k: v for k, v in follows.items() if k in vars(part) and k not in section}
    own = [text for text in more if has_option(attack, text)]
    return assign(tree | {"attack": section | {"share": share}}, own)


def has_option(attack: Part, text: str) -> bool:
    """Return whether an attack has the option that a text such as attack.rate=0.5 sets."""
    option = text.partition("=")[0].strip().removeprefix("attack.")
    return option in (*vars(_made(attack)), *ATTACK_SETTINGS)


def _made(attack: Part) -> Any:
    return part_of({k: v for k, v in attack.sections["attack"].items() if k not in ATTACK_SETTINGS})
