"""Data with a split of their own that has no validation part: one is held out, then all train."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from covey import fit
from covey.core.errors import CoveyError
from covey.data.dataset import TEST, TRAIN
from covey.data.split import SplitConfig, assigned, draw_users, hold_out, split
from covey.data.synthetic import Synthetic, generate
from covey.run.config.compose import compose
from covey.run.config.schema import Config
from covey.run.config.tree import parse
from covey.run.loop import run
from covey.run.selection import FOLDER

GIVEN = SplitConfig(kind="given", rows="given")
SETS = ['split.kind="given"', "run.ceilings=[]", "model.dim=8", "solver.lr=0.03"]


@pytest.fixture
def supplied(tmp_path: Path) -> Path:
    """A dataset whose own split has training and test items only."""
    rows = generate(Synthetic(users=80, items=60, mean_items=15.0))
    made = assigned(rows, SplitConfig(kind="ratio", order="random", valid=0.0))
    assert made.part_E is not None and set(made.part_E) == {TRAIN, TEST}
    made.save(tmp_path / "supplied.npz")
    return tmp_path / "supplied.npz"


def config_of(data: Path, *sets: str, method: str = "fedmf", rounds: int = 12) -> Config:
    return Config.of(compose(method, dataset=str(data), rounds=rounds, set=[*SETS, *sets]))


def test_a_tenth_of_the_training_items_of_every_user_is_held_out(supplied: Path) -> None:
    from covey.data.dataset import Dataset

    whole = split(Dataset.load(supplied), GIVEN)
    made = hold_out(whole, GIVEN)
    assert not len(whole.valid.values) and torch.equal(made.test.values, whole.test.values)
    n_N, held_N = whole.train.lengths, made.valid.lengths
    assert torch.equal(made.train.lengths + held_N, n_N) and bool((made.train.lengths > 0).all())
    assert bool((held_N >= (n_N * 0.1).floor()).all() and (held_N <= (n_N * 0.1).ceil()).all())
    for user in range(5):
        parts = [
            part.take(torch.tensor([user])).values.tolist() for part in (made.train, made.valid)
        ]
        together = whole.train.take(torch.tensor([user])).values.tolist()
        assert sorted(parts[0] + parts[1]) == sorted(together)
        assert parts[0] == [item for item in together if item in parts[0]]  # in the same order


def test_the_final_model_is_trained_on_all_items_from_the_start(
    supplied: Path, tmp_path: Path
) -> None:
    result = run(config_of(supplied), tmp_path / "run")
    first = json.loads((tmp_path / "run" / FOLDER / "result.json").read_text())
    assert result["round"] == result["rounds"] == first["round"] <= 12
    assert result["valid"] == first["valid"] and result["selection"]["rounds"] == 12
    # Neutral setting: the same number of rounds without anything held out.
    rounds = first["round"]
    plain = run(config_of(supplied, "split.valid=0.0", rounds=rounds), tmp_path / "plain")
    assert plain["test"] == result["test"] and "selection" not in plain
    model = (tmp_path / name / "model.safetensors" for name in ("run", "plain"))
    assert len({file.read_bytes() for file in model}) == 1
    assert first["test"] != result["test"]


def test_sums_are_taken_again_with_the_strength_that_was_chosen(
    supplied: Path, tmp_path: Path
) -> None:
    sets = ['split.kind="given"', "run.ceilings=[]", "model.rank=8"]
    tree = compose("spectral", dataset=str(supplied), set=sets)
    result = run(Config.of(tree), tmp_path / "run")
    first = json.loads((tmp_path / "run" / FOLDER / "result.json").read_text())
    part = result["config"]["mechanism"][0]
    assert part["strength"] == first["told"]["spectral"]["strength"] and len(part["choose"]) == 1


@pytest.mark.parametrize("inside", [True, False])
def test_a_killed_run_goes_on(supplied: Path, tmp_path: Path, inside: bool) -> None:
    whole = run(config_of(supplied), tmp_path / "whole")

    def kill(number: int, total: int, row: object) -> None:
        calls.append(number)
        if len(calls) == (5 if inside else 12 + 1):
            raise KeyboardInterrupt

    calls: list[int] = []
    again = config_of(supplied, "run.checkpoint=1")
    with pytest.raises(KeyboardInterrupt):
        run(again, tmp_path / "cut", progress=kill)
    stored = Config.of(parse(tmp_path / "cut" / "config.toml"))  # as `covey resume` reads it
    assert (stored.split.valid == 0.0) is not inside
    resumed = run(stored, tmp_path / "cut", resume=True)
    for entry in ("test", "valid", "selection"):
        assert resumed[entry] == whole[entry]


def test_pooled_training_chooses_its_epochs_and_fits_all_items(
    supplied: Path, tmp_path: Path
) -> None:
    tree = compose("mf", dataset=str(supplied), set=[SETS[0], SETS[1], "pooled.epochs=4"])
    result = run(Config.of(tree), tmp_path / "run")
    assert 1 <= result["round"] <= 4


def test_in_python_with_a_folder_that_loads(supplied: Path, tmp_path: Path) -> None:
    made = fit("fedmf", str(supplied), rounds=3, set=SETS, out=tmp_path / "run")
    assert made.config.split.valid == 0.0 and made.recommend(["3"])["3"]


def test_draw_users_keeps_their_rows() -> None:
    rows = generate(Synthetic(users=80, items=60, mean_items=15.0))
    some, again = draw_users(rows, 30, 1), draw_users(rows, 30, 1)
    assert some.n_users == 30 and np.array_equal(some.user_E, again.user_E)
    assert some.users is not None
    assert set(map(str, some.users)) != set(map(str, draw_users(rows, 30, 2).users))
    counts = dict(zip(*np.unique(rows.user_E.astype(str), return_counts=True)))
    kept = np.bincount(some.user_E)
    assert [counts[user] for user in some.users] == kept.tolist()
    with pytest.raises(CoveyError, match="has 80 users"):
        draw_users(rows, 81, 0)
