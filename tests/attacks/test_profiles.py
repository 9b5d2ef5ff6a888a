"""Attacks by made-up lists and untargeted attacks: uploads by hand, and cases in which they act."""

import math

import pytest
import torch
from torch import Tensor

from attacked import IDS, TARGET, after, exposure, trained, view_of
from covey.attacks.bandwagon import Bandwagon
from covey.attacks.cluster import ClusterAttack, kmeans
from covey.attacks.explicit import ExplicitBoost
from covey.attacks.fedattack import FedAttack
from covey.attacks.gaussian import GaussianNoise
from covey.attacks.popular import PopularProfile
from covey.attacks.random_profile import RandomProfile
from covey.attacks.sign_flip import SignFlip
from covey.contract.attack import Attack
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Upload
from covey.core.ragged import Ragged, Rows
from covey.core.rng import Rng
from covey.defenses.clip import ClipRows
from covey.engine.method import Method
from covey.models.mf import MF
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World

ITEMS = torch.arange(24, dtype=torch.float64).sin().view(12, 2)
USERS = torch.tensor([[1.0, -0.5], [0.2, 2.0]], dtype=torch.float64)
POPULARITY = [float(12 - i) for i in range(12)]
LISTS: list[Attack] = [
    ExplicitBoost((3,), 2.0),
    RandomProfile((3,), 5, 2.0),
    PopularProfile((3,), 5, 2.0),
    Bandwagon((3,), 6, 2.0, popular=0.4, head=0.3),
    FedAttack(2, 2.0),
    SignFlip(-2.0, 5),
]
UNTARGETED: list[Attack] = [
    FedAttack(3),
    ClusterAttack(3, patience=2),
    SignFlip(2.0),
    GaussianNoise(),
]


class AttackedMF(Conformance):
    attackers = 3
    number: int

    def method(self, catalogue: Catalogue) -> Method:
        return Method(MF(4), Bce(), catalogue, Local("sgd", 0.5, epochs=2))

    def attack(self) -> Attack:
        return [*UNTARGETED, Bandwagon((TARGET,))][self.number]


@pytest.mark.slow
class TestFedAttack(AttackedMF):
    number = 0


class TestClusterAttack(AttackedMF):
    number = 1


@pytest.mark.slow
class TestSignFlip(AttackedMF):
    number = 2


@pytest.mark.slow
class TestGaussianNoise(AttackedMF):
    number = 3


class TestBandwagon(AttackedMF):
    number = 4


def lists(attack: Attack, round: int = 1) -> list[list[int]]:
    view = view_of(attack, ITEMS, user_CD=USERS, popularity=POPULARITY, round=round)
    items = attack.profile(view).items  # type: ignore[attr-defined]
    return [part.tolist() for part in items.values.split(items.lengths.tolist())]


def row(upload: Upload, item: int, client: int = 0) -> Tensor:
    rows = upload.update["items"]
    mine = rows.items.values[rows.items.offsets[client] : rows.items.offsets[client + 1]].tolist()
    return rows.values[int(rows.items.offsets[client]) + mine.index(item)]


@pytest.mark.parametrize("attack", LISTS, ids=lambda a: a.name)
def test_sends_so_many_times_what_an_honest_client_with_that_list_would(attack: Attack) -> None:
    bad, honest = trained(attack, ITEMS, USERS, POPULARITY)
    assert torch.equal(bad.update["items"].items.values, honest.update["items"].items.values)
    torch.testing.assert_close(bad.update["items"].values, 2 * honest.update["items"].values)
    assert float(honest.update["items"].values.abs().sum()) > 0


def test_explicit_boosting_by_hand() -> None:
    """One target and one negative: half of sigmoid(-u v) u for the target, and -sigmoid(u v) u."""
    bad, _ = trained(ExplicitBoost((3,)), ITEMS, USERS)
    for c, u in enumerate(USERS):
        rows = bad.update["items"].take(torch.tensor([c]))
        for item, value in zip(rows.items.values.tolist(), rows.values, strict=True):
            z = float(u @ ITEMS[item])
            slope = 1 / (1 + math.exp(z)) if item == 3 else -1 / (1 + math.exp(-z))
            torch.testing.assert_close(value, 0.5 * slope * u)
        assert len(rows.items.values) == 2


def test_what_is_on_the_lists() -> None:
    assert lists(ExplicitBoost((3, 1))) == [[1, 3]] * 2
    assert lists(PopularProfile((3,), 5)) == [[3, 0, 1, 2, 4]] * 2
    one, two = lists(RandomProfile((3,), 5))
    assert one[0] == two[0] == 3 and one != two and len(set(one)) == len(set(two)) == 5
    assert lists(RandomProfile((3,), 5), round=9) == [one, two]  # for good
    for made in lists(Bandwagon((3,), 6, popular=0.4, head=0.3)):
        assert made[0] == 3 and len(set(made)) == 6
        assert {0, 1, 2} >= set(made[1:3]) and not {0, 1, 2} & set(made[3:])
    assert sorted(lists(RandomProfile((3,), 99))[0]) == list(range(12))


@pytest.mark.parametrize("attack", LISTS[:4], ids=lambda a: a.name)
def test_a_target_that_does_not_exist(attack: Attack) -> None:
    with pytest.raises(CoveyError, match="name items from 0 to 2"):
        attack.profile(view_of(attack, ITEMS[:3], popularity=[1.0] * 3))  # type: ignore[attr-defined]


def test_popularity_must_be_known() -> None:
    with pytest.raises(CoveyError, match="how popular"):
        PopularProfile((3,)).profile(view_of(PopularProfile((3,)), ITEMS))


@pytest.mark.parametrize(
    "attack", [ExplicitBoost((TARGET,)), RandomProfile((TARGET,), 10)], ids=lambda a: a.name
)
def test_exposure_rises_with_scale_and_clipping_takes_it_back(
    attack: ExplicitBoost | RandomProfile,
) -> None:
    strong = type(attack)(**{**vars(attack), "scale": 30.0})
    assert exposure(after(strong)) > 0.5
    assert exposure(after(strong, None, ClipRows(0.01))) < 0.1


def test_a_popular_list_makes_the_target_like_popular_items() -> None:
    """The target ends nearer to the popular items than with a random list of the same size."""
    world = World.of(40, 60, attackers=10)
    popular_I = world.catalogue.popularity_I
    assert popular_I is not None
    head = [i for i in popular_I.argsort(descending=True).tolist() if i != TARGET][:9]
    near = {}
    for attack in (PopularProfile((TARGET,), 10, 3.0), RandomProfile((TARGET,), 10, 3.0)):
        method = Method(MF(4), Bce(), world.catalogue, Local("sgd", 1.0, 3))
        items_ID = (
            Play(method, world, Setting(cohort=50), attack).begin().go(30).server.public["items"]
        )
        near[attack.name] = float(
            torch.cosine_similarity(items_ID[TARGET], items_ID[head].mean(0), dim=0)
        )
    assert near["popular profile"] > near["random profile"] + 0.1


def test_fedattack_turns_the_hardest_labels_round() -> None:
    """By hand with one pair: the worst item is pulled to the user, the best pushed away."""
    bad, _ = trained(FedAttack(1), ITEMS, USERS)
    for c, u in enumerate(USERS):
        score_I = ITEMS @ u
        worst, best = int(score_I.argmin()), int(score_I.argmax())
        assert bad.update["items"].take(torch.tensor([c])).items.values.tolist() == sorted(
            [worst, best]
        )
        torch.testing.assert_close(row(bad, worst, c), 0.5 * (-score_I[worst]).sigmoid() * u)
        torch.testing.assert_close(row(bad, best, c), -0.5 * score_I[best].sigmoid() * u)


def test_fedattack_needs_a_user_of_its_own() -> None:
    with pytest.raises(CoveyError, match="MF or NCF"):
        FedAttack().profile(view_of(FedAttack(), ITEMS, model=LinearScore(2)))


def two_clusters() -> Tensor:
    torch.manual_seed(0)
    table_ID = 0.3 * torch.randn(12, 2, dtype=torch.float64)
    table_ID[:6, 0] += 3
    table_ID[6:, 0] -= 3
    return table_ID


def test_cluster_attack_by_hand() -> None:
    """Each row points to its cluster's centre, with norm mu + 3 sigma u; most norms are 0."""
    table_ID, attack = two_clusters(), ClusterAttack(2)
    honest = Rows(
        Ragged.of([[0, 5], [2]]), torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.6, 0.8]]).double(), 12
    )
    view = view_of(attack, table_ID)
    memory, upload = attack.poison(view, Upload(IDS, torch.ones(2), {"items": honest}))
    sent_CID = upload.update["items"].dense()
    unit_CI = view.rng.fold("size").uniform(12)
    for c, norms in enumerate(([5.0, 1.0], [1.0])):
        all_I = torch.tensor(norms + [0.0] * (12 - len(norms)), dtype=torch.float64)
        size_I = all_I.mean() + 3 * all_I.std(correction=0) * unit_CI[c]
        for item in range(12):
            mine = table_ID[:6] if item < 6 else table_ID[6:]
            way = mine.mean(0) - table_ID[item]
            torch.testing.assert_close(sent_CID[c, item], size_I[item] * way / way.norm())
    assert int(memory["clusters"]) == 2 and float(memory["t"]) == 1


def test_cluster_attack_has_at_most_fifty() -> None:
    with pytest.raises(CoveyError, match="clusters = 51; at most 50"):
        ClusterAttack(51)


def test_cluster_attack_changes_the_number_of_clusters() -> None:
    """While its loss keeps rising there are more of them, while it keeps falling fewer."""
    attack = ClusterAttack(4, patience=2)
    memory = attack.adapted({}, 1.0, 4)
    for loss in (2.0, 3.0):
        memory = attack.adapted(memory, loss, 4)
    assert int(memory["clusters"]) == 11 and float(memory["trend"]) == 0  # 4 + sqrt(46)
    for loss in (0.1, 0.01):
        memory = attack.adapted(memory, loss, 11)
    assert int(memory["clusters"]) == 8  # 11 - sqrt(10)


def test_kmeans_finds_planted_clusters() -> None:
    table_ID = two_clusters()
    centre_GD, of_I = kmeans(table_ID, 2, Rng.server(0, 1, "x"))
    assert len(set(of_I[:6].tolist())) == len(set(of_I[6:].tolist())) == 1 and of_I[0] != of_I[6]
    torch.testing.assert_close(centre_GD[of_I[0]], table_ID[:6].mean(0))


def test_cluster_attack_makes_items_alike() -> None:
    """Rows end nearer to their clusters' centres than with noise of the same length."""
    world = World.of(30, 60, attackers=10)
    spread = {}
    for attack in (ClusterAttack(2, scale=20.0), GaussianNoise(0.3)):
        method = Method(MF(4), Bce(), world.catalogue, Local("sgd", 0.5, 2))
        items_ID = (
            Play(method, world, Setting(cohort=40), attack).begin().go(15).server.public["items"]
        )
        centre_GD, of_I = kmeans(items_ID, 2, Rng.server(0, 1, "x"))
        apart = (items_ID - centre_GD[of_I]).norm(dim=1).mean() / items_ID.norm(dim=1).mean()
        spread[attack.name] = float(apart)
    assert spread["clusterattack"] < 0.7 * spread["gaussian noise"]


def test_gaussian_noise_by_hand() -> None:
    attack = GaussianNoise(0.5)
    view = view_of(attack, ITEMS)
    honest = Rows(Ragged.of([[0, 5], [2]]), torch.ones(3, 2, dtype=torch.float64), 12)
    update = {"items": honest, "w": torch.ones(2, 3)}
    sent = attack.poison(view, Upload(IDS, torch.ones(2), dict(update)))[1].update
    noise_C2D = view.rng.fold("items").normal(2, 2, dtype=torch.float64)
    torch.testing.assert_close(
        sent["items"].values, 0.5 * torch.stack([*noise_C2D[0], noise_C2D[1, 0]])
    )
    torch.testing.assert_close(sent["w"], 0.5 * view.rng.fold("w").normal(3))
    assert sent["items"].items is honest.items


def ranking_accuracy(attack: Attack | None) -> float:
    """How often a user's item is rated above another, with 10 attackers among 40 clients."""
    world = World.of(30, 60, attackers=10)
    method = Method(MF(8), Bce(), world.catalogue, Local("sgd", 2.0, 3))
    play = Play(method, world, Setting(cohort=40), attack).begin().go(40)
    seen, params = world.data.training.items, {k: v[None] for k, v in play.server.public.items()}
    shares = []
    for c in range(2, world.n_honest):  # the first two have nothing, or everything
        score_I = method.model.score(params, play.kept(c)["user"], params["items"])[0]
        own_I = torch.isin(torch.arange(60), seen.values[seen.offsets[c] : seen.offsets[c + 1]])
        shares.append(float((score_I[own_I][:, None] > score_I[~own_I]).float().mean()))
    return sum(shares) / len(shares)


@pytest.mark.parametrize(
    ("attack", "at_most"),
    [
        (None, 1.0),
        (FedAttack(1), 0.96),
        (ClusterAttack(2), 0.75),
        (SignFlip(3.0), 0.93),
        (GaussianNoise(0.5), 0.93),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_untargeted_attacks_do_harm(attack: Attack | None, at_most: float) -> None:
    """Without them 0.97."""
    assert (0.965 if attack is None else 0.5) < ranking_accuracy(attack) < at_most
