"""The loop's draws have the distribution of the contribution, and both passes are measured."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from bench_pdc import auxiliary, contribution, gumbel, ready
from covey.methods.pdc_frs_draws import chances
from covey.methods.titles import likeness

TINY = ("data.users=30", "data.items=80", "data.mean_items=8", "mechanism.0.aux_epochs=1")


def test_a_draw_at_a_time_has_the_same_distribution() -> None:
    torch.manual_seed(0)
    like = likeness(("red cat", "red dog", "blue sky"), 3)
    drawn_T = gumbel(torch.zeros(4000, dtype=torch.long), like, 6.0)
    share_I = torch.bincount(drawn_T, minlength=3).double() / 4000
    torch.testing.assert_close(share_I, chances(torch.tensor([0]), like, 6.0)[0], rtol=0, atol=0.04)


def test_both_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench_pdc.source_of", lambda dataset: list(TINY))
    engine = ready()
    assert contribution(engine, 500, 5, 1)["times"] > 0
    found = auxiliary(engine, 10, 1, cohort=4)
    assert found["clients"] == 10 and all(len(s) == 1 for s in found["cpu_seconds"].values())
    assert "the auxiliary model takes" in capsys.readouterr().out
