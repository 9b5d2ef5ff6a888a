"""All commands compose configurations in one way: the same options give the same configuration."""

from pathlib import Path
from typing import Any

import pytest

from covey.cli import arguments, main
from covey.core.errors import CoveyError
from covey.inference import api
from covey.run.config.compose import checked, compose
from covey.run.config.schema import PARTS, Config
from covey.run.config.shipped import read, shipped
from covey.run.config.tree import merge
from covey.study.matrix.plan import MatrixOptions, planned
from covey.study.papers.plan import Scope
from covey.study.papers.settings import configs
from reproduce_tables import TABLE, made

ROOT = Path(__file__).parents[1]
SETS = ("model.dim=4", "run.rounds=3", "data.users=40")


def test_every_command_composes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Config] = {}
    monkeypatch.setattr(main, "_train", lambda config, *_, **__: found.update(run=config) or 0)
    words = [
        "fedmf",
        "--dataset",
        "synthetic",
        "--preset",
        "loo-full",
        *(w for s in SETS for w in ("--set", s)),
    ]
    assert main.main(["run", "--seed", "0", "--method", *words]) == 0
    found["tune"] = Config.of(arguments.composed(main._parser().parse_args(["tune", *words])))
    found["matrix"] = planned(MatrixOptions("fedmf", "synthetic", "loo-full", set=SETS)).base

    def stop(config: Config, *_: Any, **__: Any) -> None:
        found["fit"] = config
        raise CoveyError("no further")

    monkeypatch.setattr(api, "run", stop)
    with pytest.raises(CoveyError, match="no further"):
        api.fit("fedmf", "synthetic", preset="loo-full", set=SETS, out=tmp_path / "out")
    paper = made(tmp_path, TABLE)
    row = next(row for row in paper.rows if row.method == "fedmf")
    found["paper"] = configs(paper, row, paper.columns[0], Scope(set=SETS))[0]
    wanted = compose("fedmf", presets=["loo-full"], dataset="synthetic", seed=0, set=SETS)
    assert found["run"].tree == wanted == found["fit"].tree
    assert (
        found["tune"].tree | {"run": wanted["run"]} == wanted
    )  # tuning sets the seed of each trial
    assert found["matrix"].tree["method"] == found["paper"].tree["method"] == "fedmf"
    for name in ("model", "objective", "solver", "split", "preset"):
        assert found["matrix"].tree[name] == found["paper"].tree[name] == wanted[name], name


def test_each_argument_is_on_top_of_those_before(tmp_path: Path) -> None:
    file, preset = tmp_path / "own.toml", tmp_path / "preset.toml"
    file.write_text(
        'method = "own"\n[run]\nrounds = 2\nseed = 2\ncohort = 2\ncheckpoint = 2\nlate = 0.2\n'
    )
    preset.write_text("[run]\nrounds = 3\nseed = 3\ncohort = 3\ncheckpoint = 3\n")
    tree = compose(
        "fedmf",
        file=str(file),
        presets=["loo-full", str(preset)],
        dataset="d.npz",
        rounds=4,
        seed=4,
        sections={"run": {"seed": 5, "cohort": 5}},
        set=iter(["run.cohort=6"]),
    )
    own = {"rounds": 4, "seed": 5, "cohort": 6, "checkpoint": 3, "late": 0.2}
    assert tree["run"] == read("methods", "fedmf").get("run", {}) | own
    assert (tree["method"], tree["preset"], tree["data"]["name"]) == (
        "own",
        f"loo-full + {preset}",
        "d.npz",
    )


def test_labels() -> None:
    path = str(shipped("methods")["fedmf"])
    assert compose("fedmf") == merge(read("methods", "fedmf"), {"method": "fedmf"})
    assert compose(path)["method"] == path and compose(path, label="fedmf")["method"] == "fedmf"
    assert compose() == {}


def test_what_has_no_effect_is_refused_wherever_it_is_said() -> None:
    tree = compose("ease")
    for given in ({"rounds": 2}, {"set": ["run.rounds=2"]}, {"sections": {"run": {"rounds": 2}}}):
        with pytest.raises(CoveyError, match=r"run\.rounds means nothing"):
            checked(tree, **given)  # type: ignore[arg-type]
    assert checked(tree).tree == tree


def test_fit_names_its_dataset_once() -> None:
    options: tuple[dict[str, Any], ...] = (
        {"set": ["data.name=d.npz"]},
        {"set": ['data={name="d.npz"}']},
        {"data": {"name": "d.npz"}},
    )
    for given in options:
        with pytest.raises(CoveyError, match=r"data\.name is what fit takes as its dataset"):
            api.fit("fedmf", **given)


@pytest.mark.parametrize("method", read("presets", "as-published")["methods"])
def test_as_published_is_what_the_records_were_made_with(method: str) -> None:
    recorded = Config.of(read("methods", str(ROOT / "papers" / "methods" / f"{method}.toml")))
    config = Config.of(compose(method, presets=["as-published"]))
    assert {name: config.parts(name) for name in PARTS} == {
        name: recorded.parts(name) for name in PARTS
    }
    assert (config.run, config.evaluate) == (recorded.run, recorded.evaluate)


def test_two_presets_in_one_name_are_both_read(tmp_path: Path) -> None:
    both = compose("cofedrec", presets=["pfedrec-honest + as-published"])
    assert both["preset"] == "pfedrec-honest + as-published"
    assert both["negatives"] == {"pool": "train"} and both["model"]["scale"] == 1.0
    assert both == compose("cofedrec", presets=["pfedrec-honest", "as-published"])
    with pytest.raises(CoveyError, match="has no settings of 'fedmf'; it has those of cl4fedrec"):
        compose("fedmf", presets=["as-published"])
    odd = tmp_path / "a+b.toml"
    odd.write_text("[run]\nrounds = 3\n")
    assert compose("fedmf", presets=[str(odd)])["run"]["rounds"] == 3
