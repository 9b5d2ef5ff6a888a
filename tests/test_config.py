"""Configurations: strict, written and read back the same, and every one that is shipped runs."""

import copy
import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command import Covey, sets
from covey.core import toml_writer
from covey.core.errors import CoveyError
from covey.models.mf import MF
from covey.run.assemble import clients_of, fleet_of, method_of, prepare
from covey.run.config.build import fill, part_of
from covey.run.config.compose import compose
from covey.run.config.schema import ATTACK_SETTINGS, AttackConfig, Config, RunConfig
from covey.run.config.shipped import read, shipped
from covey.run.config.tree import Tree, assign, merge
from covey.run.loop import run
from covey.solvers import Local
from covey.study.render.units import size
from covey.study.report.terminal import table

METHODS, PRESETS = list(shipped("methods")), list(shipped("presets"))
TINY = [
    "data.users=40",
    "data.items=60",
    "data.mean_items=8",
    "run.rounds=2",
    "run.cohort=15",
    'run.unit="round"',
    "evaluate.every=1",
    'evaluate.unit="round"',
]
OWN = {  # what is large in a method, made small
    "cofedrec": ["model.dim=8", "grouping.categories=4"],
    "mf": ["pooled.epochs=2"],
    "ncf": ["pooled.epochs=2"],
    "spectral": ["model.rank=8"],
    "spectral-private": ["model.rank=8"],
    "popularity-private": [],
    "ease-sums": [],
    "pdc-frs-titles": ["model.dim=8", "mechanism.0.similarity=words"],  # without the extra
}


def tiny(name: str) -> Config:
    tree = read("methods", name) | {"method": name}
    changes = OWN.get(name, [] if "pooled" in tree else ["model.dim=8"])
    return Config.of(assign(tree, [*TINY, *changes]))


# Written and read back


@pytest.mark.parametrize("preset", ["", *PRESETS])
@pytest.mark.parametrize("name", METHODS)
def test_every_shipped_configuration_comes_back(name: str, preset: str) -> None:
    if name not in (read("presets", preset) if preset else {}).get("methods", METHODS):
        with pytest.raises(CoveyError, match="it has those of cl4fedrec"):
            compose(name, presets=[preset])
        return
    config = Config.of(compose(name, presets=[preset] if preset else []))
    again = Config.of(tomllib.loads(toml_writer.dumps(config.tree)))
    assert again == config
    assert again.digest() == config.digest()
    assert config.tree["title"]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN = st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
TREES = st.dictionaries(TEXT, VALUES, max_size=4)


@given(TREES)
def test_any_plain_data_comes_back(tree: Tree) -> None:
    again = tomllib.loads(toml_writer.dumps(tree))
    assert again == tree
    assert json.dumps(again, sort_keys=True) == json.dumps(tree, sort_keys=True)  # true is not 1


def test_text_is_readable() -> None:
    tree = {
        "a": 1,
        "b": {"c": [1.0, "é"], "d": {}},
        "e": [{"f": True}, {"g": {"h": 2}}],
        "odd key": math.inf,
    }
    assert toml_writer.dumps(tree).splitlines() == [
        "a = 1",
        '"odd key" = inf',
        "",
        "[b]",
        'c = [1.0, "é"]',
        "",
        "[b.d]",
        "",
        "[[e]]",
        "f = true",
        "",
        "[[e]]",
        "",
        "[e.g]",
        "h = 2",
    ]


def test_the_digest_tells_configurations_apart() -> None:
    one = tiny("fedmf")
    assert one.digest() == tiny("fedmf").digest() != tiny("fedncf").digest()
    assert one.digest() != Config.of(assign(one.tree, ["run.seed=1"])).digest()


# One on top of the other


@given(TREES, TREES)
def test_merge_keeps_what_is_not_named(base: Tree, over: Tree) -> None:
    merged = merge(base, over)
    assert merge(base, {}) == base
    assert merge({}, over) == over
    assert merge(merged, over) == merged
    assert list(merged) == [*base, *(k for k in over if k not in base)]
    for key, value in base.items():
        if key not in over:
            assert merged[key] == value
    for key, value in over.items():
        if not (isinstance(value, dict) and isinstance(base.get(key), dict)):
            assert merged[key] == value


def test_another_class_starts_afresh() -> None:
    base = {"model": {"use": "a:A", "dim": 3}, "run": {"seed": 1}}
    assert merge(base, {"model": {"dim": 4}})["model"] == {"use": "a:A", "dim": 4}
    assert merge(base, {"model": {"use": "a:A", "scale": 1.0}})["model"] == {
        "use": "a:A",
        "dim": 3,
        "scale": 1.0,
    }
    assert merge(base, {"model": {"use": "a:B"}})["model"] == {"use": "a:B"}
    assert base == {"model": {"use": "a:A", "dim": 3}, "run": {"seed": 1}}


def test_options_of_a_part_may_come_before_its_name() -> None:
    named = {"attack": {"share": 0.1, "use": "a:A"}}
    assert assign({}, ["attack.share=0.1", "attack.use=a:A"]) == assign(
        {}, ["attack.use=a:A", "attack.share=0.1"]
    )
    assert assign({}, ["attack.share=0.1", "attack.use=a:A"]) == named


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=3", 3),
        ("a.b = 3.5", 3.5),
        ("a.b=true", True),
        ('a.b="x=y"', "x=y"),
        ("a.b=x=y", "x=y"),
        ("a.b=ml-100k", "ml-100k"),
        ("a.b=", ""),
        ("a.b=[1, 2]", [1, 2]),
        ('a.b={c = "d"}', {"c": "d"}),
    ],
)
def test_assignments(text: str, value: object) -> None:
    assert assign({"a": {"z": 0}}, [text]) == {"a": {"z": 0, "b": value}}
    assert assign({}, [text, "a.b=1"]) == {"a": {"b": 1}}


LISTS: Tree = {
    "mechanism": [{"use": "a:A", "epsilon": 1.0}, {"use": "a:B"}],
    "evaluate": {"metrics": ["x", "y"]},
}


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("mechanism.0.epsilon=2", {"mechanism": [{"use": "a:A", "epsilon": 2}, {"use": "a:B"}]}),
        (
            "mechanism.1.bound=3",
            {"mechanism": [{"use": "a:A", "epsilon": 1.0}, {"use": "a:B", "bound": 3}]},
        ),
        (
            "mechanism.0.use=a:C",
            {"mechanism": [{"use": "a:C"}, {"use": "a:B"}]},
        ),  # another class starts afresh
        ("mechanism=[]", {"mechanism": []}),
        ("evaluate.metrics.1=z", {"evaluate": {"metrics": ["x", "z"]}}),
        (
            'mechanism.+={use="a:C", bound=3}',
            {"mechanism": [*LISTS["mechanism"], {"use": "a:C", "bound": 3}]},
        ),
        ("mechanism.+.use=a:C", {"mechanism": [*LISTS["mechanism"], {"use": "a:C"}]}),
        ("evaluate.metrics.+=z", {"evaluate": {"metrics": ["x", "y", "z"]}}),
        ('defence.+={use="a:C"}', {"defence": [{"use": "a:C"}]}),  # the first of a list of sections
    ],
)
def test_assignments_into_lists(text: str, changed: Tree) -> None:
    before = copy.deepcopy(LISTS)
    assert assign(LISTS, [text]) == LISTS | changed
    assert before == LISTS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "mechanism.2.epsilon=2",
            "--set mechanism.2.epsilon=2: the list has entries 0 to 1, not '2'; say which one",
        ),
        ("mechanism.-1.epsilon=2", "the list has entries 0 to 1, not '-1'"),
        ("mechanism.epsilon=2", "the list has entries 0 to 1, not 'epsilon'"),
        ("evaluate.0=2", "there is no list to count in"),
        ("evaluate.+=2", "--set evaluate.+=2: there is no list to add to"),
        (
            "evaluate.parts.+=z",
            "there is no list to add to; an entry is {...}, else give the whole list",
        ),
        ("attack.0.share=1", "there is no list to count in"),
    ],
)
def test_assignments_that_miss_a_list(text: str, message: str) -> None:
    with pytest.raises(CoveyError, match=message):
        assign(LISTS, [text])


def test_what_a_part_is_cannot_be_set() -> None:
    """Without the class to go with it, a run would end in the middle."""
    for text in (
        "model.shared=[]",
        "model.kept=[]",
        "model.tables=[]",
        "objective.pointwise=false",
    ):
        with pytest.raises(CoveyError, match=r"has no option '\w+'"):
            Config.of(assign(read("methods", "fedmf"), [text]))
    with pytest.raises(CoveyError, match="ItemContrast has no option 'whole_table'; there are "):
        Config.of(assign(read("methods", "cofedrec"), ["mechanism.0.whole_table=false"]))


def test_an_option_of_old_that_had_one_value_is_still_read() -> None:
    """Stored configurations hold it, and are known by their digests."""
    tree = assign(read("methods", "fedmf"), ['evaluate.ties="against"'])
    config = Config.of(tree)
    assert config.tree["evaluate"]["ties"] == "against"
    assert config.evaluate == Config.of(read("methods", "fedmf")).evaluate
    with pytest.raises(CoveyError, match="evaluate has no option 'ties'"):
        Config.of(assign(tree, ['evaluate.ties="random"']))


# Strict


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch": 1}, r"x has no option 'epoch'; did you mean 'epochs'\?"),
        ({"zzzzzz": 1}, "x has no option 'zzzzzz'; there are optimizer, lr"),
        ({"optimizer": "adm"}, r"x.optimizer = 'adm' is not valid; did you mean 'adam'\?"),
        ({"epochs": "3"}, "x.epochs = '3' does not fit: it takes int"),
        ({"epochs": True}, "x.epochs = True does not fit: it takes int"),
        ({"lr": "small"}, "x.lr = 'small' does not fit: it takes float"),
        ({"lr": False}, "x.lr = False does not fit: it takes float"),
        ({"lr": math.nan}, "x.lr = nan is not a number"),
        ({"rates": {"items": "fast"}}, "x.rates.items = 'fast' does not fit: it takes float"),
        ({"rates": [1.0]}, r"x.rates = \[1.0\] does not fit: it takes dict"),
        ({"phases": ["items"]}, "x.phases = 'items' does not fit: it takes tuple"),
    ],
)
def test_what_does_not_fit(options: Tree, message: str) -> None:
    with pytest.raises(CoveyError, match=message):
        fill(Local, options, "x")


def test_what_fits() -> None:
    given = {"lr": 1, "phases": [["a"], ["b", "c"]], "rates": {"a": 2}, "per_item": ["a"]}
    made = fill(Local, given, "x")
    assert made == Local(lr=1.0, phases=(("a",), ("b", "c")), rates={"a": 2.0}, per_item=("a",))
    assert isinstance(made.lr, float)
    assert fill(RunConfig, {"ceilings": []}, "run").ceilings == ()


def test_one_of_several_types_and_what_must_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Mine:\n"
    code += "    a: int | str\n    b: int = 0\n"
    (tmp_path / "my_parts.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    section, mine = {"use": "my_parts:Mine"}, ["my_parts"]
    assert [part_of(section | {"a": a}, trust=mine).a for a in (1, "x")] == [1, "x"]
    with pytest.raises(CoveyError, match=r"Mine.a = 1.5 does not fit: it takes int or str"):
        part_of(section | {"a": 1.5}, trust=mine)
    with pytest.raises(CoveyError, match="Mine needs 'a'"):
        part_of(section, trust=mine)


def test_attackers_have_a_share_and_a_start() -> None:
    section = {"use": "covey.attacks.a_ra:ARa", "share": 0.1, "start": 2, "targets": [3]}
    config = Config.of({**tiny("fedmf").tree, "attack": section})
    assert config.attack()[0] == AttackConfig(0.1, 2)
    assert config.part("attack").targets == (3,)
    assert ATTACK_SETTINGS == ("share", "start")
    prepared = prepare(config)
    clients = clients_of(config, prepared, method_of(config, prepared.catalogue))
    assert (clients.population.n_honest, len(fleet_of(config, clients).ids_N)) == (40, 44)


def test_parts_are_what_they_are_for() -> None:
    config = tiny("fedmf")
    assert config.part("model") == MF(8, scale=0.01)
    assert config.part("grouping") is None
    assert config.parts("mechanism") == []
    with pytest.raises(CoveyError, match=r"\[objective\] .*is no objective"):
        Config.of(merge(config.tree, {"objective": {"use": "covey.models.mf:MF"}}))


def test_a_missing_name_has_a_hint() -> None:
    for kind, name, near in (("methods", "cofedrecs", "cofedrec"), ("presets", "loo", "loo-full")):
        with pytest.raises(CoveyError, match=f"did you mean '{near}'"):
            read(kind, name)


# Every shipped method runs


@pytest.mark.parametrize("name", METHODS)
def test_every_shipped_method_runs(name: str, covey: Covey, tmp_path: Path) -> None:
    pooled = "pooled" in read("methods", name)
    changes = sets(
        *(TINY[:3] if pooled else TINY), *OWN.get(name, [] if pooled else ["model.dim=8"])
    )
    output = covey("run", "--method", name, *changes, "--json", "--out", tmp_path / "out")
    assert (output.code, output.err) == (0, "")
    result = json.loads(output.out, parse_constant=pytest.fail)  # JSON has no NaN
    stored = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result == {**stored, "out": str(tmp_path / "out")}
    assert result["config"] == tomllib.loads((tmp_path / "out" / "config.toml").read_text())
    for figures in (result["test"], result["floor"]["popularity"], result["ceiling"]["ease"]):
        assert all(0 <= figures[metric] <= 1 for metric in result["test"] if "/" not in metric)
    if "pooled" not in result["config"]:
        check_federated(result, tmp_path / "out")
    lines = table(result, Path("runs/x")).splitlines()
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    assert any("(floor)" in line for line in lines) and any("(ceiling)" in line for line in lines)


def check_federated(result: dict[str, Any], out: Path) -> None:
    assert result["rounds"] == 2
    traffic, ledger = result["traffic"], result["ledger"]
    assert traffic["down_bytes"] > 0 and traffic["dropped"] == {}
    assert sum(row["bytes"] for row in ledger if row["step"] != "evaluate") < traffic["up_bytes"]
    assert not [row["field"] for row in ledger if "NOT DECLARED" in row["what"]]
    assert all(
        row["epsilon_user_total"] == "none" or row["epsilon_user_total"] > 0 for row in ledger
    )
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2]
    assert result["test"] == rows[result["round"] - 1]["test"]
    tensors = {f"{name}.safetensors" for name in ("state", "model", "users")}
    assert {p.name for p in out.iterdir()} == tensors | {
        "config.toml",
        "metrics.jsonl",
        "rounds.jsonl",
        "result.json",
    }


def test_a_field_that_nobody_declared_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.engine.client.program.Program.disclosures", lambda self: ())
    ledger = run(tiny("fedmf"), tmp_path / "out")["ledger"]
    assert ("train", "update/items") in {(row["step"], row["field"]) for row in ledger}
    assert {row["what"] for row in ledger} == {"NOT DECLARED by what sends it"}


def test_some_clients_are_asked(tmp_path: Path) -> None:
    """Those with something held out, so that there is something to report."""
    config = Config.of(assign(tiny("fedmf").tree, ["evaluate.clients=3", "data.mean_items=3"]))
    assert 0 <= run(config, tmp_path / "out")["test"]["ndcg@20"] <= 1


def test_sizes_are_readable() -> None:
    shown = {
        0: "0 B",
        999: "999 B",
        1000: "1 kB",
        999_499: "999 kB",
        999_500: "1 MB",
        1_230_000: "1.23 MB",
        5e9: "5 GB",
    }
    assert {n: size(n) for n in shown} == shown


def test_names_in_a_table_stand_as_they_are(tmp_path: Path) -> None:
    result = run(tiny("popularity"), tmp_path / "out")
    shown = table({**result, "method": "[red]x:smile:"}, Path("runs/[bold]" + "long/" * 30))
    assert "[red]x:smile:" in shown
    assert "runs/[bold]" + "long/" * 29 + "long" in shown
