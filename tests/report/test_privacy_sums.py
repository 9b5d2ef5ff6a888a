"""The privacy budget of a user is in every run's output and report; older results can be read."""

import html
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from covey.study.render.wording import SIMULATED, privacy_lines
from covey.study.report.costs import guarantee
from covey.study.report.data import read_settings
from covey.study.report.terminal import table
from report_runs import call, dataset, make

NOISE = {
    "use": "covey.privacy.uploads:NoisyUploads",
    "epsilon": 0.5,
    "clip": 0.1,
    "per": "upload",
    "rows": "all",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    data = dataset(folder / "tales.npz")
    gaussian = {**NOISE, "kind": "gaussian", "delta": 1e-7}
    for name, noise in {"pure": NOISE, "gaussian": gaussian}.items():
        make(folder / name, data, "fedncf", mechanism=[noise])  # type: ignore[arg-type]
    make(folder / "fedcl", data, "fedcl", evaluate={"select": "ndcg@5"})
    for name in ("pdc-frs", "cl4fedrec"):
        make(folder / name, data, name)
    make(folder / "cofedrec", data, "cofedrec", grouping={"categories": 4})
    return folder


def result(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return read


def page(folder: Path, out: Path) -> str:
    assert call("report", folder, "--out", out) == 0
    return out.read_text()


def test_a_run_prints_its_sums(runs: Path) -> None:
    """All parameters share 0.5 in each of three rounds: 1.5. FedCL reports at 4 in three passes."""
    said = table(result(runs / "pure"), runs)
    assert "epsilon: a round 0.5; total for a user 1.5 (basic composition)" in said
    assert "without any guarantee" not in said
    said = table(result(runs / "fedcl"), runs)
    assert "epsilon: a report 4, a round 4; total for a user 12 (basic composition)" in said
    assert "without any guarantee: train update/items and 4 more; a user has none in total" in said


# The shipped settings over three passes or rounds: guarantees worked by hand, open fields.
PAPERS = {
    "fedcl": (
        "epsilon: a report 4, a round 4; total for a user 12 (basic composition)",
        "train update/items and 4 more",
    ),
    "pdc-frs": (
        "epsilon: an item 5, enrolment 20; total for a user 20 (basic composition)",
        "train update/items and 10 more",
    ),
    "cl4fedrec": ("", "train update/items and 8 more"),
    "cofedrec": ("", "train model/items"),
}


@pytest.mark.parametrize("name", PAPERS)
def test_each_papers_run_and_report_have_its_totals(name: str, runs: Path, tmp_path: Path) -> None:
    """FedCL reports at 4 in three passes: 12. PDC-FRS's lists have 4 training items at 5: 20."""
    total, unprotected = PAPERS[name]
    said, shown = table(result(runs / name), runs), page(runs / name, tmp_path / "page.html")
    for where in (said, shown):
        assert total in where
        assert "a user has none in total" in where
    assert f"without any guarantee: {unprotected}; " in said
    fields = [row["field"] for row in result(runs / name)["ledger"] if row["step"] != "evaluate"]
    assert all(field in shown for field in fields)


def test_gaussian_noise_has_its_delta(runs: Path) -> None:
    said = table(result(runs / "gaussian"), runs)
    assert "total for a user 1.5, delta 3e-07 (basic composition)" in said
    assert "at delta 1e-05: total for a user 0." in said and "(exact for Gaussian noise)" in said


def test_a_report_has_the_same_sums(runs: Path, tmp_path: Path) -> None:
    """Fields under one epsilon are not added to each other."""
    shown = page(runs / "pure", tmp_path / "pure.html")
    assert "Every field has a guarantee; a user spends epsilon 1.5 in total." in shown
    assert "total for a user 1.5 (basic composition)" in shown
    shown = page(runs / "gaussian", tmp_path / "gaussian.html")
    assert ", delta 1e-05 in total." in shown and "0.5 per message, delta 1e-07" in shown
    shown = page(runs / "fedcl", tmp_path / "fedcl.html")
    assert "total for a user 12 (basic composition)" in shown
    assert "so a user has none in total" in shown


def test_simulated_noise_is_no_protection(runs: Path, tmp_path: Path) -> None:
    """Said beside the sum, once, and no badge is green; noise of the device's own protects."""
    shown = page(runs / "pure", tmp_path / "pure.html")
    assert f"epsilon 1.5 in total. But it has {said(SIMULATED)}." in shown
    assert shown.count(said(SIMULATED)) == 1 and "badge good" not in shown
    assert said(SIMULATED) in page(runs / "fedcl", tmp_path / "fedcl.html")
    group = read_settings([runs / "pure"])[0].groups[0]
    assert guarantee(group) == "epsilon 1.5, noise simulated"
    folder = copied(runs / "pure", tmp_path / "device", noise="device")
    shown = page(folder, tmp_path / "device.html")
    assert said(SIMULATED) not in shown and "badge good" in shown
    assert guarantee(read_settings([folder])[0].groups[0]) == "epsilon 1.5"


def test_the_page_says_what_sums_hide(runs: Path, tmp_path: Path) -> None:
    data = runs / "tales.npz"
    summed = make(
        tmp_path / "summed", data, "spectral-private", fleet={"secure": True, "masks": False}
    )
    clear = make(tmp_path / "clear", data, "spectral-private")
    done = result(summed) | {"secure": {"clients_at_least": 13, "clear": [], "masks": True}}
    (summed / "result.json").write_text(json.dumps(done))
    assert "the server reads only totals over at least 13 clients" in page(
        summed, tmp_path / "summed.html"
    )
    assert "with fleet.secure = true, " in page(clear, tmp_path / "clear.html")


def said(words: str) -> str:
    return html.escape(words, quote=True)


def copied(folder: Path, to: Path, **privacy: str) -> Path:
    """A run with other words about its privacy."""
    shutil.copytree(folder, to)
    done = result(folder)
    (to / "result.json").write_text(json.dumps(done | {"privacy": done["privacy"] | privacy}))
    return to


def test_results_of_older_versions_are_read(runs: Path, tmp_path: Path) -> None:
    old = result(runs / "pure")
    del old["privacy"]
    assert privacy_lines(old.get("privacy")) == []
    for row in old["ledger"]:
        del row["delta"], row["epsilon_message"]
    folder = tmp_path / "old"
    folder.mkdir()
    for file in (runs / "pure").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "result.json").write_text(json.dumps(old))
    assert "Every field has a guarantee" in page(folder, tmp_path / "old.html")
