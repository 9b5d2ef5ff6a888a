"""A user's fleet of twenty lines that delegates to another one, run and resumed by the command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import covey
from command import sets
from covey.core.errors import CoveyError
from covey.core.ragged import FieldDict, Ragged, Rows
from covey.engine.fleet.flat import flattened, restored
from covey.run.config.compose import compose
from covey.run.config.schema import Config

WIRE = "covey.engine.fleet.wire:WireFleet"
SIMULATED = "covey.engine.fleet.simulated:SimulatedFleet"
OPTIONS = (
    "data.users=40",
    "data.items=30",
    "data.mean_items=6",
    "run.ceilings=[]",
    "run.checkpoint=1",
)
OWN = '''
"""Dies in the round that an environment variable names."""
import os
from MODULE import CLASS


class Mortal:
    hides = frozenset()

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def of(cls, clients):
        return cls(CLASS.of(clients))

    def ask(self, request):
        if request.step == "train" and request.round == int(os.environ.get("DIE_IN", 0)):
            os.kill(os.getpid(), 9)
        return self.inner.ask(request)

    def __getattr__(self, name):
        return getattr(self.inner, name)
'''


@pytest.mark.slow
@pytest.mark.parametrize("base", [SIMULATED, WIRE])
def test_a_fleet_of_a_users_own_runs_and_resumes(base: str, tmp_path: Path) -> None:
    """Refused without trust, killed in round 3, resumed to the bits of an undisturbed run."""
    module, _, name = base.partition(":")
    (tmp_path / "mortal.py").write_text(OWN.replace("MODULE", module).replace("CLASS", name))

    def run(*words: str, die: int = 0) -> "subprocess.CompletedProcess[str]":
        source = str(Path(covey.__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": source, "DIE_IN": str(die)}
        line = [sys.executable, "-m", "covey", *words]
        return subprocess.run(
            line, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
        )

    begin = [
        "run",
        "--method",
        "pfedrec",
        "--rounds",
        "4",
        *sets(*OPTIONS, "fleet.use=mortal:Mortal"),
    ]
    refused = run(*begin, "--out", "mine")
    assert refused.returncode == 2 and "--trust mortal" in refused.stderr
    assert not (tmp_path / "mine").exists()
    assert run(*begin, "--out", "mine", "--trust", "mortal", die=3).returncode == -9
    again = run("resume", "mine")
    assert again.returncode == 2 and "--trust mortal" in again.stderr
    assert run("resume", "mine", "--trust", "mortal").returncode == 0
    assert run(*begin, "--out", "whole", "--trust", "mortal").returncode == 0
    for file in ("model.safetensors", "users.safetensors"):
        mine, whole = (load_file(tmp_path / folder / file) for folder in ("mine", "whole"))
        assert mine.keys() == whole.keys()
        assert all(torch.equal(mine[k], whole[k]) for k in whole if not whole[k].isnan().any())


def test_what_is_no_fleet_is_refused() -> None:
    tree = compose("fedmf") | {"fleet": {"use": "covey.engine.fleet.wire:Node"}}
    with pytest.raises(CoveyError, match=r"no part 'Node'.*WireFleet"):
        Config.of(tree)


def test_private_state_survives_being_flattened() -> None:
    rows = Rows(Ragged.of([[3, 1], [2]]), torch.randn(3, 2), 5)
    kept: FieldDict = {
        "user": torch.randn(2, 4),
        "tuned/items": rows,
        "said": Ragged.of([[1], [2, 3]]),
    }
    back = restored(flattened(kept))
    assert torch.equal(back["user"], kept["user"]) and back["tuned/items"].height == 5
    assert torch.equal(back["tuned/items"].values, rows.values)
    assert torch.equal(back["tuned/items"].items.values, rows.items.values)
    assert torch.equal(back["said"].values, kept["said"].values)
