"""Ward's benchmark: both ways on few reports, in a separate process."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "bench"))

import bench_ward
from render import ward as rendered


def test_reports_are_as_long_as_their_noise() -> None:
    assert 5 < float(bench_ward.reports(300).norm(dim=1).mean()) < 6.5  # of scale 1/2 on 64 numbers


def test_a_row_of_each_case() -> None:
    rows = [bench_ward.measured((200, by_scipy)) for by_scipy in (True, False)]
    assert [row["how"] for row in rows] == ["scipy", "without distances"]
    found = {
        "commit": "abc",
        "machine": {"cpu": "a CPU"},
        "width": 64,
        "clusters": 25,
        "rows": rows,
    }
    assert "| 200 | scipy |" in "\n".join(rendered(found))
