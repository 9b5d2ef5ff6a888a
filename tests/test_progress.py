"""A long run says how far it is: in a log now and then a line, in a notebook a bar."""

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import covey
from command import SMALL, Covey, sets
from covey.core import progress
from covey.core.progress import Bar

ROW = {"valid": {"hit@10": 0.5, "ndcg@10": 0.25, "ndcg@10/light": 0.1}}


def test_a_log_gets_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "DELAYS", (0.05, 0.1))
    with Bar(metric="ndcg@10") as bar:
        time.sleep(0.3)
        for number in range(1, 4):
            bar.update(number, 1000, ROW if number == 2 else {})
            time.sleep(0.02)
        time.sleep(0.25)
    first, *others = capsys.readouterr().err.splitlines()
    time.sleep(0.15)
    assert capsys.readouterr().err == ""  # nothing is printed after the end
    assert first.startswith("covey: at work for 0.")
    assert others
    said = "covey: round 3 of 1000, ndcg@10 0.2500, hit@10 0.5000 on validation, about "
    assert others[-1].startswith(said) and others[-1].endswith(" left")


@pytest.mark.parametrize(("more", "lines"), [((), True), (("--json",), False)])
def test_a_run_without_a_terminal(
    more: tuple[str, ...],
    lines: bool,
    covey: Covey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "DELAYS", (0.001,))
    method = ("--method", "fedmf", *sets(*SMALL, "run.rounds=20"))
    output = covey("run", *method, *more, "--out", tmp_path / "out")
    assert output.code == 0
    assert any(line.startswith("covey: round") for line in output.err.splitlines()) is lines


def test_a_notebook_shows_a_bar_unless_it_is_not_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def display(what: Any, display_id: bool) -> Any:
        assert display_id
        return SimpleNamespace(update=lambda what: shown.append(what._repr_html_()))

    shell = SimpleNamespace(kernel=object())
    fake = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", fake)  # not installed where the tests run
    sizes: Any = {"data": {"users": 30, "items": 60, "mean_items": 8}, "model": {"dim": 4}}
    covey.fit("fedmf", rounds=2, **sizes)
    assert "<progress" in shown[0] and "round 1 of 2" in shown[0]
    assert shown[-1].startswith("round 2 of 2, recall@20") and "<progress" not in shown[-1]
    shown.clear()
    covey.fit("fedmf", rounds=2, verbose=False, **sizes)
    del shell.kernel  # IPython in a terminal
    covey.fit("fedmf", rounds=2, **sizes)
    assert not shown
    assert capsys.readouterr() == ("", "")
