"""Sums by groups: the same total, and a group with a far too long contribution is left out."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from torch import Tensor

import covey
from covey.aggregate.fold import total_of
from covey.contract.fleet import Request
from covey.core.errors import CoveyError
from covey.core.messages import Download, Total, Upload
from covey.core.ragged import Ragged, Rows
from covey.engine.fleet.meter import Meter
from covey.engine.secure.fleet import SecureFleet
from covey.engine.secure.groups import GroupSum, drawn, within
from covey.engine.secure.layout import Layout
from covey.engine.secure.settings import FleetConfig

N, ITEMS = 23, 6


def an_upload(liar: int = -1, times: float = 1.0) -> Upload:
    """Each client contributes two rows of ones; the liar contributes them so many times."""
    items = Ragged.of([[c % 5, 5] for c in range(N)])
    value_T = torch.ones(2 * N, 3, dtype=torch.float64)
    value_T[2 * liar : 2 * liar + 2] *= times if liar >= 0 else 1.0
    return Upload(
        torch.arange(N) + 4, torch.ones(N), extra={"m": {"rows": Rows(items, value_T, ITEMS)}}
    )


@dataclass
class Given:
    """Devices that answer what a test gives them."""

    upload: Upload
    meter: Meter = field(default_factory=lambda: Meter(N + 4))

    @property
    def ids_N(self) -> Tensor:
        return self.upload.ids_C

    def ask(self, request: Request) -> Upload | Total:
        return self.upload.take(torch.isin(self.upload.ids_C, request.ids_C).nonzero()[:, 0])


def asked(upload: Upload, **options: object) -> tuple[Total, dict[str, int]]:
    devices = Given(upload)
    config = FleetConfig(secure=True, **options)  # type: ignore[arg-type]
    total = SecureFleet(devices, config).ask(
        Request("report", 1, upload.ids_C, Download(), fold=True)
    )
    assert isinstance(total, Total)
    return total, devices.meter.dropped


def test_everybody_is_in_one_group_by_lot() -> None:
    ids_C = torch.tensor([9, 3, 7, 1, 8, 2, 6, 4])
    groups = drawn(ids_C, 3, 0, 1, "report")
    assert sorted(torch.cat(groups).tolist()) == list(range(8)) and [len(g) for g in groups] == [
        4,
        4,
    ]
    assert all(ids_C[g].tolist() == sorted(ids_C[g].tolist()) for g in groups)
    others = [[g.tolist() for g in drawn(ids_C, 3, 0, round, "report")] for round in range(1, 20)]
    assert len({str(o) for o in others}) > 10  # the group of a liar is not known beforehand
    assert [g.tolist() for g in drawn(ids_C, 0, 0, 1, "report")] == [ids_C.argsort().tolist()]
    assert len(drawn(ids_C, 5, 0, 1, "report")) == 1  # too few for two groups


@pytest.mark.parametrize("masks", [True, False])
def test_groups_add_up_to_the_same_total(masks: bool) -> None:
    upload = an_upload()
    total, dropped = asked(upload, group=5, longest=3.0, masks=masks)
    torch.testing.assert_close(
        total.extra["m"]["rows"], total_of(upload).extra["m"]["rows"], rtol=0, atol=1e-8
    )
    assert total.ids_C.tolist() == upload.ids_C.tolist() and not dropped


def test_the_longest_row_by_hand() -> None:
    """A part of one client: two rows of (1, 1, 1), length sqrt 3; the weight is 1."""
    layout = Layout.of(total_of(an_upload().take(torch.tensor([0]))))
    sums = layout.vector(total_of(an_upload().take(torch.tensor([0]))))
    assert sums is not None
    assert layout.longest(sums) == {"weight": 1.0, "extra/m/rows": pytest.approx(3**0.5)}


def test_a_group_that_is_much_longer_than_most_is_left_out() -> None:
    def one(length: float) -> GroupSum:
        return GroupSum(torch.arange(3), np.zeros(2), {"rows": length, "weight": 3.0})

    # The median is 5.5.
    assert within([one(4.0), one(5.0), one(6.0), one(15.1)], 3.0) == [True] * 4
    assert within([one(4.0), one(5.0), one(6.0), one(16.6)], 3.0) == [True, True, True, False]
    assert within([one(4.0), one(float("nan")), one(5.0)], 0.0) == [True] * 3
    assert within([], 3.0) == []


@pytest.mark.parametrize("masks", [True, False])
def test_a_liar_takes_its_group_with_it(masks: bool) -> None:
    """Honest rows of a group of 5 are at most 5 sqrt 3 long: 100 times one is caught, 2 are not."""
    total, dropped = asked(an_upload(liar=7, times=100.0), group=5, longest=3.0, masks=masks)
    assert 7 + 4 not in total.ids_C.tolist() and N - len(total) == dropped[
        "in a group with too long a row"
    ] in (5, 6)
    want = total_of(an_upload().take(torch.isin(an_upload().ids_C, total.ids_C).nonzero()[:, 0]))
    torch.testing.assert_close(total.extra["m"]["rows"], want.extra["m"]["rows"], rtol=0, atol=1e-8)
    total, dropped = asked(an_upload(liar=7, times=2.0), group=5, longest=3.0, masks=masks)
    assert len(total) == N and not dropped  # let through, and in the sum
    assert float(total.extra["m"]["rows"][5, 0]) == pytest.approx(N + 1)


def test_without_groups_a_liar_is_in_the_sum() -> None:
    total, _ = asked(an_upload(liar=7, times=100.0))
    assert float(total.extra["m"]["rows"][5, 0]) == pytest.approx(N + 99)


def test_a_run_by_groups_is_the_run() -> None:
    data = {"users": 40, "items": 40, "mean_items": 8}
    plain = covey.fit("ease-sums", data=data, rounds=4).scorer.server.public["weight"]  # type: ignore[attr-defined]
    secure = {"secure": True, "masks": False, "group": 5}
    found = covey.fit("ease-sums", data=data, rounds=4, fleet=secure)
    torch.testing.assert_close(found.scorer.server.public["weight"], plain, rtol=0, atol=1e-5)  # type: ignore[attr-defined]


def test_noise_for_all_is_too_little_for_a_group() -> None:
    data = {"users": 40, "items": 40, "mean_items": 8}
    secure = {"secure": True, "masks": False, "group": 5}
    with pytest.raises(CoveyError, match=r"only a part of it; set fleet\.group = 0"):
        covey.fit("spectral-private", data=data, rounds=2, fleet=secure, model={"rank": 4})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"group": 2}, "at least 3"),
        ({"longest": 3.0}, "compares groups"),
        ({"group": 5, "longest": 0.5}, "over 1"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, float], why: str) -> None:
    with pytest.raises(CoveyError, match=why):
        replace(FleetConfig(secure=True), **options)  # type: ignore[arg-type]
