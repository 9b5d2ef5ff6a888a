"""Row-wise robust rules: against loops, by hand, where each works and where it breaks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import robust_loops as loops
from covey.aggregate.combine import ItemMean
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Upload
from covey.core.ragged import Ragged, Rows
from covey.defenses import rows as row_rules
from covey.defenses.bulyan import Bulyan
from covey.defenses.krum import Krum
from covey.defenses.krum_mean import KrumMean
from covey.defenses.median import Median
from covey.defenses.multi_krum import MultiKrum
from covey.defenses.rows import RowRule
from covey.defenses.trimmed import TrimmedMean
from covey.engine.method import Method
from covey.models.ncf import NCF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World
from robust_loops import Rule, by_item, random_rows, upload_of

CASES: list[tuple[RowRule, Rule, float]] = [
    (Median(), loops.median, 0.0),
    (Median(scale="sum"), loops.median, 0.0),
    (TrimmedMean(0.0), loops.trimmed, 0.0),
    (TrimmedMean(0.2), loops.trimmed, 0.2),
    (TrimmedMean(0.45, scale="sum"), loops.trimmed, 0.45),
    (TrimmedMean(0.2, "near"), loops.near, 0.2),
    (TrimmedMean(0.45, "near"), loops.near, 0.45),
    (Krum(0.2, scale="sum"), loops.krum, 0.2),
    (KrumMean(), loops.krum_mean, 0.0),
    (MultiKrum(0.2), loops.multi_krum, 0.2),
    (MultiKrum(0.45, scale="sum"), loops.multi_krum, 0.45),
    (Median(scale="everybody"), loops.median, 0.0),
    (MultiKrum(0.2, again=True), loops.multi_krum_again, 0.2),
    (Bulyan(0.1), loops.bulyan, 0.1),
    (Bulyan(0.2), loops.bulyan, 0.2),
    (Bulyan(0.2, again=True), loops.bulyan_again, 0.2),
]
RULES = [
    Median(),
    TrimmedMean(0.2),
    TrimmedMean(0.2, "near"),
    Krum(0.2),
    KrumMean(),
    MultiKrum(0.2),
    Bulyan(0.2),
]


@pytest.mark.parametrize(
    ("rule", "naive", "share"), CASES, ids=[repr(rule) for rule, _, _ in CASES]
)
def test_rows_are_judged_item_by_item(
    rule: RowRule, naive: Rule, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, most in ((0, 1 << 22), (1, 100)):
        monkeypatch.setattr(row_rules, "NUMBERS_AT_ONCE", most)
        rows, weight_C = random_rows(17, 25, 3, seed), torch.rand(17) + 0.5
        upload = upload_of(rows, weight_C)
        update, model = rule.combine(upload, ["items"])
        over = {"mean": None, "sum": 1.0, "everybody": float(weight_C.sum())}[rule.scale]
        expected, few = by_item(naive, rows, weight_C, share, over)
        np.testing.assert_allclose(update["items"].numpy(), expected, rtol=1e-6, atol=1e-9)
        assert not model and not update["items"][0].any()
        assert rule.tally(upload, ["items"]) == {"rows with too few uploads": few} and few > 0


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_other_parameters_are_judged_whole(rule: RowRule) -> None:
    torch.manual_seed(0)
    w_CAB = torch.randn(9, 5, 2)
    upload = Upload(
        torch.arange(9), torch.ones(9), {"w": w_CAB, "b": w_CAB[:, 0]}, {"table": w_CAB}
    )
    update, model = rule.combine(upload, ["w", "table"])
    assert set(update) == {"w"}
    torch.testing.assert_close(update["w"], rule.choose(w_CAB.flatten(1)[None])[0].view(5, 2))
    torch.testing.assert_close(update["w"], model["table"])
    assert rule.tally(upload, ["w"]) == {"rows with too few uploads": 0}


@pytest.mark.parametrize("rule", RULES, ids=repr)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**20), n=st.integers(8, 14))
def test_the_order_of_clients_does_not_matter(rule: RowRule, seed: int, n: int) -> None:
    """With more than one neighbour, as two mutual nearest neighbours have equal Krum scores."""
    torch.manual_seed(seed)
    g_JnP, order = torch.randn(5, n, 2, dtype=torch.float64), torch.randperm(n)
    torch.testing.assert_close(rule.choose(g_JnP), rule.choose(g_JnP[:, order]))


def test_by_hand() -> None:
    """Six numbers: 0, 1, 2, 3, 10, -50. With a sixth of them malicious f = 1."""
    g_161 = torch.tensor([0.0, 1.0, 2.0, 3.0, 10.0, -50.0]).view(1, 6, 1)

    def by(rule: RowRule) -> float:
        return rule.choose(g_161).item()

    assert by(Median()) == 1.5
    assert by(TrimmedMean(0.17)) == 1.5  # of 0, 1, 2, 3
    assert by(TrimmedMean(0.17, "near")) == pytest.approx(16 / 5)  # without -50
    assert (
        by(Krum(0.17)) == 1.0
    )  # the three nearest of 1 are at 1, 1 and 2; of 2 as well, and the first is taken
    assert by(KrumMean()) == 0.0  # nearest to the mean, which is -34 / 6
    assert by(MultiKrum(0.17)) == pytest.approx(16 / 5)
    with_f = Bulyan(0.125)  # eight uploads: six are taken, and four of these
    g_181 = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 100.0, -100.0]).view(1, 8, 1)
    assert with_f.choose(g_181).item() == 2.5


def planted(honest: int, malicious: int) -> Upload:
    """Item 0: honest rows near 1, malicious ones at -1000. Item 1: touched only by attackers."""
    torch.manual_seed(3)
    many = honest + malicious
    rows = [[0]] * honest + [[0, 1]] * malicious
    values_TD = torch.cat(
        [1 + 0.1 * torch.randn(honest, 4), torch.full((2 * malicious, 4), -1000.0)]
    )
    return Upload(
        torch.arange(many), torch.ones(many), {"items": Rows(Ragged.of(rows), values_TD, 2)}
    )


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if not isinstance(rule, KrumMean)], ids=repr
)
def test_where_it_works(rule: RowRule) -> None:
    """A fifth of attackers move the mean to -199, and the rule's result not at all."""
    upload = planted(16, 4)
    mean = ItemMean().combine(upload, ["items"])[0]["items"][0]
    got = rule.combine(upload, ["items"])[0]["items"][0]
    assert float(mean.max()) < -100
    torch.testing.assert_close(got, torch.ones(4), atol=0.3, rtol=0)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_where_it_breaks(rule: RowRule) -> None:
    """Attackers decide as a majority, and over rows that only they touched, which are counted."""
    got = rule.combine(planted(4, 16), ["items"])[0]["items"]
    assert float(got.max()) < -500
    lone = planted(16, 1)
    torch.testing.assert_close(
        rule.combine(lone, ["items"])[0]["items"][1], torch.full((4,), -1000.0)
    )
    assert rule.tally(lone, ["items"]) == {"rows with too few uploads": 1}


def test_the_papers_krum_is_moved_by_one_long_upload() -> None:
    """It takes the honest row that lies outermost on the attacker's side."""
    upload = planted(16, 1)
    got = KrumMean().combine(upload, ["items"])[0]["items"][0]
    honest_nD = upload.update["items"].values[:16]
    assert torch.equal(got, honest_nD[honest_nD.sum(1).argmin()])
    torch.testing.assert_close(
        Krum(0.1).combine(upload, ["items"])[0]["items"][0], torch.ones(4), atol=0.15, rtol=0
    )


def test_median_forgets_what_few_know() -> None:
    """The price of the median: of 9 clients 4 move a coordinate and 5 do not, so it stays."""
    g_19P = torch.zeros(1, 9, 1)
    g_19P[0, :4] = 1.0
    assert Median().choose(g_19P).item() == 0 and TrimmedMean(0.2).choose(g_19P).item() > 0.3


@pytest.mark.parametrize("make", [Krum, MultiKrum, TrimmedMean])
def test_a_majority_of_attackers_is_refused(make: type[Krum]) -> None:
    with pytest.raises(CoveyError, match="tolerates"):
        make(0.5)


def test_bulyan_stands_a_quarter() -> None:
    with pytest.raises(CoveyError, match=r"under 0\.25"):
        Bulyan(0.25)


class RobustNCF(Conformance):
    rule: RowRule

    def method(self, catalogue: Catalogue) -> Method:
        return Method(
            NCF(4, (4, 3)), Bce(), catalogue, Local("adam", 0.01, epochs=2), combine=self.rule
        )


class TestMedianNCF(RobustNCF):
    rule = Median()


@pytest.mark.slow
class TestTrimmedNCF(RobustNCF):
    rule = TrimmedMean(0.2, "near", scale="sum")


@pytest.mark.slow
class TestBulyanNCF(RobustNCF):
    rule = Bulyan(0.1, again=True)


def test_rows_with_too_few_uploads_are_counted_over_a_run() -> None:
    world = World.of(12, 40)
    method = Method(
        NCF(4, (4, 3)), Bce(), world.catalogue, Local("sgd", 0.1, epochs=1), combine=Median()
    )
    play = Play(method, world, Setting(cohort=2)).begin().go(1)
    first = int(play.server.state["combine"]["tell/rows with too few uploads"])
    second = int(play.go(1).server.state["combine"]["tell/rows with too few uploads"])
    assert 0 < first < second  # of two uploads no row has three
