"""What a run prints besides its figures: attacks, simulated noise, secure sums, references."""

import json
from pathlib import Path
from typing import Any

import pytest

from covey.contract.ledger import Disclosure
from covey.core.messages import Catalogue
from covey.engine.client.program import Program
from covey.evaluate.metrics import EvaluateConfig
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.privacy.pseudo_items import PseudoItems
from covey.privacy.uploads import NoisyUploads
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import assign
from covey.run.schedule import smallest_cohort
from covey.solvers import Local
from covey.study.render.wording import SIMULATED, above_references, exceeds, privacy_lines
from covey.study.report.terminal import table
from report_runs import USERS, dataset, make

ATTACK = {"use": "covey.attacks.explicit:ExplicitBoost", "targets": [3], "share": 0.1}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    data = dataset(folder / "tales.npz")
    make(folder / "attacked", data, "fedncf", attack=ATTACK)
    make(folder / "control", data, "fedncf", evaluate={"targets": [3, 4]})
    make(folder / "ease", data, "ease")
    for name, fleet in {
        "clear": {},
        "summed": {"secure": True},
        "rehearsed": {"secure": True, "masks": False},
    }.items():
        make(folder / f"private-{name}", data, "spectral-private", fleet=fleet)
    return folder


def result(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return read


def printed(found: dict[str, Any]) -> str:
    output = table(found, Path("out"))
    assert max(map(len, output.splitlines())) <= 80 and "…" not in output
    return output


def as_if(found: dict[str, Any], **changes: Any) -> str:
    return printed({**found, **changes})


def test_an_attacked_run_says_who_attacked_and_what_came_of_it(place: Path) -> None:
    """2 attackers beside 24 users; the last row of metrics.jsonl is what is served."""
    found = result(place / "attacked")
    rows = [
        json.loads(line) for line in (place / "attacked" / "metrics.jsonl").read_text().splitlines()
    ]
    assert found["target_last"] == {"round": 3, **rows[-1]["target"]}
    assert found["targets"] == [{"item": 3, "id": "3", "title": "Tale & Song 3"}]
    output = as_if(found, round=2, target={"er@5": 0.25, "er@10": 0.5, "er@20": 1.0, "rank": 7.25})
    assert f"attack: explicit boosting, by 2 of {USERS + 2} clients\n" in output
    assert "exposure of row 3, id 3 (Tale & Song 3)" in output
    (selected,) = [line for line in output.splitlines() if "round 2, selected" in line]
    assert [cell.strip() for cell in selected.split("│")[2:6]] == [
        "0.2500",
        "0.5000",
        "1.0000",
        "7.2",
    ]
    (last,) = [
        line for line in output.splitlines() if "round 3, the last: used by covey recommend" in line
    ]
    assert (
        f"{rows[-1]['target']['er@10']:.4f}" in last and f"{rows[-1]['target']['rank']:.1f}" in last
    )


def test_a_control_run_has_its_targets_too(place: Path) -> None:
    output = " ".join(printed(result(place / "control")).split())
    assert (
        "exposure of row 3, id 3 (Tale & Song 3) and row 4, id 4 (Tale & Song 4)" in output
        and "attack:" not in output
    )
    assert "exposure" not in printed(result(place / "private-clear"))


def test_the_selected_round_may_be_the_last(place: Path) -> None:
    output = as_if(result(place / "attacked"), round=3)
    assert "round 3, selected and last" in output and "used by covey recommend" not in output


def test_an_attack_says_what_it_knows_and_whom_filters_left_out(place: Path) -> None:
    found = result(place / "attacked")
    attack = {
        "name": "x",
        "knowledge": "all",
        "clients": 2,
        "left_out": 4,
        "precision": 0.5,
        "recall": None,
    }
    output = as_if(found, attack=attack).replace("\n", " ")
    assert (
        "attack: x, by 2 of 26 clients, knowing all;"
        " filters excluded 4 uploads (precision 50%, recall –)" in output
    )


def test_results_of_older_versions_have_numbers_only(place: Path) -> None:
    old = result(place / "attacked")
    for name in ("targets", "target_last", "sees_validation"):
        del old[name]
    output = printed(old)
    assert (
        "exposure of row 3\n" in "\n".join(line.strip() for line in output.splitlines())
        and "selected" in output
    )


def test_what_the_study_is_told_is_counted_apart(place: Path) -> None:
    for name, fields in (("private-clear", 4), ("attacked", 8)):
        line = f"and {fields} fields of per-user metrics for evaluation, not counted as traffic"
        assert line in printed(result(place / name))


def test_sums_are_said_to_be_sums(place: Path) -> None:
    """More than half of 24 clients. What has a guarantee in sums alone says how to have it."""
    clear, summed = (result(place / f"private-{name}") for name in ("clear", "summed"))
    assert "reads only totals" not in printed(clear)
    assert "with fleet.secure = true, report spectral/sum would have a guarantee" in printed(clear)
    assert (
        clear["privacy"]["needs_secure"] == ["report spectral/sum"]
        and clear["privacy"]["noise"] is None
    )
    assert summed["secure"] == {"clients_at_least": 13, "clear": [], "masks": True}
    assert "secure sums: the server reads only totals over at least 13 clients" in printed(summed)
    assert summed["privacy"]["needs_secure"] == [] and "with fleet.secure" not in printed(summed)
    output = " ".join(
        as_if(summed, secure=summed["secure"] | {"clear": ["enrol", "report"]}).split()
    )
    assert (
        "at least 13 clients, except enrolment messages and reports, which it reads singly"
        in output
    )
    assert "without masks (fleet.masks = false) give no protection" in printed(
        result(place / "private-rehearsed")
    )


@pytest.mark.parametrize(
    ("changes", "fewest"),
    [
        ([], 100),
        (["run.cohort=30"], 10),  # 30, 30, 30 and the rest
        (["run.cohort=25"], 25),
        (["run.cohort=200"], 100),
        (["run.cohort=30", 'run.schedule="sample"'], 30),
    ],
)
def test_the_smallest_cohort(changes: list[str], fewest: int) -> None:
    assert smallest_cohort(Config.of(assign(read("methods", "fedmf"), changes)), 100) == fewest


def test_simulated_noise_protects_nobody_and_says_so(place: Path) -> None:
    found = result(place / "private-summed")
    assert found["privacy"]["noise"] == "simulated" and SIMULATED in printed(found)
    assert SIMULATED not in privacy_lines({**found["privacy"], "noise": "device"})


@pytest.mark.parametrize(("noise", "simulated"), [("simulated", True), ("device", False)])
def test_where_noise_comes_from_is_declared(noise: Any, simulated: bool) -> None:
    """Of the field that has the noise, not of what goes beside it in clear."""
    noisy = NoisyUploads(epsilon=1.0, noise=noise)
    program = Program(
        MF(4),
        Bce(),
        Catalogue(10),
        Local(),
        (noisy, PseudoItems(count=2)),
        evaluate=EvaluateConfig(metrics=("hit@5",)),
    )
    found: dict[str, Disclosure] = {d.name: d for d in program.disclosures()}
    assert found["update/items"].simulated == simulated
    assert (
        not found["update/items/touched"].simulated and not found["evaluate/test/hit@5"].simulated
    )


def test_a_reference_is_no_bound(place: Path) -> None:
    found = result(place / "private-clear")
    above = {name: value + 0.1 for name, value in found["ceiling"]["ease"].items()}
    same = as_if(found, test=found["ceiling"]["ease"])
    assert found["sees_validation"] and "ease on pooled data" not in same
    output = as_if(found, test=above).replace("\n", " ")
    assert "ease on pooled data is a reference, not a bound; above it: spectral-private " in output


def test_who_scores_from_validation_items(place: Path, tmp_path: Path) -> None:
    """A list on the device has them in the test; a trained vector or a hidden list has not."""
    assert (
        not result(place / "attacked")["sees_validation"]
        and not result(place / "ease")["sees_validation"]
    )
    hidden = make(
        tmp_path / "hidden", place / "tales.npz", "spectral-private", evaluate={"history": "train"}
    )
    assert not result(hidden)["sees_validation"]


def test_above_is_more_than_rounding() -> None:
    assert exceeds({"a": 0.2, "b": 0.1}, {"a": 0.1, "b": 0.2})
    assert not exceeds({"a": 0.1 + 1e-12, "c": 1.0}, {"a": 0.1}) and not exceeds(
        {"a": float("nan")}, {"a": 0.1}
    )
    assert above_references({}) == []
    (line,) = above_references({"ease": ["x", "y"]})
    assert line.endswith("above it: x, y")


def test_a_closed_form_has_no_rounds(place: Path) -> None:
    output = printed(result(place / "ease"))
    assert "│ ease  " in output and "round 0" not in output
