"""The matrix of a small federation: same figures as `covey run`, each run once, failures."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from command import Covey, expect_line, expect_nothing, sets
from covey.run import federated as engine
from covey.run.checkpoint import load_model
from covey.study.matrix.formatting import grid, terminal
from covey.study.matrix.plan import MatrixOptions, planned
from covey.study.matrix.record import run_all

SMALL = (
    "data.users=40",
    "data.items=60",
    "data.mean_items=8",
    "model.dim=4",
    "run.checkpoint=1",
    "run.cohort=16",
)
BASE = ("--method", "fedncf-sum", "--rounds", 2, "--share", 0.1, *sets(*SMALL, "solver.lr=0.05"))


pytestmark = pytest.mark.usefixtures("rounds")  # in this process: others take seconds to start


def matrix(covey: Covey, out: Path, *words: object) -> dict[str, Any]:
    said = covey("matrix", *BASE, "--out", out, "--json", *words)
    assert said.code == 0, said.err
    return dict(json.loads(said.out))


def test_its_numbers_are_those_of_single_runs(covey: Covey, tmp_path: Path) -> None:
    made = matrix(
        covey, tmp_path / "m", "--attacks", "a-ra", "--defences", "median", "--targets", "7,9"
    )
    assert [t["item"] for t in made["targets"]] == [7, 9] and made["attackers"] == 4
    cell = made["cells"]["a-ra"]["median"]
    own = sets(
        *(
            *SMALL,
            "data.name=synthetic",
            "solver.lr=0.05",
            "run.ceilings=[]",
            "evaluate.targets=[7,9]",
        ),
        *(
            "combine.use=covey.defenses.median:Median",
            'combine.scale="sum"',
            "attack.use=covey.attacks.a_ra:ARa",
        ),
        *("attack.targets=[7,9]", "attack.share=0.1", "attack.rate=0.05"),
    )
    said = covey(
        "run", "--method", "fedncf-sum", "--rounds", 2, *own, "--out", tmp_path / "run", "--json"
    )
    result = json.loads(said.out)
    rows = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert cell["curve"][0]["round"] == [row["round"] for row in rows]
    for name, stat in cell["selected"].items():
        if name != "cost":
            assert stat["values"] == [result["test" if name == made["metric"] else "target"][name]]
    assert cell["last"]["er@5"]["values"] == [rows[-1]["target"]["er@5"]]
    assert cell["highest"]["er@20"]["values"] == [max(row["target"]["er@20"] for row in rows)]
    assert cell["last"]["rank"]["values"] == [rows[-1]["target"]["rank"]]
    told = json.loads((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()[-1])["told"]
    assert cell["fell_back"] == [told["combine"]["rows with too few uploads"]]
    clean = made["cells"]["nobody attacks"]["no defence"]["last"][made["metric"]]["mean"]
    assert cell["last"]["cost"]["mean"] == clean - cell["last"][made["metric"]]["mean"]


def test_an_attack_shows_and_a_defence_takes_it_back(covey: Covey, tmp_path: Path) -> None:
    tight = tmp_path / "tight.toml"
    tight.write_text(
        '[[mechanism]]\nuse = "covey.defenses.clip:ClipRows"\nbound = 2.0\nrelative = true\n'
    )
    made = matrix(
        covey, tmp_path / "m", "--attacks", "a-ra", "--defences", tight, "--rounds", 4, "--at", 5
    )
    er = {
        (a, d): made["cells"][a][d]["last"]["er@5"]["mean"]
        for a in made["cells"]
        for d in made["cells"][a]
    }
    assert (
        er["a-ra", "no defence"] > 0.9
        and er["nobody attacks", "no defence"] < 0.1
        and er["a-ra", "tight"] < 0.1
    )
    assert made["cells"]["a-ra"]["no defence"]["last"]["rank"]["mean"] < 2
    (row,) = made["maps"]
    assert row["attack"] == "a-ra"
    assert [one["name"] for one in row["maps"]] == [
        "nobody attacks",
        "a-ra, no defence",
        "a-ra, tight",
    ]
    calm, pushed, kept = (one["target_length"] for one in row["maps"])
    assert pushed > 2 * max(calm, kept)
    target = made["targets"][0]
    assert (
        target["item"] == int((plan_counts() == plan_counts().min()).nonzero()[0])
        and target["title"]
    )


def plan_counts() -> torch.Tensor:
    return planned(MatrixOptions("fedncf-sum", set=SMALL)).count_I


def test_nobody_and_no_bound_are_the_plain_method(covey: Covey, tmp_path: Path) -> None:
    """Without attackers no column changes; with a bound that nothing reaches no row changes."""
    open_ = tmp_path / "open.toml"
    open_.write_text('[[mechanism]]\nuse = "covey.defenses.clip:ClipRows"\nbound = inf\n')
    wish = MatrixOptions(
        "fedncf",
        rounds=2,
        share=0.0,
        attacks=("a-ra", "random"),
        defences=("krum", str(open_)),
        set=SMALL,
    )
    plan = planned(wish)
    assert plan.attackers == 0
    runs = run_all(plan, tmp_path / "runs", 1, lambda line: None)
    models = {
        pair: load_model(outcomes[0].folder / "model.safetensors")
        for pair, outcomes in runs.items()
    }
    for (_, defence), public in models.items():
        plain = models["nobody attacks", defence]
        assert all(torch.equal(value, plain[name]) for name, value in public.items())
    method = models["nobody attacks", "no defence"]
    for name, value in models["nobody attacks", "open"].items():  # added up in another order
        torch.testing.assert_close(value, method[name], rtol=0, atol=1e-6)
    assert not torch.equal(models["nobody attacks", "krum"]["items"], method["items"])


def test_every_run_once(covey: Covey, tmp_path: Path, rounds: list[int]) -> None:
    words = ("--attacks", "a-ra", "--defences", "clip", "--seeds", 2)
    first = matrix(covey, tmp_path / "m", *words)
    assert len(rounds) == 2 * (2 * 2 * 3 + 2 * 2 * 3)  # 40 or 44 clients in batches of 16, twice
    rounds.clear()
    assert matrix(covey, tmp_path / "m", *words) == first and not rounds
    more = matrix(covey, tmp_path / "m", *words[:3], "clip,median", *words[4:])
    assert len(rounds) == 2 * 2 * 2 * 3  # the new column alone
    for attack, row in first["cells"].items():
        for defence, cell in row.items():
            assert more["cells"][attack][defence] == cell


def test_a_matrix_that_broke_off_goes_on(
    covey: Covey, tmp_path: Path, rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = matrix(covey, tmp_path / "whole", "--attacks", "random", "--defences", "median")
    real, left = engine.run_round, [8]

    def stops(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(engine, "run_round", stops)
    words = (
        "matrix",
        *BASE,
        "--attacks",
        "random",
        "--defences",
        "median",
        "--out",
        tmp_path / "m",
    )
    assert covey(*words).code == 130
    monkeypatch.setattr(engine, "run_round", real)
    rounds.clear()
    made = matrix(covey, tmp_path / "m", "--attacks", "random", "--defences", "median")
    assert 0 < len(rounds) <= 4 * 6 - 8
    for attack, row in whole["cells"].items():
        for defence, cell in row.items():
            assert made["cells"][attack][defence]["last"] == cell["last"]


def test_seeds_have_a_spread(covey: Covey, tmp_path: Path) -> None:
    made = matrix(covey, tmp_path / "m", "--attacks", "random", "--defences", "none", "--seeds", 2)
    stat = made["cells"]["random"]["no defence"]["last"]["rank"]
    one, two = stat["values"]
    assert made["seeds"] == [0, 1] and one != two
    assert stat["mean"] == pytest.approx((one + two) / 2) and stat["spread"] == pytest.approx(
        abs(one - two) / 2**0.5
    )
    assert "±" in terminal(made)


def test_a_pair_that_does_not_fit_says_why(covey: Covey, tmp_path: Path) -> None:
    """A-ra needs user vectors, which PFedRec lacks; HiCS has a step, and FedCL needs its own."""
    small = sets(*SMALL, "run.rounds=1")
    words = ("matrix", *small, "--share", 0.1, "--defences", "hics", "--out", tmp_path / "m")
    said = covey(*words, "--method", "pfedrec", "--attacks", "a-ra,random")
    assert said.code == 0 and said.out.count("✗1") > 4  # a reason is said once
    assert said.out.count("imitates private user vectors") == 1
    made = json.loads((tmp_path / "m" / "matrix.json").read_text())
    assert made["cells"]["a-ra"]["no defence"]["errors"] and made["cells"]["random"]["no defence"][
        "seeds"
    ] == [0]
    assert "imitates private user vectors" in (tmp_path / "m" / "matrix.html").read_text()
    said = covey(*words, "--method", "fedcl-plain", "--attacks", "random", "--set", "model.dim=4")
    assert said.code == 0 and "✗1 hics has its own server step" in said.out
    assert "FAILED" not in said.err  # nothing was tried


def test_where_every_run_fails_nothing_is_shown(
    covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(engine, "run_round", broken)
    said = covey(
        "matrix",
        *BASE,
        "--attacks",
        "random",
        "--defences",
        "clip",
        "--out",
        tmp_path / "m",
        "--json",
    )
    expect_line(said, "every run failed; the first: RuntimeError: a bug")
    assert not (tmp_path / "m" / "matrix.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--attacks", "a-raa"], "no attack 'a-raa'; did you mean 'a-ra'"),
        (["--defences", "moat"], "no defence 'moat'; there are bulyan,.*trimmed"),
        (["--attacks", "none", "--defences", "none"], "name an attack or a defence"),
        (["--targets", "60"], "--targets 60: name items by row, from 0 to 59"),
        (["--targets", "-1"], "name items by row, from 0 to 59"),
        (["--targets", "hot"], "id in the data, such as id:50.*or give cold"),
        (
            ["--targets", "id:hot"],
            "synthetic has no item with that id.*covey data show synthetic --find",
        ),
        (
            ["--share", "1.5"],
            "--share 1.5: attackers are a share of the 40 honest clients; give 0 to 1",
        ),
        (["--share", "-0.1"], "give 0 to 1"),
        (["--method", "popularity", "--set", "run.rounds=1"], "no clients to attack"),
        (["--method", "fedmff"], "no method 'fedmff'"),
        (["--set", "attack.rat=1"], "none of these attacks has that option"),
        (["--set", "attack.start=0"], "start is the number of a round"),
        (["--seeds", "0"], "at least 1"),
        (["--jobs", "0"], "at least 1"),
        (["--rounds", "-3"], "give 1 or more"),
        (["--dataset", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_said_before_anything_runs(
    covey: Covey, tmp_path: Path, rounds: list[int], words: list[str], message: str
) -> None:
    own = [] if "popularity" in words else sets("model.dim=4")
    base = ("--method", "fedmf", "--rounds", 1, *sets(*SMALL[:3]), *own, "--out", tmp_path / "m")
    expect_line(covey("matrix", *base, *words), message)
    expect_nothing(tmp_path / "m")
    assert not rounds


def test_tables_fit_a_hundred_columns(covey: Covey, tmp_path: Path) -> None:
    made = matrix(covey, tmp_path / "m", "--attacks", "a-ra", "--defences", "clip", "--seeds", 2)
    lines = terminal(made).splitlines()
    assert (
        lines[0] == "fedncf-sum on synthetic: 1 attack, 1 defence"
        and "4 attackers beside 40 users" in lines[1]
    )
    row = made["cells"]["a-ra"].pop("clip")
    made["defences"] = made["defences"][:1]
    for i in range(12):  # as if twelve defences had been named
        for attack in made["cells"]:
            made["cells"][attack][f"a long defence {i}"] = row
        made["defences"].append({"label": f"a long defence {i}", "title": "", "sections": {}})
    text = terminal(made)
    assert max(map(len, text.splitlines())) <= 100
    assert all(f"a long defence {i}" in text for i in range(12))
    assert all(len(line) == 14 for line in grid(made, lambda record, cell: "x"))
