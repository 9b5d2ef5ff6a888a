"""A client that lies about its part of a sum: by hand, and what it does to sums."""

import pytest
import torch

import covey
from attacked import trained, view_of
from covey.attacks.overstated import Overstated
from covey.contract.attack import Attack
from covey.core.messages import Catalogue, Upload
from covey.core.ragged import Ragged, Rows
from covey.engine.method import Method
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance

ITEMS = torch.linspace(-1, 1, 24, dtype=torch.float64).view(12, 2)
USERS = torch.tensor([[0.5, -1.0], [1.0, 2.0]], dtype=torch.float64)
POPULARITY = [float(12 - i) for i in range(12)]
SMALL = {"users": 120, "items": 60, "mean_items": 12}
TARGET = 55


def test_only_the_rows_of_the_targets_and_so_many_times() -> None:
    bad, honest = trained(Overstated((3,), 5, 4.0), ITEMS, USERS, POPULARITY)
    mine, theirs = bad.update["items"], honest.update["items"]
    assert mine.items.values.tolist() == [3, 3] and 3 in theirs.items.values.tolist()
    torch.testing.assert_close(mine.values, 4 * theirs.values[theirs.items.values == 3])


def test_reports_are_lied_about_too() -> None:
    attack = Overstated((1, 3), 5, 10.0)
    rows = Rows(Ragged.of([[0, 1, 3], [2, 3]]), torch.arange(5.0)[:, None], 12)
    extra = {"m": {"rows": rows, "number": torch.tensor([1.0, 2.0])}}
    _, bad = attack.poison(
        view_of(attack, ITEMS, popularity=POPULARITY),
        Upload(torch.tensor([7, 8]), torch.ones(2), extra=extra),
    )
    found = bad.extra["m"]["rows"]
    assert found.items.values.tolist() == [1, 3, 3] and found.items.lengths.tolist() == [2, 1]
    assert found.values[:, 0].tolist() == [10, 20, 40] and bad.extra["m"]["number"].tolist() == [
        1,
        2,
    ]


def test_it_pushes_a_target_and_short_groups_take_it_back() -> None:
    """5 % of attackers, each counting as a hundred clients; the check leaves their groups out."""

    def exposed(share: float = 0.05, **more: object) -> float:
        attack = {
            "use": "covey.attacks.overstated:Overstated",
            "targets": [TARGET],
            "share": share,
            "scale": 100.0,
        }
        evaluate = {"every": 4, "targets": [TARGET]}
        weak = {"use": "covey.methods.ease_sums:GramTiles", "weight": 20.0}
        found = covey.fit(
            "ease-sums",
            data=SMALL,
            rounds=4,
            attack=attack,
            evaluate=evaluate,
            mechanism=[weak],
            **more,
        )
        return float(found.result["target"]["er@5"])

    clean, check = (
        exposed(share=0.0),
        {"secure": True, "masks": False, "group": 4, "longest": 3.0, "range": 1e6},
    )
    pushed, checked = exposed(), exposed(fleet=check)
    assert pushed > clean + 0.3 and abs(checked - clean) < 0.1, (clean, pushed, checked)


@pytest.mark.slow
class TestConformance(Conformance):
    attackers = 3

    def method(self, catalogue: Catalogue) -> Method:
        return Method(MF(4), Bce(), catalogue, Local("sgd", 0.5, epochs=2))

    def attack(self) -> Attack:
        return Overstated((3,), 5, 4.0)
