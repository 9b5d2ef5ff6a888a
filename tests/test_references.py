"""Floor, ceilings and how personal lists are: what a run measures beside its own result."""

from pathlib import Path
from typing import Any

import pytest
import torch

from covey.engine.fleet.simulated import SimulatedFleet
from covey.evaluate.metrics import summarise
from covey.evaluate.personal import best_items, summary
from covey.evaluate.ranking import merged
from covey.inference.recommender import Recommender
from covey.pooled.choice import fit_chosen, with_lists
from covey.pooled.common import evaluate_pooled
from covey.pooled.ease import Ease
from covey.run import floor_and_ceiling
from covey.run.assemble import prepare
from covey.run.config.compose import compose
from covey.run.config.schema import Config
from covey.run.loop import run
from covey.study.render.wording import lists, notes, reference_name

SMALL = ("data.users=60", "data.items=40", "data.mean_items=9")


def config_of(method: str, *more: str) -> Config:
    return Config.of(compose(method, presets=["ratio-full"], set=[*SMALL, *more]))


@pytest.fixture
def fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the models that were fitted with a choice; the cache is empty at first."""
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "cache"))
    made: list[str] = []

    def counted(model: Any, *rest: Any) -> Any:
        made.append(type(model).__name__)
        return fit_chosen(model, *rest)

    monkeypatch.setattr("covey.run.pooled.fit_chosen", counted)
    monkeypatch.setattr(floor_and_ceiling, "fit_chosen", counted)
    return made


def test_a_reference_is_computed_once(fits: list[str], tmp_path: Path) -> None:
    first = run(config_of("ease"), tmp_path / "ease")
    assert fits == ["Ease", "Ials"]  # the run itself is the first ceiling
    assert first["ceiling"]["ease"] == first["test"]
    second = run(config_of("mf", "pooled.epochs=1"), tmp_path / "mf")
    assert fits == ["Ease", "Ials", "Ease"] and second["ceiling"] == first["ceiling"]
    third = run(config_of("mf", "pooled.epochs=1", "run.seed=1"), tmp_path / "again")
    assert len(fits) == 3  # neither depends on the seed of the run
    assert (third["ceiling"], third["floor"]) == (second["ceiling"], second["floor"])
    assert third["references"] == second["references"]
    for other in ("split.seed=1", "evaluate.clients=20", 'evaluate.seen="kept"'):
        run(config_of("mf", "pooled.epochs=1", other), tmp_path / other)
    assert len(fits) == 9


def test_a_damaged_or_missing_cache_is_computed_again(
    fits: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(config_of("popularity"), tmp_path / "a")
    assert found["floor"]["popularity"] == found["test"]
    files = list((tmp_path / "cache" / "references").glob("*.json"))
    for file, text in zip(files, ('{"test": {"ndcg@20": []', '{"test": {}, "chosen": 3}')):
        file.write_text(text)
    again = run(config_of("popularity"), tmp_path / "b")
    assert again["ceiling"] == found["ceiling"] and len(fits) == 4
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "file"))
    assert run(config_of("popularity"), tmp_path / "c")["ceiling"] == found["ceiling"]


@pytest.mark.parametrize("history", ["known", "train"])
def test_a_ceiling_sees_what_the_clients_see(history: str, tmp_path: Path) -> None:
    """It is fitted on train, and computes scores from the same lists as the clients."""
    options = ("model.rank=8", f'evaluate.history="{history}"', 'run.ceilings=["ease"]')
    config = config_of("spectral", *options)
    found, prepared = run(config, tmp_path / "run"), prepare(config)
    weights = floor_and_ceiling.read("methods", "ease")["pooled"]["weight"]
    fitted, best = fit_chosen(Ease(tuple(weights)), prepared.split, config.evaluate)
    split, known = prepared.split, prepared.split.train
    if history == "known":
        known = merged(split.train, split.valid)
    own = evaluate_pooled(with_lists(fitted, known), split, config.evaluate, None, ("test",))
    expected = summarise(own["test"], split.train.lengths)
    assert found["ceiling"]["ease"] == pytest.approx(expected, abs=1e-9)
    about = found["references"]
    assert about["chosen"]["ease"] == {"weight": best.weight}  # type: ignore[union-attr]
    assert about["sees_validation"] == found["sees_validation"] == (history == "known")
    label = "ease, train+valid" if history == "known" else "ease, train"
    assert reference_name(found, "ease") == label
    assert reference_name({}, "ease") == "ease, train, strength 300"  # of an older version


def test_a_costly_reference_is_skipped_unless_it_is_known(
    fits: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(floor_and_ceiling, "RATE", 1.0)  # every model takes long
        found = run(config_of("mf", "pooled.epochs=1"), tmp_path / "a")
        assert not found["ceiling"] and not fits and found["floor"]["popularity"]
        (note, _) = notes("mf", found["floor"]["popularity"], found)
        assert note.startswith("no ceiling ease: it would take about ") and "GiB" in note
        patch.setattr(floor_and_ceiling, "LONGEST", 1e18)  # but not too long
        assert set(run(config_of("popularity"), tmp_path / "b")["ceiling"]) == {"ease", "ials"}
        patch.setattr(floor_and_ceiling, "LONGEST", 1)
        assert len(run(config_of("mf", "pooled.epochs=1"), tmp_path / "c")["ceiling"]) == 2
        patch.setattr(floor_and_ceiling, "memory_of", lambda device: 1000)
        assert not run(config_of("mf", "split.seed=3", "pooled.epochs=1"), tmp_path / "d")[
            "ceiling"
        ]


def result(**more: Any) -> dict[str, Any]:
    floor = {"popularity": {"ndcg@20": 0.2, "ndcg@20/light": 0.9, "hit@10": 0.3}}
    return {"floor": floor, "ceiling": {}, **more}


def test_below_popularity_is_said() -> None:
    worse = {"ndcg@20": 0.1, "hit@10": 0.3}
    (line,) = notes("mine", worse, result())
    assert line == "mine is below popularity in ndcg@20; try spectral or ease-sums"
    better = {"ease": {"ndcg@20": 0.3, "hit@10": 0.2}}
    lines = notes("mine", worse, result(ceiling=better))
    assert "try ease-sums, which computes EASE" in lines[0] and len(lines) == 2
    assert lines[1] == "ease is below popularity in hit@10; it is no ceiling here"
    assert not notes("mine", {"ndcg@20": 0.2, "hit@10": 0.4}, result())


def test_one_list_for_all_is_said() -> None:
    one = {"users": 60, "k": 20, "distinct": 1, "overlap": 1.0, "coverage": 0.5}
    same = {"ndcg@20": 0.2, "hit@10": 0.3}
    assert notes("x", same, result(lists=one)) == ["x gives all 60 users the same list"]
    assert not notes("x", same, result(lists=one | {"distinct": 2}))
    assert "1 distinct list, mean overlap 1.00, 50.0% of the catalogue" in lists(one)


@pytest.mark.parametrize("history", ["known", "train"])
def test_lists_are_those_that_the_clients_rank(history: str, tmp_path: Path) -> None:
    """The same figures from the recommender, which ranks with the model that is in use."""
    options = ("model.dim=4", f'evaluate.history="{history}"', "run.ceilings=[]")
    for method in ("spectral", "fedmf", "ease"):
        own = [o.replace("dim=4", "rank=8") if method == "spectral" else o for o in options]
        own = own[1:] if method == "ease" else own
        own += ["run.rounds=2"] if method == "fedmf" else []
        found = run(config_of(method, *own), tmp_path / method)["lists"]
        assert found["users"] == 60 and found["k"] == 20 and found["distinct"] > 1
        fitted = Recommender.load(tmp_path / method)
        split = fitted.prepared.split
        known = merged(split.train, split.valid) if history == "known" else split.train
        known = split.train if method == "ease" else known
        score_CI = fitted.scorer.scores(torch.arange(60), known)
        assert found == summary(best_items(score_CI), 40)


def test_popularity_has_one_list(tmp_path: Path) -> None:
    found = run(config_of("popularity"), tmp_path / "run")["lists"]
    assert (found["distinct"], found["overlap"], found["coverage"]) == (1, 1.0, 0.5)


def test_only_a_simulation_compares_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wire and simulated clients give the same figures, and a fleet without access gives none."""
    options = ("run.rounds=2", "run.ceilings=[]")
    same = run(config_of("fedmf", *options), tmp_path / "simulated")["lists"]
    wire = config_of("fedmf", *options, 'fleet.use="covey.engine.fleet.wire:WireFleet"')
    assert run(wire, tmp_path / "wire")["lists"] == same
    monkeypatch.delattr(SimulatedFleet, "private")
    assert "lists" not in run(config_of("fedmf", *options), tmp_path / "closed")
