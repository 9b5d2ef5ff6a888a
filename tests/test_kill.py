"""A run killed at any instant ends, after `resume`, in the same bits: model, metrics and private state."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from covey.config import Config, assign, merge, read, shipped
from covey.run import run

FILES = ("model.safetensors", "checkpoint.safetensors", "metrics.jsonl", "users.safetensors")
SMALL = ["data.users=40", "data.items=60", "data.mean_items=8", "run.rounds=4", 'run.unit="round"', "run.cohort=15"]
SMALL += ["run.checkpoint=1", "run.ceilings=[]"]
OWN = {
    "cofedrec": ["grouping.categories=4"],
    "fedcl": ["model.dim=8", "run.rounds=5"],
    "pdc-frs": ["run.late=0.2"],
    "spectral": ["model.rank=8"],
}
FEDERATED = [name for name in shipped("methods") if "pooled" not in read("methods", name)]
INSTANTS = 10


def config_of(name: str) -> Config:
    tree = merge(read("methods", name) | {"method": name}, read("presets", "loo-full"))
    return Config.of(assign(tree, [*SMALL, *OWN.get(name, [])]))


def in_child(config: Config, out: Path, resume: bool, kill_after: float | None = None) -> bool:
    """Runs in a forked process, killed after a while; tells whether it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            run(config, out, resume=resume)
            code = 0
        finally:
            os._exit(code)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert kill_after is not None or os.waitstatus_to_exitcode(status) == 0
    return os.waitstatus_to_exitcode(status) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FEDERATED)
def test_killed_and_resumed_is_never_killed(name: str, tmp_path: Path) -> None:
    config = config_of(name)
    began = time.perf_counter()
    in_child(config, tmp_path / "whole", resume=False)
    lasts = time.perf_counter() - began
    whole = {f: (tmp_path / "whole" / f).read_bytes() for f in FILES}
    chance, killed = random.Random(name), 0
    for instant in range(INSTANTS):
        out = tmp_path / str(instant)
        killed += not in_child(config, out, resume=False, kill_after=lasts * chance.uniform(0.05, 0.95))
        begun = (out / "checkpoint.safetensors").exists()
        if not begun and out.exists():
            (out / "config.toml").unlink(missing_ok=True)
        if not (out / "result.json").exists():
            in_child(config, out, resume=begun)
        for f in FILES:
            assert (out / f).read_bytes() == whole[f], f"{f} differs after a kill at instant {instant}"
    assert killed >= INSTANTS // 2, "most kills must hit a running process"
