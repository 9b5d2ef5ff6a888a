"""Ward's benchmark: both ways on few reports, in a process of their own."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "bench"))

import torch

import bench_ward
from covey.methods.clustering import ward, ward_of_many
from render import ward as rendered


def test_both_ways_find_the_same_clusters_in_noisy_reports() -> None:
    x_ND = bench_ward.reports(300)
    assert 5 < float(x_ND.norm(dim=1).mean()) < 6.5  # noise of scale 1/2 on 64 numbers, nearly all of it
    one, other = ward(x_ND, 5), ward_of_many(x_ND, 5)
    together = lambda label_N: label_N[:, None] == label_N
    assert torch.equal(together(one), together(other))


def test_a_row_of_each_case() -> None:
    rows = [bench_ward.measured((200, by_scipy)) for by_scipy in (True, False)]
    assert [row["how"] for row in rows] == ["scipy", "without distances"]
    found = {"commit": "abc", "machine": {"cpu": "a CPU"}, "width": 64, "clusters": 25, "at most": 2.0, "rows": rows}
    assert "| 200 | scipy |" in "\n".join(rendered(found))
