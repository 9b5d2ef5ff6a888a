"""Runs with a target: the page and the comparison show how far it was pushed, beside a control."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from covey.study.report.data import read_settings
from covey.study.report.sections import attacks, exposed, targets
from report_runs import EVIL, call, dataset, make

ATTACK = {"use": "covey.attacks.explicit:ExplicitBoost", "targets": [3], "share": 0.1}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    data = dataset(folder / "tales.npz")
    for seed in (0, 1):
        select(make(folder / f"attacked-{seed}", data, "fedncf-local", seed, attack=ATTACK), 2)
    select(make(folder / "control", data, "fedncf-local", evaluate={"targets": [3]}), 3)
    make(folder / "plain", data, "fedncf-local")
    make(
        folder / "flipped",
        data,
        "fedncf-local",
        attack={"use": "covey.attacks.sign_flip:SignFlip", "share": 0.1},
    )
    return folder


def select(folder: Path, number: int) -> None:
    """As if validation had chosen this round."""
    done = json.loads((folder / "result.json").read_text())
    row = next(row for row in rows(folder) if row["round"] == number)
    (folder / "result.json").write_text(json.dumps(done | row))


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def page(folder: Path, out: Path) -> str:
    assert call("report", folder, "--out", out) == 0
    return out.read_text(encoding="utf-8")


def cells(shown: str) -> list[list[str]]:
    """Rows of the section's table."""
    part = shown[shown.index("<h2>Exposure of the target</h2>") :]
    table = part[part.index("<tbody>") : part.index("</tbody>")]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("</tr>")[:-1]]


def figures(row: dict[str, Any]) -> list[str]:
    pushed = row["target"]
    return [*(f"{pushed[f'er@{k}']:.4f}" for k in (5, 10, 20)), f"{pushed['rank']:.1f}"]


def test_the_page_of_an_attacked_run(place: Path, tmp_path: Path) -> None:
    shown, measured = page(place / "attacked-0", tmp_path / "r.html"), rows(place / "attacked-0")
    assert "<b>Attack</b>: explicit boosting, by 2 of 26 clients." in shown
    seen = measured[-1]["target"]["er@10"]
    users = f"<b>{seen:.1%}</b> of the honest users who do not have it"
    assert f"{users} see row 3, id 3 (Tale &amp; Song 3) among" in shown
    assert cells(shown) == [
        ["fedncf-local", "2", "2, selected", *figures(measured[1])],
        ["fedncf-local", "2", "3, last", *figures(measured[2])],
    ]
    for k in (5, 10, 20):
        assert all(
            f"er@{k}, round {row['round']}: {row['target'][f'er@{k}']:.4f}" in shown
            for row in measured
        )
    assert (
        'aria-label="ER@K over the rounds"' in shown
        and 'aria-label="rank over the rounds"' in shown
    )


def test_the_page_of_a_control_run(place: Path, tmp_path: Path) -> None:
    shown, measured = page(place / "control", tmp_path / "r.html"), rows(place / "control")
    assert "<b>Attack</b>" not in shown and "Target: row 3, id 3 (Tale &amp; Song 3)." in shown
    assert cells(shown) == [["fedncf-local", "0", "3, selected and last", *figures(measured[-1])]]


def test_without_a_target_there_is_no_such_part(place: Path, tmp_path: Path) -> None:
    assert "Exposure of the target" not in page(place / "plain", tmp_path / "plain.html")
    shown = page(place / "flipped", tmp_path / "flipped.html")
    assert (
        "Exposure of the target" not in shown
        and "<b>Attack</b>: sign flip, by 2 of 26 clients." in shown
    )


def test_a_control_stands_beside_the_attack(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one table: naming targets for measurement changes no other figure."""
    assert (
        call("compare", place / "attacked-0", place / "control", place / "plain", place / "flipped")
        == 0
    )
    out = capsys.readouterr().out
    assert (
        max(map(len, out.splitlines())) <= 80
        and "…" not in out
        and "do not compare across" not in out
    )
    selected, last = out.split("target, selected round")[1].split("target, last round (in use)")
    for part, at in ((selected, 1), (last, 2)):
        found = {
            line.split("  ")[0].strip(): line.split()[2:]
            for line in part.splitlines()
            if "fedncf-local (" in line
        }
        assert found["fedncf-local (attacked-0)"][:5] == [
            "2",
            *figures(rows(place / "attacked-0")[at]),
        ]
        assert found["fedncf-local (control)"][:5] == ["0", *figures(rows(place / "control")[2])]
        assert "fedncf-local (plain)" not in found
    assert "target: row 3, id 3 (Tale & Song 3)\n" in out
    assert "attack: sign flip, by 2 of 26 clients, on fedncf-local (flipped)\n" in out


def test_without_a_target_there_are_no_such_columns(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("compare", place / "plain", place / "flipped") == 0
    out = capsys.readouterr().out
    assert "er@5" not in out and "target" not in out and "attack: sign flip" in out


def test_seeds_have_a_spread(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [place / "attacked-0", place / "attacked-1"]
    assert call("compare", *folders, place / "control") == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80 and "…" not in out
    assert call("compare", *folders, place / "control", "--json") == 0
    (setting,) = json.loads(capsys.readouterr().out)["settings"]
    mine = {row["method"]: row for row in setting["rows"]}
    attacked, control = mine["fedncf-local (attacked-0)"], mine["fedncf-local (control)"]
    want = [rows(folder)[-1]["target"]["rank"] for folder in folders]
    assert attacked["target"]["last"]["rank"]["values"] == want and attacked["attackers"] == 2
    assert attacked["target"]["selected"]["er@5"]["values"] == [
        rows(f)[1]["target"]["er@5"] for f in folders
    ]
    assert control["attackers"] == 0 and control["target"]["last"]["rank"]["spread"] is None
    group = read_settings(folders)[0].groups[0]
    assert exposed(group, "last", "rank").values == tuple(want)


def test_other_targets_are_named_by_method(place: Path, tmp_path: Path) -> None:
    other = make(
        tmp_path / "other", place / "tales.npz", "fedmf", attack=ATTACK | {"targets": [0, 4]}
    )
    (setting,) = read_settings([place / "control", other])
    assert targets(setting).count("row 3, id 3 (Tale & Song 3) in fedncf") == 1
    assert f"row 0, id 0 ({EVIL}) and row 4, id 4 (Tale & Song 4) in fedmf" in targets(setting)
    assert attacks(setting) == ["explicit boosting, by 2 of 26 clients, on fedmf"]
    shown = page(other, tmp_path / "r.html")
    assert "<script>document.title" not in shown and "<img" not in shown
