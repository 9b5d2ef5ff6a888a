"""`covey tune`: equal budget, the published setting first, validation only, and resuming."""

import json
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command import Covey, expect_line, expect_nothing, sets
from covey.core.errors import CoveyError
from covey.core.ragged import Ragged
from covey.run import assemble
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import assign, merge
from covey.study.tuning import trial as trials_of
from covey.study.tuning.search import Search, best_of, preset_of, search, summary
from covey.study.tuning.trial import Journal, Run, Trial
from searches import SMALL, plan_of

pytest.importorskip("optuna")


def told(plan: Search, out: Path, **options: Any) -> list[tuple[int, dict[str, Any], float | None]]:
    return [(t.number, t.values, t.value) for t in search(plan, out, **options)]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Configurations that were run."""
    real, seen = trials_of.run, []

    def counted(config: Config, *rest: Any, **options: Any) -> Any:
        seen.append(config)
        return real(config, *rest, **options)

    monkeypatch.setattr(trials_of, "run", counted)
    return seen


def test_trial_0_is_what_was_published(tmp_path: Path, runs: list[Config]) -> None:
    plan = plan_of("fedmf", "solver.lr=77.0", trials=1)  # outside the space, and tried all the same
    assert told(plan, tmp_path / "s")[0][:2] == (0, {"solver.lr": 77.0, "model.scale": 0.01})
    assert runs[0].tree == assign(plan.tree, ["run.ceilings=[]", "run.seed=0"])


def test_defaults_are_published_too() -> None:
    assert plan_of("mf").published == {"pooled.lr": 0.001, "pooled.decay": 0.0}
    assert plan_of("pfedrec").published == {"solver.lr": 0.3, "solver.rates.items": 1.0}


# --- the search


def test_equal_budget(tmp_path: Path, runs: list[Config]) -> None:
    """As many runs for one method as for another; seeds are those after the configuration's own."""
    for method in ("fedmf", "pfedrec"):
        runs.clear()
        plan = plan_of(method, "run.seed=5", trials=3, seeds=2)
        budget = summary(plan, search(plan, tmp_path / method))["budget"]
        assert {k: budget[k] for k in ("trials", "failed", "seeds", "runs", "rounds")} == dict(
            trials=3, failed=0, seeds=2, runs=6, rounds=12
        )
        assert budget["seconds"] > 0 and budget["cpu_seconds"] > 0
        assert [c.run.seed for c in runs] == [5, 6] * 3


def test_the_objective_is_the_selected_round_of_validation(tmp_path: Path) -> None:
    plan = plan_of("fedmf", 'evaluate.select="ndcg@20"', trials=1, seeds=2)
    (trial,) = search(plan, tmp_path / "s")
    alone = [trials_of.run(c, tmp_path / str(k)) for k, c in enumerate(plan.configs(0, {}))]
    assert [r.value for r in trial.runs] == [a["valid"]["ndcg@20"] for a in alone]
    assert [r.round for r in trial.runs] == [a["round"] for a in alone]
    assert trial.value == pytest.approx(sum(a["valid"]["ndcg@20"] for a in alone) / 2)


@pytest.mark.parametrize("method", ["fedmf", "ease"])
def test_the_test_part_changes_nothing(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(method)
    first = told(plan, tmp_path / "first")
    real = assemble.split_rows

    def other(dataset: Any, config: Any) -> Any:
        split = real(dataset, config)
        return replace(
            split, test=Ragged((split.test.values + 7) % split.n_items, split.test.offsets)
        )

    assemble._rows.cache_clear()
    monkeypatch.setattr(assemble, "split_rows", other)
    config = plan.configs(0, {})[0]
    changed = trials_of.run(config, tmp_path / "run")
    assert told(plan, tmp_path / "other") == first
    assemble._rows.cache_clear()
    monkeypatch.undo()
    assert (
        trials_of.run(config, tmp_path / "same")["test"] != changed["test"]
    )  # there was something to see


def test_no_test_figure_is_read_or_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = trials_of.run

    class Blind(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            assert key != "test"
            return super().__getitem__(key)

    monkeypatch.setattr(trials_of, "run", lambda *a, **o: Blind(real(*a, **o)))
    plan = plan_of(trials=2)
    made = search(plan, tmp_path / "s")
    assert '"test"' not in json.dumps(summary(plan, made))
    left = [p for p in (tmp_path / "s").rglob("*") if p.is_file()]
    assert {p.name for p in left} >= {"study.toml", "trials.jsonl"}
    assert not [p for p in left if '"test' in p.read_text() or p.suffix == ".safetensors"]


def test_a_failed_trial_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = trials_of.run

    def fragile(config: Config, *rest: Any, **options: Any) -> Any:
        if config.run.seed == 1 and config.tree["solver"]["lr"] != 0.01:
            raise CoveyError("round 1\nhas diverged")
        return real(config, *rest, **options)

    monkeypatch.setattr(trials_of, "run", fragile)
    plan = plan_of(trials=3, seeds=2)
    made = search(plan, tmp_path / "s")
    assert [t.error for t in made] == ["", *["round 1 has diverged"] * 2]
    assert best_of(made).number == 0 and made[1].value is None
    assert (
        summary(plan, made)["budget"]["failed"] == 2 and summary(plan, made)["budget"]["runs"] == 6
    )
    again = plan_of("fedmf", "run.seed=1", "solver.lr=0.02", trials=2)
    with pytest.raises(CoveyError, match="all 2 trials failed; the first: round 1 has diverged"):
        search(again, tmp_path / "all")


def test_a_full_disk_is_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*rest: Any, **options: Any) -> Any:
        raise CoveyError("cannot write") from OSError(28, "No space left on device")

    monkeypatch.setattr(trials_of, "run", full)
    with pytest.raises(CoveyError, match="cannot write"):
        search(plan_of(), tmp_path / "s")
    assert not Journal(tmp_path / "s" / "trials.jsonl").trials


def test_more_trials_go_on_and_nothing_is_repeated(tmp_path: Path, runs: list[Config]) -> None:
    whole = told(plan_of(trials=7), tmp_path / "whole")
    runs.clear()
    assert told(plan_of(trials=3), tmp_path / "s") == whole[:3]
    assert told(plan_of(trials=7), tmp_path / "s") == whole
    assert len(runs) == 7
    assert told(plan_of(trials=3), tmp_path / "s") == whole[:3] and len(runs) == 7
    with (tmp_path / "s" / "trials.jsonl").open("a") as file:
        file.write('{"number": 7, "val')  # a kill while a line was written
    assert told(plan_of(trials=8), tmp_path / "s")[:7] == whole and len(runs) == 8


def test_equal_settings_are_run_once(tmp_path: Path, runs: list[Config]) -> None:
    plan = plan_of("ease", trials=6, space=("pooled.weight=choice 300.0 30.0",))
    made = search(plan, tmp_path / "s")
    assert len(made) == 6 and len(runs) == 3  # the published weights, and two single ones


def test_another_search_is_refused(tmp_path: Path) -> None:
    search(plan_of(trials=1), tmp_path / "s")
    with pytest.raises(
        CoveyError, match="holds another search: its config differs; choose another --out"
    ):
        search(plan_of("fedmf", "run.rounds=3", trials=1), tmp_path / "s")
    with pytest.raises(CoveyError, match="its space differs"):
        search(plan_of(trials=1, space=("solver.lr=log 0.01 0.1",)), tmp_path / "s")
    with pytest.raises(CoveyError, match="its seeds differs"):
        search(plan_of(trials=1, seeds=2), tmp_path / "s")


@pytest.mark.slow
def test_batches_of_several_jobs_are_the_same_again(tmp_path: Path) -> None:
    """Also after a kill in the middle of a batch, of which one trial was finished."""
    plan = plan_of(trials=4)
    first = told(plan, tmp_path / "s", jobs=2)
    journal = tmp_path / "s" / "trials.jsonl"
    rows = {json.loads(line)["number"]: line for line in journal.read_text().splitlines()}
    journal.write_text("".join(f"{rows[n]}\n" for n in (0, 1, 3)))
    assert told(plan, tmp_path / "s", jobs=2) == first
    assert first == told(plan, tmp_path / "one")  # the first four are the same whatever the jobs


@pytest.mark.slow
def test_a_search_killed_goes_on(tmp_path: Path) -> None:
    out, rows = tmp_path / "s", tmp_path / "s" / "trials.jsonl"
    words = ["tune", "fedmf", "--trials", "5", "--json", *sets(*SMALL, "run.rounds=20"), "--out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "covey", *words, str(out)], stdout=subprocess.DEVNULL
    )
    while not rows.exists() or rows.read_bytes().count(b"\n") < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = rows.read_text()
    assert 2 <= before.count("\n") < 5
    plan = plan_of("fedmf", "run.rounds=20", trials=5)
    again = told(plan, out)
    assert rows.read_text().startswith(before)
    assert again == told(plan, tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")
def test_processes_of_a_killed_search_end_with_it(tmp_path: Path) -> None:
    out, folder = tmp_path / "s", tmp_path / "s" / "runs"
    words = ["tune", "fedmf", "--jobs", "2", *sets(*SMALL, "run.rounds=100000"), "--out", str(out)]
    process = subprocess.Popen([sys.executable, "-m", "covey", *words], stdout=subprocess.DEVNULL)
    while not folder.exists() or len(list(folder.glob("*/metrics.jsonl"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait()
    until = time.monotonic() + 60
    while any(map(_alive, children)):
        assert time.monotonic() < until, "still at work"
        time.sleep(0.05)


def _alive(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- presets and the command


def test_the_preset_has_what_was_tuned_and_nothing_else(tmp_path: Path) -> None:
    plan = plan_of("pfedrec", "split.kind=loo", trials=2)
    trials = [
        Trial(0, plan.published, (Run(0.1),)),
        Trial(1, {"solver.lr": 0.2, "solver.rates.items": 3.0}, (Run(0.4),)),
    ]
    made = preset_of(plan, trials, "abc")
    assert made["solver"] == {"lr": 0.2, "rates": {"items": 3.0}}
    assert set(made) == {"solver", "tuned"}
    wanted = dict(
        trials=2, metric="recall@20", value=0.4, dataset="synthetic", method="pfedrec", commit="abc"
    )
    assert wanted.items() <= made["tuned"].items()
    config = Config.of(merge(merge(read("methods", "pfedrec"), read("presets", "loo-full")), made))
    assert config.part("solver").lr == 0.2 and config.tree["tuned"]["trials"] == 2
    assert config.part("solver").per_item == ("items",)  # what was not tuned is as it was


def test_a_preset_of_mechanisms_has_all_of_them() -> None:
    plan = plan_of("rcl4fedrec", trials=1)
    made = preset_of(
        plan, [Trial(0, plan.published | {"mechanism.1.lr": 0.005}, (Run(0.1),))], "abc"
    )
    assert [part["use"].partition(":")[2] for part in made["mechanism"]] == [
        "Contrast",
        "PopularityRegulariser",
    ]
    config = Config.of(merge(read("methods", "rcl4fedrec"), made))
    assert (
        config.parts("mechanism")[1].lr == 0.005 and config.parts("mechanism")[0].user_weight == 0.5
    )


def test_a_label_without_its_trials_is_refused() -> None:
    with pytest.raises(CoveyError, match=r"tuned\.trials = None does not fit: it takes int"):
        Config.of(merge(read("methods", "fedmf"), {"tuned": {"metric": "hit@10"}}))


def test_the_command(covey: Covey, tmp_path: Path) -> None:
    file = tmp_path / "tuned.toml"
    words = (
        "tune",
        "fedmf",
        "--trials",
        "3",
        *sets(*SMALL),
        "--out",
        tmp_path / "s",
        "--write-preset",
        file,
    )
    said = covey(*words)
    assert said.code == 0 and max(map(len, said.out.split("budget:")[0].splitlines())) <= 80
    assert (
        "published" in said.out
        and "best" in said.out
        and "budget: 3 trials (0 failed), 3 runs, 6 rounds" in said.out
    )
    assert said.err.count("\n") == 3
    made = json.loads(covey(*words, "--json").out)
    values = [t["value"] for t in made["trials"]]
    assert made["best"]["value"] == max(values) >= made["published"] == values[0]
    preset = tomllib.loads(file.read_text())
    assert (
        preset["solver"]["lr"] == made["best"]["values"]["solver.lr"]
        and preset["tuned"]["trials"] == 3
    )
    done = covey(
        "run",
        "--method",
        "fedmf",
        "--preset",
        file,
        *sets(*SMALL),
        "--out",
        tmp_path / "run",
        "--json",
    )
    assert json.loads(done.out)["valid"]["recall@20"] == made["best"]["value"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("popularity",), "popularity has no search space; give one: --space"),
        (("fedmff",), "no method 'fedmff'; did you mean 'fedmf'"),
        (("fedmf", "--trials", "0"), "trials = 0; at least 1"),
        (("fedmf", "--jobs", "0"), "jobs = 0; at least 1"),
        (
            ("fedmf", "--space", "solver.lrr=log 1 2"),
            "Local has no option 'lrr'; did you mean 'lr'",
        ),
        (("fedmf", "--space", "solver.lr"), "--space takes A.B=declaration"),
        (
            ("fedmf", "--space", "solver.lr=log 1"),
            r"the space of solver\.lr is 'log 1'; write 'log LOW HIGH'",
        ),
        (
            ("fedmf", "--space", "solver.lr=linear -1 1"),
            r"the space of solver\.lr cannot have -1\.0",
        ),
        (("fedmf", "--space", "solver.epochs=log 1 9"), "does not fit: it takes int"),
        (("fedmf", "--space", "split.valid=linear 0 1"), r"split\.valid is no option of a method"),
        (("fedmf", "--space", "step.lr=log 0.1 1"), r"the method has no \[step\]"),
        (
            ("fedmf", *sets("split.kind=ratio", "split.valid=0.0")),
            r"nothing is held out for validation.*split\.valid",
        ),
        (("fedmf", "--write-preset", "best.txt"), "give one that ends in .toml"),
        (("fedmf", "--write-preset", "no/such/best.toml"), "there is no folder no/such"),
    ],
)
def test_bad_input(words: tuple[str, ...], message: str, covey: Covey, tmp_path: Path) -> None:
    expect_line(covey("tune", *words, *sets(*SMALL[:3]), "--out", tmp_path / "s"), message)
    expect_nothing(tmp_path / "s")


def test_a_file_that_is_not_ours_is_not_written_over(covey: Covey, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[run]\nrounds = 3\n")
    words = ("tune", "fedmf", "--write-preset", file, "--out", tmp_path / "s")
    expect_line(covey(*words), "exists and is not from covey tune")
    assert file.read_text() == "[run]\nrounds = 3\n"


def test_without_optuna(covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    expect_line(
        covey("tune", "fedmf", *sets(*SMALL), "--out", tmp_path / "s"),
        r"pip install 'covey\[hpo\]'",
    )
    expect_nothing(tmp_path / "s")


def test_two_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = trials_of.run

    def second(*rest: Any, **options: Any) -> Any:
        with pytest.raises(CoveyError, match="another covey tune is running"):
            search(plan_of(trials=1), tmp_path / "s")
        return real(*rest, **options)

    monkeypatch.setattr(trials_of, "run", second)
    search(plan_of(trials=1), tmp_path / "s")
