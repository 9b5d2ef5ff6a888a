"""Exposure of targets: by hand, and in a run with an attack and a filter."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from command import Covey
from covey.core.ragged import Ragged
from covey.evaluate.exposure import exposures, summary, target_ranks

NAN = float("nan")


def test_by_hand() -> None:
    """Four users and six items, targets 0 and 5; user 3 has target 0."""
    score_CI = torch.tensor(
        [
            [9.0, 8, 7, 6, 5, 4],  # first and last
            [1.0, 1, 1, 1, 1, 1],  # ties count against it
            [NAN, 1, 2, 3, 4, 5],  # never shown
            [0.0, 1, 2, 3, 4, 5],
        ]
    )
    hidden = Ragged.of([[1, 2], [1], [], [0]])
    rank_CK = target_ranks(score_CI, hidden, (0, 5))
    assert rank_CK.tolist() == [[1, 4], [5, 5], [6, 1], [6, 1]]
    found = exposures(rank_CK, Ragged.of([[1, 2], [1], [4], [0]]), (0, 5))
    assert found["target/0/er@5"][:3].tolist() == [1, 1, 0] and bool(
        found["target/0/er@5"][3].isnan()
    )
    means = summary(found)
    assert means["er@5"] == pytest.approx((2 / 3 + 1) / 2) and means["er@20"] == 1
    assert means["rank"] == pytest.approx(((1 + 5 + 6) / 3 + 11 / 4) / 2)
    assert not score_CI[0].isinf().any()  # only read


def test_a_target_that_everybody_has() -> None:
    found = exposures(torch.tensor([[1, 2]]), Ragged.of([[7]]), (7, 8))
    assert summary(found)["er@5"] == 1 and summary({}) == {}


def rows(folder: Path) -> list[dict[str, dict[str, float]]]:
    return [
        json.loads(line)
        for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]


SMALL = (
    "--set",
    "data.users=60",
    "--set",
    "data.items=40",
    "--set",
    "data.mean_items=8",
    "--rounds",
    "3",
)


def test_an_attacked_run_tells_exposure_and_detection(covey: Covey, tmp_path: Path) -> None:
    attack = (
        "--set",
        "attack.use=covey.attacks.cluster:ClusterAttack",
        "--set",
        "attack.share=0.1",
    )
    union = ("--set", 'mechanism=[{use="covey.defenses.union:Union", items=40, malicious=0.1}]')
    said = covey(
        "run",
        "--method",
        "fedmf",
        *SMALL,
        *attack,
        *union,
        "--set",
        "evaluate.targets=[3]",
        "--out",
        tmp_path / "a",
    )
    assert said.code == 0, said.err
    result = json.loads((tmp_path / "a/result.json").read_text(encoding="utf-8"))
    assert set(rows(tmp_path / "a")[0]["target"]) == {"er@5", "er@10", "er@20", "rank"}
    assert result["attack"]["name"] == "clusterattack" and result["attack"]["clients"] == 6
    assert result["attack"]["left_out"] > 0 and 0 <= result["attack"]["precision"] <= 1
    assert "NOT DECLARED" not in json.dumps(result["ledger"])
    lines = [
        json.loads(x)
        for x in (tmp_path / "a/rounds.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert lines[1]["told"]["attackers"]["answered"] == 6


def test_the_targets_of_an_attack_are_measured_and_must_exist(covey: Covey, tmp_path: Path) -> None:
    use, share = "attack.use=covey.attacks.explicit:ExplicitBoost", "attack.share=0.1"
    attack = ("--set", use, "--set", share)
    run = partial(covey, "run", "--method", "fedmf", *SMALL, *attack, "--out")
    target = ("--set", "attack.targets=[7]", "--set", "attack.scale=50")
    assert run(tmp_path / "a", *target).code == 0
    assert rows(tmp_path / "a")[-1]["target"]["er@20"] > 0
    wrong = run(tmp_path / "b", "--set", "attack.targets=[40]")
    assert wrong.code == 2 and "attack.targets = [40]; name items from 0 to 39" in wrong.err
    assert not (tmp_path / "b").exists()
    many = run(tmp_path / "c", "--set", "attack.share=1.5")
    assert many.code == 2 and "share is from 0 (no attackers) to 1" in many.err


def test_nobody_attacks_and_nothing_changes(covey: Covey, tmp_path: Path) -> None:
    """With a share of 0 the run is the one without an attack, to the bit."""
    nobody = ("--set", "attack.use=covey.attacks.a_ra:ARa", "--set", "attack.share=0")
    covey("run", "--method", "fedncf", *SMALL, *nobody, "--out", tmp_path / "a")
    covey("run", "--method", "fedncf", *SMALL, "--out", tmp_path / "b")
    one, two = (rows(tmp_path / name) for name in "ab")
    assert [row["test"] for row in one] == [row["test"] for row in two]
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert models[0] == models[1]
