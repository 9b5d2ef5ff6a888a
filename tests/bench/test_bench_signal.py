"""What noise leaves of planted clusters: everything if there is little noise, nothing if much."""

import sys
from pathlib import Path
from statistics import mean

import pytest
import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from bench_signal import PRESET, SETTINGS, found, pools, trained
from common import Engine, config_of
from covey.methods.fedcl import HardNegatives

PART = HardNegatives(clusters=4, difficulty=0.25)


def planted() -> tuple[Tensor, Tensor]:
    """400 reports around four corners, and 40 items of which ten lie in each corner's direction."""
    corner_KD = torch.eye(4, 8)
    near_ND = corner_KD.repeat(100, 1) + 0.01 * torch.randn(
        400, 8, generator=torch.Generator().manual_seed(0)
    )
    return near_ND / near_ND.abs().sum(1, keepdim=True), corner_KD.repeat(10, 1)


def test_pools_are_the_items_that_lie_in_a_clusters_direction() -> None:
    report_ND, items_ID = planted()
    label_N, hard_KI = pools(PART, report_ND, items_ID)
    assert hard_KI.sum(1).tolist() == [10] * 4
    for client in range(4):
        assert hard_KI[label_N[client]].nonzero()[:, 0].tolist() == list(range(client, 40, 4))


def test_a_large_budget_finds_everything_again_and_noise_alone_finds_nothing() -> None:
    clear, blurred, nothing = found(PART, *planted(), (1000.0, 4.0, 0.0), draws=3)
    assert clear["rand index"] == [1.0] * 3 and clear["pool kept"] == [1.0] * 3
    assert mean(nothing["rand index"]) == pytest.approx(0, abs=0.02)
    assert mean(nothing["pool kept"]) < 0.5
    assert mean(nothing["rand index"]) < mean(blurred["rand index"]) < 1


def test_everybody_has_reported_without_noise() -> None:
    tiny = ("data.users=40", "data.items=60", "data.mean_items=12")
    part, report_ND, items_ID = trained(
        Engine.of(config_of("fedcl", PRESET, *tiny, *SETTINGS)), passes=1
    )
    assert (
        part.epsilon == float("inf")
        and len(report_ND) == 40
        and report_ND.shape[1] == items_ID.shape[1]
    )
    assert (report_ND.abs().sum(1) <= 1 + 1e-5).all() and (report_ND != 0).any(1).all()
