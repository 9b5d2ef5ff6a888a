"""`covey compare`: rows that may be compared, in 80 columns, as JSON and on a page."""

import json
from pathlib import Path
from typing import Any

import pytest

from command import Covey, expect_line
from covey.core.errors import CoveyError
from report_runs import EVIL, call, dataset, make


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    data = dataset(folder / "tales.npz")
    for seed in (0, 1, 2):
        make(folder / f"fedmf-{seed}", data, seed=seed)
    make(folder / "small", data, model={"dim": 2})
    make(folder / "popularity", data, "popularity")
    make(folder / "local", data, "local")
    make(folder / "other", data, split={"kind": "ratio"})
    return folder


def seeds(place: Path) -> list[Path]:
    return [place / f"fedmf-{seed}" for seed in (0, 1, 2)]


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert call("compare", *arguments, "--json") == 0
    return dict(json.loads(capsys.readouterr().out))


def test_a_table_of_80_columns(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("compare", place / "popularity", place / "local", *seeds(place)) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80 and "…" not in out
    about = [line for line in out.splitlines() if line.strip().startswith("fedmf ")]
    row, lists = [line for line in about if "fedmf is below" not in line]
    assert "20 best items at the end" in out and lists.count(".") == 2
    assert row.count("±") == 2 and " 3 " in row
    # The names of references are cut into two lines where the figures need more room.
    assert "popularity" in out and "(floor)" in out and "--out compare.html" in out
    assert "ease, train" in out and "(ceiling)" in out


def test_four_metrics_and_long_names_fit(
    tmp_path: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = {"metrics": ["recall@5", "ndcg@5", "recall@10", "ndcg@10"]}
    data, name = place / "tales.npz", "a-very-long-name-of-a-run"
    folders = [
        make(tmp_path / f"{name}-{d}-{n}", data, "fedmf", n, evaluate=metrics, model={"dim": d})
        for d in (2, 3)
        for n in (0, 1)
    ]
    assert call("compare", *folders) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80 and "…" not in out
    assert all(metric in out for metric in metrics["metrics"]) and out.count("±") == 8


def test_json_has_every_seed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (setting,) = told(capsys, *seeds(place), place / "small")["settings"]
    first, small = setting["rows"]
    values = [json.loads((f / "result.json").read_text())["test"]["recall@5"] for f in seeds(place)]
    assert first["seeds"] == [0, 1, 2] and first["test"]["recall@5"]["values"] == values
    assert first["test"]["recall@5"]["mean"] == pytest.approx(sum(values) / 3)
    assert small["test"]["recall@5"]["spread"] is None and first["guarantee"] == "no guarantee"
    assert (
        first["up_bytes"] > 0
        and set(setting["floor"]) == {"popularity"}
        and set(setting["ceiling"]) == {"ease, train", "ials, train"}
    )


def test_one_method_with_other_options_is_another_row(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (setting,) = told(capsys, place / "fedmf-0", place / "small")["settings"]
    assert [row["method"] for row in setting["rows"]] == ["fedmf (fedmf-0)", "fedmf (small)"]


def test_other_protocols_stand_apart(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, place / "fedmf-0", place / "other", place / "local")["settings"]
    assert [[row["method"] for row in setting["rows"]] for setting in found] == [
        ["local", "fedmf"],
        ["fedmf"],
    ]
    assert call("compare", place / "fedmf-0", place / "other") == 0
    assert "do not compare across" in capsys.readouterr().out


def test_a_folder_given_twice_counts_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (setting,) = told(capsys, place / "fedmf-0", place / "local" / ".." / "fedmf-0")["settings"]
    assert setting["rows"][0]["seeds"] == [0]


def test_one_seed_twice_is_no_spread(place: Path, tmp_path: Path) -> None:
    again = make(tmp_path / "again", place / "tales.npz")
    with pytest.raises(CoveyError, match="seed 0, and equal runs have no spread"):
        call("compare", place / "fedmf-0", again)


def test_a_ceiling_is_no_bound(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make(tmp_path / "above", place / "tales.npz")
    done = json.loads((folder / "result.json").read_text())
    done["test"] |= {k: v + 0.1 for k, v in done["ceiling"]["ease"].items()}
    (folder / "result.json").write_text(json.dumps(done))
    assert call("compare", folder, place / "local") == 0
    out = capsys.readouterr().out
    assert "ease, train on pooled data is a reference, not a bound; above it: fedmf\n" in out
    assert call("compare", place / "local") == 0
    assert "no bound" not in capsys.readouterr().out


def test_the_page(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "compare.html"
    asked = [place / "popularity", place / "local", *seeds(place), place / "other"]
    assert call("compare", *asked, "--out", out) == 0
    page = out.read_text(encoding="utf-8")
    assert f"page in {out}" in capsys.readouterr().out
    assert page.count("<h1>") == 3 and "do not compare figures across" in page
    assert "<script>document.title" not in page and EVIL not in page
    assert "nothing leaves" in page and "all data is collected" in page and "±" in page
    with pytest.raises(CoveyError, match=r"\.html"):
        call("compare", *asked, "--out", place / "fedmf-0")


def test_mistakes_are_one_line(covey: Covey, place: Path, tmp_path: Path) -> None:
    for command in ("report", "compare"):
        expect_line(covey(command, tmp_path / "no"), "no run folder .*no; start one with covey run")
        expect_line(
            covey(command, place / "local", "--out", tmp_path / "no" / "x.html"),
            "cannot write .*another --out",
        )
        expect_line(covey(command), "see covey")
    assert not list(tmp_path.iterdir())


def test_the_examples_of_the_help(
    covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        data = dataset(tmp_path / f"{name}.npz")
        make(Path("runs") / name, data)
    for command in ("report", "compare"):
        with pytest.raises(SystemExit):
            covey(command, "--help")
    assert covey(*["report", "runs/first", "--out", "report.html"]).code == 0
    assert covey(*["compare", "runs/first", "runs/second", "--out", "compare.html"]).code == 0
    assert (
        (tmp_path / "report.html").stat().st_size
        > 20_000
        < (tmp_path / "compare.html").stat().st_size
    )
