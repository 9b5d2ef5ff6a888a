"""A user's fleet of twenty lines that delegates to another one, run and resumed by the command."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from command import Covey, command, expect_line, sets
from covey.core.errors import CoveyError
from covey.core.ragged import FieldDict, Ragged, Rows
from covey.engine.fleet.store import Store
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
def test_a_fleet_of_a_users_own_runs_and_resumes(
    base: str, covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused without trust, killed in round 3, resumed to the bits of an undisturbed run."""
    module, _, name = base.partition(":")
    mine = f"mortal_{name.lower()}"
    (tmp_path / f"{mine}.py").write_text(OWN.replace("MODULE", module).replace("CLASS", name))
    monkeypatch.chdir(tmp_path)
    begin = ["run", "--method", "pfedrec", "--rounds", "4"]
    begin += sets(*OPTIONS, f"fleet.use={mine}:Mortal")
    expect_line(covey(*begin, "--out", "mine"), f"--trust {mine}")
    assert not (tmp_path / "mine").exists()
    monkeypatch.setenv("DIE_IN", "3")
    killed = command(*begin, "--out", "mine", "--trust", mine, folder=tmp_path)
    assert killed.returncode == -9
    monkeypatch.delenv("DIE_IN")
    expect_line(covey("resume", "mine"), f"--trust {mine}")
    assert covey("resume", "mine", "--trust", mine).code == 0
    assert covey(*begin, "--out", "whole", "--trust", mine).code == 0
    for file in ("model.safetensors", "users.safetensors"):
        ended, whole = (load_file(tmp_path / folder / file) for folder in ("mine", "whole"))
        assert ended.keys() == whole.keys()
        for name, value in whole.items():
            torch.testing.assert_close(ended[name], value, rtol=0, atol=0, equal_nan=True)


def test_what_is_no_fleet_is_refused() -> None:
    tree = compose("fedmf") | {"fleet": {"use": "covey.engine.fleet.wire:Node"}}
    with pytest.raises(CoveyError, match=r"no part 'Node'.*WireFleet"):
        Config.of(tree)


def test_private_state_of_a_client_survives_being_flattened() -> None:
    rows = Rows(Ragged.of([[3, 1]]), torch.randn(2, 2), 5)
    kept: FieldDict = {"user": torch.randn(1, 4), "tuned/items": rows}
    here, one, other = torch.tensor([0]), Store(1), Store(1)
    one.put(here, {**kept, "received/items": torch.randn(1, 5, 2)})
    other.load(here, one.state(here))
    back = other.take(here)
    assert torch.equal(back["user"], kept["user"]) and back["tuned/items"].height == 5
    assert torch.equal(back["tuned/items"].values, rows.values)
    assert torch.equal(back["tuned/items"].items.values, rows.items.values)
    assert torch.equal(back["received/items"], one.take(here)["received/items"])
