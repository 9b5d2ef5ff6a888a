"""Attacks and defences by name: sections of a configuration in files, put on top of any method.

Those that come with covey are in configs/attacks and configs/defences; a path of a TOML file is one of the
reader's own. What a file leaves open follows the method: an attacker's rate, and whether a rule stands in
for a mean or for a sum.
"""

import difflib
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
from covey.run.config.shipped import shipped
from covey.run.config.tree import Tree, assign, merge, parse
from covey.solvers import Local

SECTIONS = {"attacks": ("attack",), "defences": ("combine", "step", "mechanism")}


@dataclass(frozen=True)
class Part:
    """An attack or a defence: what its file says."""

    label: str
    title: str = ""
    sections: Tree = field(default_factory=dict)


SCALES: dict[type, str] = {Sum: "sum", Mean: "everybody"}  # of a rule that stands in for it
NOBODY = Part("nobody attacks")
NOTHING = Part("no defence")


def attacks(names: Sequence[str]) -> list[Part]:
    """Nobody first, then the named ones."""
    return _all("attacks", names, NOBODY)


def defences(names: Sequence[str]) -> list[Part]:
    """Nothing first, then the named ones; `clip+support` is both of them together."""
    return _all("defences", names, NOTHING)


def _all(kind: str, names: Sequence[str], first: Part) -> list[Part]:
    wanted = dict.fromkeys(name.strip() for name in names)
    found = [first, *(_several(kind, name) for name in wanted if name not in ("", "none"))]
    labels = [part.label for part in found]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise CoveyError(f"two {kind} are called {twice[0]!r}; give each file its own name")
    return found


def _several(kind: str, name: str) -> Part:
    parts = [_one(kind, one) for one in name.split("+")]
    if kind == "attacks" and len(parts) > 1:
        raise CoveyError(f"{name!r}: attackers do one thing; name attacks with commas between them")
    for at in SECTIONS[kind]:
        if at != "mechanism" and len(who := [p.label for p in parts if at in p.sections]) > 1:
            raise CoveyError(f"{' and '.join(who)} both bring a [{at}]; one of them is enough")
    sections: Tree = {}
    for part in parts:
        sections = stacked(sections, part.sections)
    return Part(
        "+".join(p.label for p in parts), "; ".join(p.title for p in parts if p.title), sections
    )


def _one(kind: str, name: str) -> Part:
    """A file that says all it must and nothing unknown."""
    files = shipped(kind)
    if name not in files and not name.endswith(".toml"):
        near = difflib.get_close_matches(name, list(files), 1, 0.6)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise CoveyError(
            f"there is no {kind.removesuffix('s')} {name!r}; {hint}there are {', '.join(files)}, or give a TOML file"
        )
    tree = parse(files.get(name, Path(name)))
    sections = {k: v for k, v in tree.items() if k != "title"}
    known = " or ".join(f"[[{k}]]" if k == "mechanism" else f"[{k}]" for k in SECTIONS[kind])
    if not sections or (strange := [k for k in sections if k not in SECTIONS[kind]]):
        what = f"{strange[0]!r}" if sections else "nothing"
        raise CoveyError(f"{name} has {what}, but {_a(kind)} is {known}, and a title")
    for key, value in sections.items():
        _checked(name, key, value)
    return Part(Path(name).stem, str(tree.get("title", "")), sections)


def _a(kind: str) -> str:
    return "an attack" if kind == "attacks" else "a defence"


def _checked(name: str, key: str, value: Any) -> None:
    """A wrong option is said before anything runs."""
    listed = value if isinstance(value, list) else [value]
    if (key == "mechanism") is not isinstance(value, list) or not all(
        isinstance(v, dict) for v in listed
    ):
        raise CoveyError(
            f"{name}: write {'[[mechanism]]' if key == 'mechanism' else f'[{key}]'} as a section"
        )
    for section in listed:
        if "use" not in section:
            raise CoveyError(f'{name}: [{key}] names no class; write use = "module:Class"')
        if key == "attack" and (fixed := {"targets", "share"} & set(section)):
            raise CoveyError(
                f"{name}: {min(fixed)} is the same for all attacks; leave it out and give --{min(fixed)}"
            )
        part_of(
            {k: v for k, v in section.items() if key != "attack" or k not in ATTACK_SETTINGS},
            ATTACK_SETTINGS,
        )


def stacked(tree: Tree, sections: Tree) -> Tree:
    """Sections on top of a tree; its mechanisms stay, and others come behind them."""
    rest = {k: v for k, v in sections.items() if k != "mechanism"}
    more = sections.get("mechanism", [])
    return merge(tree, rest) | ({"mechanism": [*tree.get("mechanism", []), *more]} if more else {})


def defended(tree: Tree, defence: Part) -> Tree:
    """A method with a defence; refused where it would take the place of something that is the method's own."""
    sections, method = dict(defence.sections), Config.of(tree)
    judging = [
        part
        for section in sections.get("mechanism", [])
        if (part := part_of(section)).implements("filter_uploads")
    ]
    if method.part("solver") is None and (judging or "combine" in sections or "step" in sections):
        raise CoveyError(
            f"{defence.label} judges updates, and the method has none: its clients only report"
        )
    combine, step = method.part("combine") or ItemMean(), method.part("step") or Add()
    if "combine" in sections:
        if not isinstance(combine, Sum | Mean | ItemMean):
            raise CoveyError(
                f"{defence.label} stands in for a mean or a sum; the method has {type(combine).__name__}"
            )
        if (scale := SCALES.get(type(combine))) and getattr(
            part_of(sections["combine"]), "scale", ""
        ) == "mean":
            sections["combine"] = {"scale": scale, **sections["combine"]}
    if "step" in sections and not isinstance(step, Add):
        raise CoveyError(
            f"{defence.label} brings its own server step, and the method needs {type(step).__name__}"
        )
    return stacked(tree, sections)


def attacked(
    tree: Tree,
    attack: Part,
    share: float,
    targets: Sequence[int],
    n_items: int,
    more: Sequence[str],
) -> Tree:
    """A method under attack; `more` are options such as attack.start=5, for the attacks that have them."""
    section, solver = dict(attack.sections["attack"]), Config.of(tree).part("solver")
    part = _made(attack)
    if solver is None and not isinstance(part, Profiled):
        raise CoveyError(
            f"{attack.label} makes up updates, and the method has none; attack with made-up lists"
        )
    follows = {"targets": list(targets)} | _rates(solver, n_items)
    section |= {k: v for k, v in follows.items() if k in vars(part) and k not in section}
    own = [text for text in more if has_option(attack, text)]
    return assign(tree | {"attack": section | {"share": share}}, own)


def has_option(attack: Part, text: str) -> bool:
    return option_of(text) in (*vars(_made(attack)), *ATTACK_SETTINGS)


def _made(attack: Part) -> Any:
    return part_of({k: v for k, v in attack.sections["attack"].items() if k not in ATTACK_SETTINGS})


def option_of(text: str) -> str:
    """`rate` of attack.rate=0.5"""
    return text.partition("=")[0].strip().removeprefix("attack.")


def _rates(solver: Any, n_items: int) -> Tree:
    """Where honest clients take several steps, an attacker takes their length in one."""
    if not isinstance(solver, Local):
        return {}
    rate = solver.rate("items", n_items)
    return {"rate": rate * solver.epochs, "mine_rate": rate}
