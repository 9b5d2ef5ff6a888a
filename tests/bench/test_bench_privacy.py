"""The benchmark of noise times what it says, with and without the library."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench"))

import bench_privacy
from render import privacy


def test_ours_alone_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_privacy, "find_spec", lambda name: None)
    found = bench_privacy.measure(1, 1000)
    assert len(found["mechanisms"]) == 3
    assert all(
        "library" not in row and row["cpu_seconds"] > 0 for row in found["mechanisms"].values()
    )
    assert "Laplace noise" in bench_privacy.table(found)
    assert privacy({"commit": "x", **found})[-1].endswith("|  |  |")


def test_the_library_is_far_slower() -> None:
    pytest.importorskip("opendp", reason="pip install 'covey[privacy]'")
    found = bench_privacy.measure(1, 1000)["mechanisms"]
    noise = [row["times the library"] for name, row in found.items() if "noise" in name]
    assert len(noise) == 2
    assert min(noise) > 20  # 100 where nobody disturbs; see results/bench-privacy.json
