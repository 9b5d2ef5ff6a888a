"""Tables of papers: every run once, also after an interruption; failed runs; refused files."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.core.errors import CoveyError
from covey.run.config.schema import Config
from covey.run.loop import run
from covey.study import batch as execution
from covey.study.batch import Outcome, execute, key
from covey.study.papers.plan import WHOLE, Scope
from covey.study.papers.record import reproduce, store, users_of, work_of
from covey.study.papers.settings import configs
from covey.study.papers.terminal import markdown
from reproduce_tables import SWEEP, TABLE, made


def once(tmp_path: Path, text: str = TABLE, scope: Scope = WHOLE) -> dict[str, Any]:
    return reproduce([made(tmp_path, text)], tmp_path / "work", scope, 1, lambda line: None)[0]


def test_every_seed_of_every_cell_is_run(tmp_path: Path, rounds: list[int]) -> None:
    record = once(tmp_path)
    assert rounds == [1, 2, 3] * 2
    fedmf, floor = (row["cells"]["tiny"] for row in record["rows"])
    one, two = fedmf["figures"]["ndcg@10"]
    assert one != two and fedmf["seeds"] == [0, 1] and floor["seeds"] == [0]
    assert fedmf["mean"]["ndcg@10"] == pytest.approx((one + two) / 2)
    assert fedmf["spread"]["ndcg@10"] == pytest.approx(abs(one - two) / 2**0.5)
    assert floor["spread"] == {"hit@10": 0.0, "ndcg@10": 0.0}
    assert fedmf["up_bytes"] > 0 and fedmf["work"] == 15 and floor["work"] is None
    assert fedmf["dropped"] == {} and len(fedmf["made"]) == 1 and "torch" in fedmf["made"][0]
    assert fedmf["config"]["model"]["dim"] == 4 and fedmf["config"]["preset"] == "loo-full"
    assert fedmf["impossible"] and "ndcg@10" in fedmf["impossible"][0]  # the planted 0.3 > 0.2
    assert not list((tmp_path / "work").rglob("checkpoint.safetensors"))  # large, and done with


def test_a_second_time_nothing_runs(tmp_path: Path, rounds: list[int]) -> None:
    first = once(tmp_path)
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "work").rglob("*")}
    rounds.clear()
    assert once(tmp_path) == first and rounds == []
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "work").rglob("*")} == stamps


def test_a_change_reruns_only_what_depends_on_it(tmp_path: Path, rounds: list[int]) -> None:
    more = TABLE.replace(
        '[[row]]\nlabel = "popularity"',
        '[[row]]\nlabel = "wide"\nmethod = "fedmf"\nset = '
        '["run.rounds=2", "model.dim=8"]\n[[row]]\nlabel = "popularity"',
    )
    once(tmp_path, more)
    rounds.clear()
    once(tmp_path, more.replace('"model.dim=8"', '"model.dim=6"').replace("Two rows", "Three rows"))
    assert rounds == [1, 2] * 2


def test_where_it_is_computed_is_not_part_of_what_is_computed(tmp_path: Path) -> None:
    one = made(tmp_path)
    scopes = [Scope(set=(f'engine.device="{name}"',)) for name in ("cpu", "cuda")]
    cpu, cuda = (key(configs(one, one.rows[0], one.columns[0], scope)[0]) for scope in scopes)
    assert cpu == cuda != key(configs(one, one.rows[0], one.columns[0])[1])


def test_what_a_column_trains_with_goes_before_a_row_and_spares_floors(tmp_path: Path) -> None:
    text = TABLE.replace(
        'presets = ["loo-full"]', 'presets = ["loo-full"]\ntrained = ["model.dim=5"]'
    )
    at = text.replace("[row.paper]", '[row.at."tiny"]\nset = ["model.dim=6"]\n[row.paper]')
    for file, dim in ((TABLE, 4), (text, 5), (at, 6)):
        of = made(tmp_path, file)
        assert configs(of, of.rows[0], of.columns[0])[0].tree["model"]["dim"] == dim
    one = made(tmp_path, text)
    assert "model" not in configs(one, one.rows[1], one.columns[0])[0].tree


def test_a_run_that_broke_off_goes_on(tmp_path: Path, rounds: list[int]) -> None:
    whole = once(tmp_path)["rows"][0]["cells"]["tiny"]["figures"]

    class Killed(Exception):
        pass

    def kill(number: int, total: int, row: dict[str, Any]) -> None:
        if number == 3:
            raise Killed

    one = made(tmp_path)
    config = configs(one, one.rows[0], one.columns[0])[1]
    with pytest.raises(Killed):
        run(config, tmp_path / "again" / key(config), progress=kill)
    rounds.clear()
    again = reproduce([one], tmp_path / "again", WHOLE, 1, lambda line: None)[0]
    assert again["rows"][0]["cells"]["tiny"]["figures"] == whole
    assert rounds == [1, 2, 3, 3]  # seed 0 from the start, seed 1 from its checkpoint of round 2


def test_a_failed_run_leaves_a_hole_and_the_others_finish(
    tmp_path: Path, rounds: list[int]
) -> None:
    broken = TABLE.replace(
        'method = "popularity"', 'method = "popularity"\nset = ["data.min_user=1000"]'
    )
    record = once(tmp_path, broken)
    fedmf, floor = (row["cells"]["tiny"] for row in record["rows"])
    assert floor["errors"] and floor["figures"] == {} and fedmf["seeds"] == [0, 1]
    assert record["claims"][0]["verdict"] == "not decided"
    assert floor["errors"][0]["error"].split(":")[0] in markdown(record)


def test_what_is_not_finished_is_left_out_when_nothing_is_to_run(
    tmp_path: Path, rounds: list[int]
) -> None:
    one = made(tmp_path)
    execute(configs(one, one.rows[0], one.columns[0])[:1], tmp_path / "work")
    rounds.clear()
    record = reproduce([one], tmp_path / "work", WHOLE, 1, lambda line: None, begin=False)[0]
    fedmf, floor = (row["cells"]["tiny"] for row in record["rows"])
    assert rounds == [] and fedmf["seeds"] == [0] and floor["figures"] == {}
    assert record["claims"][0]["verdict"] == "not decided"
    assert "seed 1 not run yet" in markdown(record) and "failed" not in markdown(record)


DIES = """
import multiprocessing, os
from dataclasses import dataclass
from covey.mechanism import Mechanism
if multiprocessing.parent_process():  # only in a process of its own
    os._exit(9)
@dataclass(frozen=True)
class Dies(Mechanism):
    name: str = "dies"
"""


def test_the_log_has_the_start_and_the_end_of_each_run(
    tmp_path: Path, rounds: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    one = made(tmp_path)
    config = configs(one, one.rows[0], one.columns[0])[0]
    execute([config], tmp_path / "work")
    assert caplog.messages == []  # silent unless asked for
    with caplog.at_level("INFO", logger="covey.study.batch"):
        execute([config], tmp_path / "work")
        execute([config], tmp_path / "again")
    start, end = caplog.messages  # the first command found the run finished
    assert start.startswith(f"run {key(config)} starts in {tmp_path / 'again' / key(config)}: ")
    assert end.startswith(f"run {key(config)} ended: fedmf on synthetic, seed 0: ndcg@10 0.")


def test_two_commands_make_a_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits while the first runs, and finds what it made."""
    begun, real = [], execution.run

    def slowly(config: Config, folder: Path, **how: Any) -> dict[str, Any]:
        begun.append(folder)
        time.sleep(0.3)
        return real(config, folder, **how)

    monkeypatch.setattr(execution, "run", slowly)
    small = made(tmp_path)
    config = configs(small, small.rows[1], small.columns[0])[0]
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda _: execution.one(config, tmp_path / "a"), range(2))
    assert begun == [tmp_path / "a"] and one.result == two.result


def test_a_process_that_dies_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    monkeypatch.syspath_prepend(tmp_path)
    one = made(tmp_path)
    good = configs(one, one.rows[0], one.columns[0])
    bad = Config.of({**good[0].tree, "mechanism": [{"use": "dies:Dies"}]}, trust=["dies"])
    found = execute([bad, *good], tmp_path / "work", 2)
    assert found[key(bad)].error == execution.DIED
    assert [found[key(config)].error for config in good] == ["", ""]


def test_a_sweep_multiplies_the_columns(tmp_path: Path, rounds: list[int]) -> None:
    swept = TABLE.replace('columns = ["tiny"]', 'columns = ["tiny, width=2"]') + SWEEP
    record = once(tmp_path, swept.replace('role = "floor"', 'role = "floor"\nswept = false'))
    assert [(c["label"], c["panel"], c["x"]) for c in record["columns"]] == [
        ("tiny, width=2", "tiny", 2.0),
        ("tiny, width=4", "tiny", 4.0),
    ]
    assert [c["config"]["model"]["dim"] for c in record["rows"][0]["cells"].values()] == [2, 4]
    assert (
        len(list((tmp_path / "work").glob("*/made.json"))) == 5
    )  # the floor is one run in both columns


def test_quick_is_one_seed_a_tenth_of_the_rounds_and_says_so(
    tmp_path: Path, rounds: list[int]
) -> None:
    record = once(tmp_path, TABLE.replace("run.rounds=3", "run.rounds=20"), Scope(quick=True))
    assert rounds == [1, 2] and record["quick"] and "--quick" in record["command"]
    assert record["claims"][0]["verdict"] == "not decided"
    assert "QUICK" in markdown(record).upper()


@pytest.mark.parametrize(
    ("config", "work"),
    [
        ({"rounds": 10}, 10.0),
        ({"rounds": 10, "cohort": 5}, 2.5),
        ({"rounds": 10, "cohort": 5, "unit": "pass"}, 10.0),
    ],
)
def test_local_work(tmp_path: Path, config: dict[str, Any], work: float) -> None:
    one = made(tmp_path)
    tree = configs(one, one.rows[0], one.columns[0])[0].tree
    assert (
        work_of(Config.of({**tree, "run": config, "solver": {**tree["solver"], "epochs": 2}}), 20)
        == 2 * work
    )
    assert (
        work_of(Config.of({**tree, "run": config, "solver": {**tree["solver"], "epochs": 1}}), 20)
        == work
    )


def test_users_are_read_by_seed(tmp_path: Path, rounds: list[int]) -> None:
    one = made(tmp_path)
    found = execute(configs(one, one.rows[0], one.columns[0]), tmp_path / "work")
    figures = users_of(list(found.values()), "hit@10")
    assert figures is not None and figures.shape == (2, 30)
    assert [np.nanmean(row) for row in figures] == pytest.approx(
        [o.result["test"]["hit@10"] for o in found.values()]
    )
    assert users_of([Outcome(tmp_path, error="no")], "hit@10") is None


ATTACKED = (
    TABLE.replace('"hit@10", "ndcg@10"]\nseeds', '"hit@10", "er@5"]\nseeds')
    .replace('"model.dim=4"]', '"model.dim=4", "evaluate.targets=[1, 2]"]')
    .replace('metrics = ["hit@10"]', 'metrics = ["er@5"]')
)


def test_how_far_targets_are_pushed_is_a_figure_like_others(
    tmp_path: Path, rounds: list[int]
) -> None:
    """Means over users, then over targets; a user's mean is over targets that it does not have."""
    record = once(tmp_path, ATTACKED)
    one = made(tmp_path, ATTACKED)
    found = execute(configs(one, one.rows[0], one.columns[0]), tmp_path / "work")
    cell = record["rows"][0]["cells"]["tiny"]
    assert cell["figures"]["er@5"] == [o.result["target"]["er@5"] for o in found.values()]
    figures = users_of(list(found.values()), "er@5")
    assert (
        figures is not None
        and figures.shape == (2, 30)
        and set(figures[0][~np.isnan(figures[0])]) == {0.0, 0.5}
    )
    floor = record["rows"][1]["cells"]["tiny"]
    assert "er@5" not in floor["mean"] and "| popularity (floor) | – |" in markdown(record)
    assert "FedMF has seeds [0, 1], popularity [0]" in record["claims"][0]["reason"]
    floors = execute(configs(one, one.rows[1], one.columns[0]), tmp_path / "work")
    assert users_of(list(floors.values()), "er@5") is None


def test_a_push_needs_a_target(tmp_path: Path) -> None:
    one = made(tmp_path, ATTACKED.replace(', "evaluate.targets=[1, 2]"', ""))
    with pytest.raises(
        CoveyError, match=r"does not measure er@5; name the targets in evaluate\.targets"
    ):
        configs(one, one.rows[0], one.columns[0])


@pytest.mark.slow
def test_killed_half_way_it_finishes_without_repeating(tmp_path: Path) -> None:
    """A real kill of the whole process group; what had finished keeps its files untouched."""
    folder = tmp_path / "own"
    folder.mkdir()
    text = TABLE.replace("seeds = 2", "seeds = 4", 1).replace("run.rounds=3", "run.rounds=40")
    (folder / "two.toml").write_text(text)
    command = [sys.executable, "-m", "covey", "reproduce", "own"]
    first = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert first.stderr is not None
    for line in first.stderr:
        if line.startswith("2 of"):
            break
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    first.stderr.close()
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("made.json")}
    assert 2 <= len(stamps) < 5 and not (tmp_path / "results").exists()
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps
    assert len(list((tmp_path / "runs").rglob("made.json"))) == 5
    assert (tmp_path / "results" / "own-two.json").exists()


def test_part_of_a_table_does_not_replace_the_whole(tmp_path: Path, rounds: list[int]) -> None:
    whole = store(once(tmp_path), tmp_path)
    for scope in (Scope(quick=True), Scope(datasets=("synthetic",)), Scope(set=("run.rounds=1",))):
        assert store(once(tmp_path, scope=scope), tmp_path) != whole
    engine = Scope(set=('engine.device="cpu"', "engine.memory_mb=100"))
    assert store(once(tmp_path, scope=engine), tmp_path) == whole
    assert once_or_nothing(tmp_path, Scope(datasets=("netflix",))) == []


def once_or_nothing(tmp_path: Path, scope: Scope) -> list[dict[str, Any]]:
    return reproduce([made(tmp_path)], tmp_path / "work", scope, 1, lambda line: None)


@pytest.mark.parametrize(
    ("options", "trials"), [("", 8), ("solver.lr=0.5", 0), ("run.rounds=2", 8)]
)
def test_a_tuned_setting_that_is_changed_by_hand_is_not_tuned(
    options: str, trials: int, tmp_path: Path, rounds: list[int]
) -> None:
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "fedmf.toml").write_text(
        "[solver]\nlr = 0.1\n[tuned]\ntrials = 4\nseeds = 2\n"
    )
    text = TABLE.replace(
        'presets = ["loo-full"]', f'presets = ["loo-full"]\ntuning = "{tmp_path / "found"}"'
    )
    text = text.replace(
        '"model.dim=4"]', f'"model.dim=4", "{options}"]' if options else '"model.dim=4"]'
    )
    fedmf, floor = (row["cells"]["tiny"] for row in once(tmp_path, text)["rows"])
    assert fedmf["tuned"] == trials and floor["tuned"] is None


def test_a_row_may_say_what_its_settings_cost_to_find(tmp_path: Path, rounds: list[int]) -> None:
    text = TABLE.replace('method = "fedmf"\n', 'method = "fedmf"\ntrials = 12\n', 1)
    fedmf, floor = (row["cells"]["tiny"] for row in once(tmp_path, text)["rows"])
    assert fedmf["tuned"] == 12 and floor["tuned"] is None


def test_other_data_is_another_run(
    tmp_path: Path, rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    once(tmp_path)
    rounds.clear()
    for made_at in (tmp_path / "work").rglob("made.json"):
        made_at.write_text(json.dumps(json.loads(made_at.read_text()) | {"data": "0000"}))
    once(tmp_path)
    assert rounds == [1, 2, 3] * 2
