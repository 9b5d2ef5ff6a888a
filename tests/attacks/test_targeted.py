"""Targeted attacks: an upload of each by hand, and a planted case in which its own idea acts."""

import math

import pytest
import torch
from torch import Tensor

from attacked import IDS, TARGET, after, exposure, poisoned, view_of
from covey.attacks.a_hum import AHum
from covey.attacks.a_ra import ARa
from covey.attacks.adaptive import Adaptive
from covey.attacks.fedrecattack import FedRecAttack
from covey.attacks.pipattack import PipAttack, classes
from covey.attacks.profiles import random_items
from covey.attacks.psmu import PSMU
from covey.contract.attack import Attack
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Upload
from covey.core.ragged import Ragged, Rows
from covey.defenses.clip import ClipRows
from covey.defenses.krum import Krum
from covey.defenses.median import Median
from covey.engine.client.malicious import leaked
from covey.engine.method import Method
from covey.models.ncf import NCF
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance

TARGETED: list[Attack] = [
    AHum((TARGET, 5), mine_rate=0.5, rate=0.5),
    PSMU((TARGET, 5), rate=0.5),
    FedRecAttack((TARGET, 5), leak=0.2, rows=6),
    PipAttack((TARGET, 5), near=0.5),
    Adaptive((TARGET, 5)),
]


class AttackedNCF(Conformance):
    attackers = 3
    number: int

    def method(self, catalogue: Catalogue) -> Method:
        return Method(NCF(4, (4, 3)), Bce(), catalogue, Local("adam", 0.01, epochs=2))

    def attack(self) -> Attack:
        return TARGETED[self.number]


@pytest.mark.slow
class TestAHum(AttackedNCF):
    number = 0


@pytest.mark.slow
class TestPSMU(AttackedNCF):
    number = 1


class TestFedRecAttack(AttackedNCF):
    number = 2


@pytest.mark.slow
class TestPipAttack(AttackedNCF):
    number = 3


@pytest.mark.slow
class TestAdaptive(AttackedNCF):
    number = 4


def table(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def of(upload: Upload, item: int, client: int = 0) -> Tensor:
    """A client's row of an item, as it was sent."""
    rows = upload.update["items"]
    assert isinstance(rows, Rows)
    mine = rows.items.values[rows.items.offsets[client] : rows.items.offsets[client + 1]].tolist()
    assert mine == sorted(set(mine))
    return rows.values[int(rows.items.offsets[client]) + mine.index(item)]


def sent(upload: Upload, client: int = 0) -> list[int]:
    rows = upload.update["items"]
    return list(
        rows.items.values[rows.items.offsets[client] : rows.items.offsets[client + 1]].tolist()
    )


def sigmoid(x: Tensor | float) -> float:
    return 1 / (1 + math.exp(-float(x)))


@pytest.mark.parametrize(
    "attack", [ARa((60,)), *TARGETED, PSMU(())], ids=lambda a: f"{a.name} {a.targets}"
)
def test_a_target_that_does_not_exist(attack: Attack) -> None:
    view = view_of(
        attack,
        torch.zeros(4, 2),
        user_CD=torch.zeros(2, 2),
        known=Ragged.of([[0]]),
        popularity=[1.0] * 4,
    )
    with pytest.raises(CoveyError, match="name items from 0 to 3"):
        poisoned(attack, view)


@pytest.mark.parametrize("attack", TARGETED, ids=lambda a: a.name)
def test_needs_private_user_vectors(attack: Attack) -> None:
    with pytest.raises(CoveyError, match="MF or NCF"):
        poisoned(attack, view_of(attack, torch.zeros(60, 2), model=LinearScore(2)))


def test_a_hum_by_hand() -> None:
    """Two steps of an imagined user w <- w - r sigmoid(w v) v, and then A-ra's row."""
    v_ID, attack = (
        table([0, 0], [1, -2]),
        AHum((1,), users=1, scale=1.0, rate=0.1, mine_steps=2, mine_rate=0.3),
    )
    view = view_of(attack, v_ID)
    w_C1D = view.rng.fold("users").normal(1, 2, dtype=torch.float64)
    upload = poisoned(attack, view)
    for client in (0, 1):
        w = w_C1D[client, 0]
        for _ in range(2):
            w = w - 0.3 * sigmoid(w @ v_ID[1]) * v_ID[1]
        torch.testing.assert_close(of(upload, 1, client), 0.1 * sigmoid(-w @ v_ID[1]) * w)
    assert sent(upload) == [1]


def test_a_hum_pushes_for_those_who_dislike_the_target() -> None:
    """Its users are moved against the target's row, so the row turns towards such users."""
    v_ID = table([0, 0], [2, 0])
    gain = {}
    for attack in (ARa((1,), scale=0.1, rate=1.0), AHum((1,), scale=0.1, rate=1.0, mine_rate=0.1)):
        upload = poisoned(attack, view_of(attack, v_ID))
        gain[attack.name] = min(float(of(upload, 1, c) @ table([-1, 0])[0]) for c in (0, 1))
    assert gain["a-hum"] > 1 and abs(gain["a-ra"]) < 0.1


PLANTED = table(
    [3, 0], [0, 2], [0, 0.1], [-1, -1], [0.1, 1.9], [-3, 0.2]
)  # item 4 is like item 1, the target


@pytest.mark.parametrize("model", [None, NCF(2, (3,))], ids=["MF", "NCF"])
def test_psmu_raises_the_target_over_its_alternatives(model: NCF | None) -> None:
    """An alternative's row goes down for the user; with none only the target's row is sent."""
    for kind in ("both", "listed", "similar", "none"):
        attack = PSMU((1,), kind, many=2, top=1, items=2, negatives=1, scale=1.0, rate=1.0)  # type: ignore[arg-type]
        view = view_of(attack, PLANTED, model=model)
        w_CD = attack.user(view, torch.tensor([1]))
        rivals_CI = attack.rivals(view, w_CD, torch.tensor([1]))
        assert (
            rivals_CI.sum(1).tolist() == ([0, 0] if kind == "none" else [2, 2])
            and not rivals_CI[:, 1].any()
        )
        assert bool(rivals_CI[:, 4].all()) or kind in ("listed", "none")
        upload = poisoned(attack, view)
        for c in (0, 1):
            rivals = rivals_CI[c].nonzero()[:, 0].tolist()
            assert sent(upload, c) == sorted([1, *rivals])
            if model is None:
                assert float(of(upload, 1, c) @ w_CD[c]) > 0
                assert all(float(of(upload, a, c) @ w_CD[c]) < 0 for a in rivals)


def test_psmu_by_hand() -> None:
    """sigmoid(x)' w for each alternative that leads by x, and the negative sum for the target."""
    attack = PSMU((1,), "listed", many=2, items=2, negatives=1, scale=1.0, rate=0.5)
    view = view_of(attack, PLANTED)
    w_CD = attack.user(view, torch.tensor([1]))
    upload = poisoned(attack, view)
    for c, w in enumerate(w_CD):
        order = (PLANTED @ w).argsort(descending=True).tolist()
        rivals = [i for i in order if i != 1][:2]
        slope = {a: sigmoid(w @ (PLANTED[a] - PLANTED[1])) for a in rivals}
        slope = {a: s * (1 - s) for a, s in slope.items()}
        for a in rivals:
            torch.testing.assert_close(of(upload, a, c), -0.5 * slope[a] * w)
        torch.testing.assert_close(of(upload, 1, c), 0.5 * sum(slope.values()) * w)
    other = PSMU((1,), "listed", "bce", many=2, items=2, negatives=1, scale=1.0, rate=0.5)
    upload = poisoned(other, view)
    for c, w in enumerate(w_CD):
        torch.testing.assert_close(of(upload, 1, c), 0.5 * sigmoid(-w @ PLANTED[1]) * w)
        a = next(i for i in sent(upload, c) if i != 1)
        torch.testing.assert_close(of(upload, a, c), -0.5 / 2 * sigmoid(w @ PLANTED[a]) * w)


def test_psmu_fits_its_user_to_the_list() -> None:
    attack = PSMU((1,), items=2, negatives=1, scale=0.01, steps=200, fit_rate=0.05)
    view = view_of(attack, PLANTED)
    lists_CL = random_items(view.rng.fold("list"), 6, 4, torch.tensor([1]))
    w_CD = attack.user(view, torch.tensor([1]))
    score_CL = (PLANTED[lists_CL] * w_CD[:, None]).sum(-1)
    assert bool((score_CL[:, :2].mean(1) > score_CL[:, 2:].mean(1)).all())


def test_fedrecattack_by_hand() -> None:
    """Two users; the target is item 0, the opponent the second item that they would be shown."""
    v_ID = table([0.1, 0.2], [1, 0], [0.5, 0.5], [0, 1])
    u_ND = table([2, 1], [-1, 3])
    known = Ragged.of([[1], [3]])  # user 0 is shown 2, 3; user 1 is shown 2, 1
    attack = FedRecAttack((0,), rows=4, top=2, bound=2.0, noise=0.0, steps=0, rate=0.1)
    upload = poisoned(attack, view_of(attack, v_ID, memory={"users": u_ND}, known=known))
    x_0, x_1 = u_ND[0] @ (v_ID[3] - v_ID[0]), u_ND[1] @ (v_ID[1] - v_ID[0])
    assert x_0 > 0 > x_1  # the first counts with 1, the second with e^x
    g_3, g_1 = u_ND[0], math.exp(float(x_1)) * u_ND[1]
    for item, g in ((0, -g_3 - g_1), (1, g_1), (3, g_3)):
        clipped = g * min(1.0, 2.0 / max(float(g.norm()), 1e-30))
        torch.testing.assert_close(of(upload, item), -0.1 * clipped)
    assert not of(upload, 2).any()
    assert poisoned(
        FedRecAttack((0,), rows=2, top=2, steps=0), view_of(attack, v_ID, known=known)
    ).update["items"].items.lengths.tolist() == [2, 2]


def test_fedrecattack_leaves_those_alone_who_have_the_target() -> None:
    v_ID, u_ND = table([0.1, 0.2], [1, 0], [0.5, 0.5]), table([2, 1])
    attack = FedRecAttack((0,), rows=3, noise=0.0, steps=0)
    upload = poisoned(attack, view_of(attack, v_ID, memory={"users": u_ND}, known=Ragged.of([[0]])))
    assert not upload.update["items"].values.any()


def test_fedrecattack_pushes_towards_the_users_that_it_knows() -> None:
    """All users like item 1 and nothing else is known: the target's row turns towards item 1."""
    v_ID = table([0, 0], [1, 0], [-1, 0], [0, 1])
    attack = FedRecAttack((0,), rows=1, steps=50, fit_rate=0.1, noise=0.0)
    upload = poisoned(attack, view_of(attack, v_ID, known=Ragged.of([[1]] * 6)))
    row = of(upload, 0)
    assert float(row[0]) > 0 and float(row[0].abs()) > 5 * float(row[1].abs())


def test_what_is_leaked() -> None:
    lists = Ragged.of([[5], list(range(200)), [], [1, 2, 3]])
    given = leaked(FedRecAttack(leak=0.01), lists, 0)
    assert given is not None and given.lengths.tolist() == [1, 2, 0, 1]
    parts = given.values.split(given.lengths.tolist())
    assert parts[0].tolist() == [5] and set(parts[3].tolist()) < {1, 2, 3} and max(parts[1]) > 1
    assert leaked(ARa(), lists, 0) is None
    with pytest.raises(CoveyError, match="a share"):
        FedRecAttack(leak=0.0)


def popular_table() -> tuple[Tensor, list[float]]:
    """Popular items lie at (2, 0), the others at (-2, 0), the target between them."""
    torch.manual_seed(0)
    table_ID = 0.1 * torch.randn(40, 2, dtype=torch.float64)
    table_ID[:4, 0] += 2
    table_ID[4:39, 0] -= 2
    return table_ID, [100.0] * 4 + [1.0] * 36


def test_pipattack_by_hand_and_by_its_classifier() -> None:
    """Without alignment rate sigmoid(-w v) w; for a user of zeros the classifier's gradient."""
    table_ID, popularity = popular_table()
    user_CD = table([1, 2], [0, 0])
    plain = PipAttack((39,), align=0.0, rate=0.1)
    upload = poisoned(plain, view_of(plain, table_ID, user_CD=user_CD, popularity=popularity))
    torch.testing.assert_close(
        of(upload, 39), 0.1 * sigmoid(-user_CD[0] @ table_ID[39]) * user_CD[0]
    )
    assert not of(upload, 39, 1).any()

    attack = PipAttack((39,), align=2.0, rate=0.1, steps=200, fit_rate=0.05)
    view = view_of(attack, table_ID, user_CD=user_CD, popularity=popularity)
    net, upload = attack.poison(view, Upload(IDS, torch.ones(2)))
    assert bool((classes(net, table_ID[:4]).argmax(1) == 0).all())
    assert bool((classes(net, table_ID[4:39]).argmax(1) > 0).all())
    row = of(upload, 39, 1)
    v = table_ID[39].clone().requires_grad_()
    (by_hand,) = torch.autograd.grad(-classes(net, v).log_softmax(0)[0], v)
    torch.testing.assert_close(row, -0.1 * 2.0 * by_hand)
    assert float(row[0]) > 0  # towards the popular ones
    before, after = (classes(net, v).softmax(-1)[0] for v in (table_ID[39], table_ID[39] + row))
    assert float(after) > float(before)


def test_pipattack_trains_its_classifier_over_rounds() -> None:
    table_ID, popularity = popular_table()
    attack, memory = PipAttack((39,), steps=50, fit_rate=0.05), {}
    for number in (1, 2):
        view = view_of(
            attack, table_ID, user_CD=table([1, 2], [0, 0]), popularity=popularity, memory=memory
        )
        memory = attack.poison(view, Upload(IDS, torch.ones(2)))[0]
        assert int(memory["t"]) == 50 * number
    once = PipAttack((39,), steps=100, fit_rate=0.05)
    view = view_of(once, table_ID, user_CD=table([1, 2], [0, 0]), popularity=popularity)
    whole = once.poison(view, Upload(IDS, torch.ones(2)))[0]
    torch.testing.assert_close(memory["w0"], whole["w0"])


@pytest.mark.parametrize(
    "attack",
    [
        AHum((TARGET,), scale=0.1, rate=0.5, mine_rate=0.1),
        PSMU((TARGET,), scale=0.1, rate=0.5, fit_rate=0.1),
        FedRecAttack((TARGET,), leak=0.2, rows=6, rate=0.5, fit_rate=0.1, steps=5),
        PipAttack((TARGET,), align=5.0, rate=0.5, steps=20, fit_rate=0.01),
    ],
    ids=lambda a: a.name,
)
def test_exposure_rises_without_a_defence_and_clipping_takes_it_back(attack: Attack) -> None:
    assert exposure(after(attack)) > 0.5
    assert exposure(after(attack, None, ClipRows(0.01))) < 0.1


def test_the_adaptive_attacker_stays_under_the_bound_and_agrees_with_its_like() -> None:
    honest = Rows(Ragged.of([[0, 2], [3]]), table([3, 4], [0, 1], [0.6, 0.8]), 4)
    for attack, size in (
        (Adaptive((1,), bound=0.2), [0.2, 0.2]),
        (Adaptive((1,), multiple=2.0), [2.0, 2.0]),
    ):
        upload = attack.poison(
            view_of(attack, PLANTED[:4]), Upload(IDS, torch.ones(2), {"items": honest})
        )[1]
        assert sent(upload) == [0, 1, 2] and sent(upload, 1) == [1, 3]
        assert [float(of(upload, 1, c).norm()) for c in (0, 1)] == pytest.approx(
            size
        )  # the lower median of 5 and 1
        torch.testing.assert_close(of(upload, 1, 0), of(upload, 1, 1))
        torch.testing.assert_close(of(upload, 0, 0), table([3, 4])[0])  # the rest is honest


def with_honest(attack: Attack, honest: int) -> tuple[Upload, Tensor]:
    """Rows of the target, honest ones near 0 and two attackers', and the attackers' row, [D]."""
    own = Rows(Ragged.of([[0, 2], [0, 2]]), 0.1 * torch.ones(4, 2, dtype=torch.float64), 6)
    bad = attack.poison(view_of(attack, PLANTED), Upload(IDS, torch.ones(2), {"items": own}))[1]
    torch.manual_seed(0)
    rows_CD = torch.cat(
        [0.1 * torch.randn(honest, 2, dtype=torch.float64), of(bad, 1)[None], of(bad, 1, 1)[None]]
    )
    upload = Upload(torch.arange(honest + 2), torch.ones(honest + 2), {"row": rows_CD})
    return upload, of(bad, 1)


def test_the_adaptive_attacker_passes_where_a_plain_one_does_not() -> None:
    """Two attackers of six: Krum chooses their common row, but not A-ra's rows."""
    plain, knows = ARa((1,), scale=1.0, rate=5.0), Adaptive((1,), multiple=1.0)
    upload, row = with_honest(knows, 4)
    torch.testing.assert_close(Krum(0.34).combine(upload, ["row"])[0]["row"], row)
    upload, row = with_honest(plain, 4)
    assert float((Krum(0.34).combine(upload, ["row"])[0]["row"] - row).norm()) > 0.2


def test_the_adaptive_attacker_moves_the_median_less_than_krum() -> None:
    """It cannot be far from honest rows, so rules that average or take the middle limit it."""
    upload, row = with_honest(Adaptive((1,), multiple=1.0), 4)
    krum, median = (
        float(rule.combine(upload, ["row"])[0]["row"] @ row / row.norm() ** 2)
        for rule in (Krum(0.34), Median())
    )
    assert krum == pytest.approx(1) and median < 0.9
