"""Overrides from the command line and from `fit` have an effect or are errors."""

import json
from pathlib import Path
from typing import Any

import pytest

import covey as library
from command import SMALL, Covey, expect_line, expect_nothing, sets
from covey.core.errors import CoveyError
from covey.run.config.overrides import changed
from covey.run.config.shipped import read
from covey.study.matrix.plan import MatrixOptions, planned
from covey.study.papers.plan import Scope
from covey.study.papers.settings import configs
from reproduce_tables import TABLE, made

CLIP = {"use": "covey.defenses.clip:ClipRows", "bound": 0.5}
LIST = 'mechanism=[{use="covey.defenses.clip:ClipRows", bound=0.5}]'
MORE = 'mechanism.+={use="covey.defenses.clip:ClipRows", bound=0.5}'
LOST = r"leaves out covey.methods.fedcl:HardNegatives, which fedcl has; add to it with"
LOST += r" 'mechanism\.\+=.*'mechanism=\[\]'"


# Mechanisms


def test_one_more_mechanism(covey: Covey, tmp_path: Path) -> None:
    output = covey(
        "run", "--method", "fedcl", *sets(*SMALL, MORE), "--json", "--out", tmp_path / "out"
    )
    assert json.loads(output.out)["config"]["mechanism"] == [
        *read("methods", "fedcl")["mechanism"],
        CLIP,
    ]
    made = library.fit(
        "fedmf", rounds=1, data={"users": 30, "items": 60, "mean_items": 8}, set=iter([MORE])
    )
    assert made.config.tree["mechanism"] == [CLIP]


def test_a_list_that_drops_mechanisms_is_refused(covey: Covey, tmp_path: Path) -> None:
    expect_line(covey("run", "--method", "fedcl", *sets(LIST), "--out", tmp_path / "out"), LOST)
    expect_line(covey("tune", "fedcl", *sets(LIST), "--out", tmp_path / "out"), LOST)
    expect_nothing(tmp_path / "out")
    more: tuple[dict[str, Any], ...] = ({"set": [LIST]}, {"mechanism": [CLIP]})
    for options in more:
        with pytest.raises(CoveyError, match=LOST):
            library.fit("fedcl", **options)
    with pytest.raises(CoveyError, match=LOST):
        planned(MatrixOptions("fedcl", set=(LIST,)))


def test_of_a_table_too(tmp_path: Path) -> None:
    one = made(tmp_path, TABLE.replace('method = "fedmf"', 'method = "fedcl"'))
    with pytest.raises(CoveyError, match=LOST):
        configs(one, one.rows[0], one.columns[0], Scope(set=(LIST,)))


def test_lists_that_drop_nothing_or_mean_it() -> None:
    tree = read("methods", "fedcl")
    (own,) = tree["mechanism"]
    for texts, wanted in (
        (["mechanism=[]"], []),
        (["mechanism=[]", LIST], [CLIP]),
        (["mechanism=[]", MORE], [CLIP]),
        (
            [f'mechanism=[{{use="{own["use"]}", epsilon=2.0}}]'],
            [{"use": own["use"], "epsilon": 2.0}],
        ),
        (["mechanism.0.epsilon=2.0"], [own | {"epsilon": 2.0}]),
    ):
        assert changed(tree, texts)["mechanism"] == wanted
    assert changed(read("methods", "fedmf"), [LIST])["mechanism"] == [CLIP]


# What would change nothing


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "sasrec --rounds 2",
            "sasrec trains on pooled data, where run.rounds means nothing; .*or set pooled.epochs",
        ),
        (
            "sasrec --set run.rounds=2",
            "run.rounds means nothing; leave it out, or set pooled.epochs",
        ),
        ("ease --set run={rounds=2}", "run.rounds means nothing; leave it out, or"),
        ("mf --set run.cohort=8", "run.cohort means nothing"),
        (
            "fedmf --dataset d.npz --set data.users=9",
            "data.users is of the built-in dataset 'synthetic'.*leave it out",
        ),
        ("fedmf --set data.name=d.npz --set data.seed=9", "data.seed is of the built-in dataset"),
    ],
)
def test_options_that_do_not_apply(words: str, message: str, covey: Covey, tmp_path: Path) -> None:
    expect_line(covey("run", "--method", *words.split(), "--out", tmp_path / "out"), message)
    expect_nothing(tmp_path / "out")


def test_of_a_search_and_a_matrix(covey: Covey, tmp_path: Path) -> None:
    rounds, users = sets("run.rounds=2"), sets("data.users=9")
    expect_line(covey("tune", "mf", *rounds, "--out", tmp_path / "out"), "run.rounds means nothing")
    expect_line(
        covey("tune", "mf", "--dataset", "d.npz", *users, "--out", tmp_path / "out"),
        "data.users is of the",
    )
    library.load("synthetic").save(tmp_path / "d.npz")
    words = (
        "--method",
        "fedmf",
        "--dataset",
        tmp_path / "d.npz",
        *users,
        "--out",
        tmp_path / "out",
    )
    expect_line(covey("matrix", *words), "data.users is of the")
    expect_nothing(tmp_path / "out")


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("sasrec", {"rounds": 2}, "run.rounds means nothing; leave it out, or set pooled.epochs"),
        ("ease", {"run": {"rounds": 2}}, "run.rounds means nothing"),
        ("fedmf", {"data": {"users": 60}}, "data.users is of the built-in dataset 'synthetic'"),
        (
            "fedmf",
            {"set": iter(["data.users=60"])},
            "data.users is of the built-in dataset 'synthetic'",
        ),
    ],
)
def test_fit_says_the_same(
    method: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CoveyError, match=message):
        library.fit(method, library.load("synthetic"), out=tmp_path / "out", **options)
    expect_nothing(tmp_path / "out")


def test_a_file_may_say_what_does_not_apply(covey: Covey, tmp_path: Path) -> None:
    """As config.toml of older runs does, and one table for federated and pooled rows."""
    (tmp_path / "own.toml").write_text(
        '[pooled]\nuse = "covey.pooled.popularity:Popularity"\n[run]\nrounds = 2\n'
    )
    assert (
        covey(
            "run", tmp_path / "own.toml", "--set", "data.users=30", "--out", tmp_path / "out"
        ).code
        == 0
    )


def test_help_says_what_rounds_are(covey: Covey, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        covey("run", "--help")
    assert "rounds, or passes over all clients" in " ".join(capsys.readouterr().out.split())
