"""Label recovery: an upload in clear reveals the list, what a server of sums holds does not."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="pip install 'covey[secure]'")
sys.path.append(str(Path(__file__).parents[2] / "bench"))

import bench_recovery
from render import recovery


def test_what_a_server_can_recover() -> None:
    found = bench_recovery.measure(96)
    f1, error = found["f1"], found["standard error"]
    assert found["in the sum"] == 64 and f1["the upload in clear"] > 0.95
    held = "what the server of a secure sum holds"
    assert abs(f1[held] - f1["guessing"]) < 4 * (error[held] + error["guessing"])
    lines = "\n".join(recovery({"commit": "abc", **found}))
    assert (
        "96 clients of which 64 are in the sum" in lines
        and "| the upload in clear | 1.00 |" in lines
    )
