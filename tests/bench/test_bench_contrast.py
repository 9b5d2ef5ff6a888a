"""What contrast costs beside FedNCF: the benchmark runs, and says where it misses."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from bench_contrast import AT_MOST, BASE, BATCHED, SIDES, on_cpu, table
from covey.kernels import onednn
from render import contrast

TINY = ("data.name=synthetic", "data.users=30", "data.items=60", "data.mean_items=8")


def test_all_sides_are_timed_over_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench_contrast.source_of", lambda dataset: list(TINY))
    found = on_cpu(10, 2, full=True)
    assert found["rounds"] == 1 and set(found["cpu_seconds"]) == {
        *SIDES,
        *([BATCHED] if onednn.available() else []),
    }
    assert found["ratios"][BASE] == [1.0, 1.0]
    lines = "\n".join(contrast({"commit": "abc", "machine": {"cpu": "any"}, **found}))
    assert f"| {BASE} |" in lines and "1.00 to 1.00" in lines


def test_a_miss_is_said() -> None:
    (name,) = AT_MOST
    found = {
        "clients": 1,
        "rounds": 1,
        "cpu_seconds": {BASE: 1.0, name: 4.0},
        "ratios": {BASE: [1.0], name: [4.0]},
    }
    first, second = table(found).splitlines()[1:]
    assert "MISSED" not in first and second.endswith("MISSED")
