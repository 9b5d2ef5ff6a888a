"""Workers as actors of a Ray cluster that the test starts on this machine."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.core.errors import CoveyError
from covey.engine.fleet import ray_actors
from covey.run.config.compose import compose
from covey.run.config.schema import Config
from covey.run.loop import run
from covey.run.workers import with_workers

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]
FILES = ("model.safetensors", "users.safetensors", "metrics.jsonl")
SETS = ["data.users=80", "data.items=60", "data.mean_items=8", "engine.shards=8"]
SETS += ["run.ceilings=[]", "run.checkpoint=2", "run.cohort=0"]
OWN = {
    "cofedrec": ["grouping.categories=4", "mechanism.0.sample=16"],
    "fedcl": ["model.dim=8"],
    "spectral": ["model.rank=8"],
}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()


def config_of(method: str, workers: int, backend: str = "processes") -> Config:
    sets = [*SETS, *OWN.get(method, [])]
    return with_workers(Config.of(compose(method, rounds=5, set=sets)), workers, backend)


def differing(one: Path, two: Path) -> list[str]:
    return [name for name in FILES if (one / name).read_bytes() != (two / name).read_bytes()]


@pytest.mark.parametrize("method", ["fedmf", "cofedrec", "fedcl", "spectral"])
def test_two_actors_give_the_same_bits(method: str, tmp_path: Path) -> None:
    run(config_of(method, 1), tmp_path / "here")
    run(config_of(method, 2, "ray"), tmp_path / "ray")
    assert differing(tmp_path / "here", tmp_path / "ray") == []


def test_one_actor_is_an_actor_too(tmp_path: Path) -> None:
    seen: list[int] = []

    def look(number: int, total: int, row: dict[str, Any]) -> None:
        seen.append(len(actor_pids()))

    run(config_of("fedmf", 1), tmp_path / "here")
    run(config_of("fedmf", 1, "ray"), tmp_path / "ray", progress=look)
    assert differing(tmp_path / "here", tmp_path / "ray") == [] and min(seen) >= 1


def test_a_lost_actor_changes_no_byte(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hit: list[int] = []

    def strike(number: int, total: int, row: dict[str, Any]) -> None:
        if number == 3 and not hit:
            hit.append(actor_pids()[0])
            os.kill(hit[0], signal.SIGKILL)

    run(config_of("fedmf", 1), tmp_path / "here")
    run(config_of("fedmf", 2, "ray"), tmp_path / "ray", progress=strike)
    assert hit and "goes back to its last checkpoint" in caplog.text
    assert differing(tmp_path / "here", tmp_path / "ray") == []


def actor_pids() -> list[int]:
    """Processes of Ray that hold one of our actors."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text()
        except OSError:
            continue
        if words.startswith("ray::") and "Actor" in words:
            found.append(int(folder.name))
    return found


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_actors, "HERE", "covey 99.0, torch 1.0")
    with pytest.raises(CoveyError, match=r"the Ray cluster has covey .* and this machine covey 99"):
        run(config_of("fedmf", 2, "ray"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
