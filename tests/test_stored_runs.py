"""Run folders that were written before the modules moved: they load and recommend as then.

`stored/killed` was killed in round 3 of 4, with sums of floating-point numbers.
`stored/finished` names an objective by a module that no
longer exists under that name.
"""

import json
import shutil
from pathlib import Path

from command import Covey, expect_line
from covey import Recommender
from covey.run import checkpoint
from covey.run.config.schema import Config
from covey.run.config.tree import parse
from covey.study.report.data import read_run

STORED = Path(__file__).parent / "stored"


def copied(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORED / name, tmp_path / name))


def test_a_killed_run_of_an_older_arithmetic_is_refused(tmp_path: Path, covey: Covey) -> None:
    """It still recommends from its checkpoint, of one file."""
    folder = copied("killed", tmp_path)
    expect_line(covey("resume", folder), "older arithmetic.*start again with covey run")
    assert len(Recommender.load(folder).recommend(["3"], k=5)["3"]) == 5


def test_a_finished_run_recommends_and_is_read(tmp_path: Path, covey: Covey) -> None:
    folder = copied("finished", tmp_path)
    tree = parse(folder / "config.toml")
    assert tree["objective"]["use"] == "covey.sequence_objectives:CrossEntropy"
    saved = checkpoint.load(folder / "checkpoint.safetensors")
    assert saved.progress["digest"] == Config.of(tree).digest()
    recommender = Recommender.load(folder)
    assert len(recommender.recommend(["3"], k=5)["3"]) == 5
    stored = json.loads((folder / "result.json").read_text())
    assert recommender.evaluate()["test"]["ndcg@20"] == stored["test"]["ndcg@20"]
    assert read_run(folder).result["config"] == tree
    assert covey("report", folder).code == 0
    assert parse(folder / "config.toml") == tree  # an old name is never rewritten
