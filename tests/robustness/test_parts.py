"""Attacks and defences by name: each class has a file, and open options follow the method."""

import inspect
import json
import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import covey.attacks
import covey.defenses
from command import Covey
from covey.contract.aggregation import Combine, ServerStep
from covey.contract.mechanism import Mechanism
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.run.assemble import method_of
from covey.run.config.schema import Config
from covey.run.config.shipped import read, shipped
from covey.run.config.tree import Tree
from covey.study.matrix.parts import NOBODY, NOTHING, Part, attacked, attacks, defences, defended


def method(name: str = "fedncf-local") -> Tree:
    return read("methods", name) | {"method": name}


def only(found: list[Part]) -> Part:
    return found[1]


def pushed(name: str, on: str = "fedncf-local", *more: str) -> dict[str, Any]:
    return dict(attacked(method(on), only(attacks([name])), 0.1, [3], 50, more)["attack"])


def classes(package: Any) -> set[str]:
    """Attacks and defences that a user can name, as module:Class."""
    found = set()
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for name, cls in inspect.getmembers(import_module(info.name), inspect.isclass):
            kind = hasattr(cls, "poison") or issubclass(cls, (Combine, Mechanism, ServerStep))
            part = hasattr(cls, "__dataclass_fields__") and not inspect.isabstract(cls)
            if cls.__module__ == info.name and kind and part:
                found.add(f"{info.name}:{name}")
    return found


def used(kind: str) -> set[str]:
    found = set()
    for name in shipped(kind):
        for value in read(kind, name).values():
            sections = value if isinstance(value, list) else [value]
            found |= {section["use"] for section in sections if isinstance(section, dict)}
    return found


def test_every_attack_and_defence_has_a_name() -> None:
    assert len(used("attacks")) > 10 and classes(covey.attacks) <= used("attacks")
    assert len(used("defences")) > 10 and classes(covey.defenses) <= used("defences")


@pytest.mark.parametrize("kind", ["attacks", "defences"])
def test_they_are_listed(covey: Covey, kind: str) -> None:
    rows = json.loads(covey("list", kind, "--json").out)
    assert {row["name"] for row in rows} == set(shipped(kind)) and all(row["what"] for row in rows)


def test_every_name_fits_a_method() -> None:
    for part in defences(list(shipped("defences")))[1:]:
        assert part.title
        assert method_of(Config.of(defended(method(), part)), Catalogue(50))
    for part in attacks(list(shipped("attacks")))[1:]:
        tree = attacked(method(), part, 0.1, [3], 50, [])
        config = Config.of(tree)
        crew, _ = config.attack()
        assert part.title and crew.share == 0.1
        assert getattr(config.part("attack"), "targets", (3,)) == (3,)


def test_nobody_and_nothing_come_first_and_once() -> None:
    assert [part.label for part in attacks(["a-ra", "none", "a-ra"])] == ["nobody attacks", "a-ra"]
    assert defences(["none"]) == [NOTHING] and attacks([""]) == [NOBODY]


def test_an_attackers_rate_is_that_of_the_method() -> None:
    assert pushed("a-ra")["rate"] == pytest.approx(
        5 * 0.01
    )  # as long as the five steps of an honest client
    assert pushed("a-ra", "fedncf-sum")["rate"] == 0.001  # as published
    assert pushed("a-hum", "fedncf-sum")["mine_rate"] == 0.001
    assert "rate" not in pushed("random") and "targets" not in pushed("sign-flip")


def test_a_file_of_the_readers_own_says_otherwise(tmp_path: Path) -> None:
    own = tmp_path / "loud.toml"
    own.write_text('[attack]\nuse = "covey.attacks.a_ra:ARa"\nrate = 7.0\nstart = 3\n')
    assert pushed(str(own)) == {
        "use": "covey.attacks.a_ra:ARa",
        "rate": 7.0,
        "start": 3,
        "targets": [3],
        "share": 0.1,
    }
    assert only(attacks([str(own)])).label == "loud"
    assert pushed(str(own), "fedncf-local", "attack.rate=2", "attack.start=5")["rate"] == 2
    assert "rate" not in pushed("random", "fedncf-local", "attack.rate=2")  # it has none


def test_a_rule_stands_in_for_what_the_method_has(tmp_path: Path) -> None:
    median = only(defences(["median"]))

    def scale(on: str, part: Part) -> str:
        return str(Config.of(defended(method(on), part)).part("combine").scale)

    assert scale("fedncf-local", median) == "mean" and scale("fedncf-sum", median) == "sum"
    averaged = method("fedncf-local") | {"combine": {"use": "covey.aggregate.combine:Mean"}}
    assert Config.of(defended(averaged, median)).part("combine").scale == "everybody"
    own = tmp_path / "mine.toml"
    own.write_text('[combine]\nuse = "covey.defenses.median:Median"\nscale = "mean"\n')
    assert scale("fedncf-sum", only(defences([str(own)]))) == "mean"


def test_the_methods_own_parts_stay() -> None:
    tree = defended(method("cl4fedrec"), only(defences(["clip+support"])))
    uses = [section["use"].rpartition(":")[2] for section in tree["mechanism"]]
    assert uses == ["Contrast", "ClipRows", "MinimumSupport"]
    with pytest.raises(CoveyError, match="hics has its own server step, and the method needs Adam"):
        defended(method("fedcl"), only(defences(["hics"])))
    krum = method() | {"combine": {"use": "covey.defenses.krum:Krum"}}
    with pytest.raises(CoveyError, match="median replaces a mean or a sum; the method has Krum"):
        defended(krum, only(defences(["median"])))


def test_where_clients_only_report_there_are_no_updates() -> None:
    for name in ("median", "hics", "clip", "support+clip"):
        with pytest.raises(CoveyError, match="judges updates, and the method has none"):
            defended(method("spectral"), only(defences([name])))
    with pytest.raises(
        CoveyError,
        match="a-ra makes up updates, and the method has none; use an attack that makes up lists",
    ):
        pushed("a-ra", "spectral")
    assert pushed("random", "spectral")["share"] == 0.1


@pytest.mark.parametrize(
    ("read_them", "names", "message"),
    [
        (attacks, ["a-raa"], r"no attack 'a-raa'; did you mean 'a-ra'\?"),
        (defences, ["wall"], r"no defence 'wall'; there are bulyan, .*union"),
        (defences, ["median+krum"], r"median and krum both have a \[combine\]"),
        (attacks, ["a-ra+random"], "attacks cannot be combined"),
        (attacks, ["nowhere.toml"], "cannot read nowhere.toml"),
    ],
)
def test_slips_are_said(read_them: Any, names: list[str], message: str) -> None:
    with pytest.raises(CoveyError, match=message):
        read_them(names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = 'x'\n", r"has nothing, but an attack is \[attack\], and a title"),
        ("[combine]\nuse = 'covey.defenses.median:Median'\n", "has 'combine', but an attack is"),
        ("[attack]\nrate = 1.0\n", "names no class"),
        ("attack = 3\n", r"write \[attack\] as a section"),
        ("[attack]\nuse = 'covey.attacks.a_ra:ARa'\nrat = 1.0\n", "did you mean 'rate'"),
        ("[attack]\nuse = 'covey.attacks.a_ra:ARa'\ntargets = [1]\n", "give --targets"),
    ],
)
def test_a_file_says_all_it_must_and_nothing_else(tmp_path: Path, text: str, message: str) -> None:
    own = tmp_path / "own.toml"
    own.write_text(text)
    with pytest.raises(CoveyError, match=message):
        attacks([str(own)])


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "own.toml" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_text('[attack]\nuse = "covey.attacks.a_ra:ARa"\n')
    with pytest.raises(CoveyError, match="two attacks are called 'own'"):
        attacks([str(path) for path in paths])
