"""A run killed at any instant and resumed ends in the same bits, of model, metrics and traffic."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
import scipy.cluster.hierarchy  # noqa: F401  # loaded here, so that forked runs do not load it each time
import sklearn.cluster  # noqa: F401
import torch

from covey.run.config.schema import Config
from covey.run.config.shipped import read, shipped
from covey.run.config.tree import assign, merge
from covey.run.loop import run
from rounds import untimed

FILES = ("model.safetensors", "state.safetensors", "metrics.jsonl", "users.safetensors")
SMALL = [
    "data.users=40",
    "data.items=60",
    "data.mean_items=8",
    "run.rounds=4",
    'run.unit="round"',
    "run.cohort=15",
]
SMALL += ["run.checkpoint=1", "run.ceilings=[]"]
OWN = {
    "cofedrec": ["grouping.categories=4"],
    "cofedrec-mf": ["grouping.categories=4"],
    "cofedrec-ncf": ["grouping.categories=4"],
    "fedcl": ["model.dim=8", "run.rounds=5"],
    "pdc-frs": ["run.late=0.2"],
    "pdc-frs-titles": ["mechanism.0.similarity=words"],  # without the extra
    "spectral": ["model.rank=8"],
    "spectral-private": ["model.rank=8"],
}
FEDERATED = [name for name in shipped("methods") if "pooled" not in read("methods", name)]
COMPOSED = {
    "cofedrec": (
        "co-clustering with Krum",
        ['combine.use="covey.defenses.krum:Krum"', "grouping.categories=4"],
    ),
    "fedncf": ("under attack", ['attack.use="covey.attacks.a_ra:ARa"', "attack.share=0.1"]),
}
CASES = [pytest.param(name, OWN.get(name, []), id=name) for name in FEDERATED]
CASES += [pytest.param(name, sets, id=f"{name} {what}") for name, (what, sets) in COMPOSED.items()]
INSTANTS = 8


def config_of(name: str, sets: list[str]) -> Config:
    tree = merge(read("methods", name) | {"method": name}, read("presets", "loo-full"))
    return Config.of(assign(tree, [*SMALL, *sets]))


def in_child(config: Config, out: Path, resume: bool, kill_after: float | None = None) -> bool:
    """Runs in a forked process, killed after a while; returns whether it came to its end."""
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
@pytest.mark.parametrize(("name", "sets"), CASES)
def test_killed_and_resumed_is_never_killed(name: str, sets: list[str], tmp_path: Path) -> None:
    config = config_of(name, sets)
    began = time.perf_counter()
    in_child(config, tmp_path / "whole", resume=False)
    lasts = time.perf_counter() - began
    whole = {f: (tmp_path / "whole" / f).read_bytes() for f in FILES}
    chance, killed = random.Random(name), 0
    for attempt in range(4 * INSTANTS):
        out = tmp_path / str(attempt)
        if in_child(config, out, resume=False, kill_after=lasts * chance.uniform(0.02, 0.95)):
            lasts *= 0.8  # it was done before the blow: strike earlier
            continue
        killed += 1
        in_child(config, out, resume=(out / "config.toml").exists())
        for f in FILES:
            assert (out / f).read_bytes() == whole[f], f"{f} differs after kill {killed}"
        assert untimed(out) == untimed(tmp_path / "whole"), (
            f"rounds.jsonl differs after kill {killed}"
        )
        if killed == INSTANTS:
            return
    pytest.fail(f"only {killed} of {INSTANTS} kills hit a running process")


@pytest.mark.slow
@pytest.mark.parametrize("weight", [0.005, 0.0], ids=["whole tables", "own rows"])
def test_a_kill_in_the_middle_of_100_rounds(weight: float, tmp_path: Path) -> None:
    """CoFedRec as long as the paper runs it, killed between two checkpoints."""
    sets = [
        "run.rounds=100",
        "run.patience=0",
        "run.checkpoint=20",
        "grouping.categories=4",
        f"mechanism.0.weight={weight}",
    ]
    config = config_of("cofedrec", [*sets, "data.users=20", "run.cohort=0", "evaluate.every=1"])
    in_child(config, tmp_path / "whole", resume=False)
    out = tmp_path / "killed"
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            run(config, out)
        finally:
            os._exit(1)
    metrics, until = out / "metrics.jsonl", time.monotonic() + 300
    while (
        not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 50)
        and time.monotonic() < until
    ):
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "it was done before the blow"
    assert not (out / "result.json").exists() and (out / "checkpoint.safetensors").exists()
    in_child(config, out, resume=True)
    for f in FILES:
        assert (out / f).read_bytes() == (tmp_path / "whole" / f).read_bytes(), f"{f} differs"
    assert untimed(out) == untimed(tmp_path / "whole")
