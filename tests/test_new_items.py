"""Items added after training: ranked like those that they behave like, and nothing else moves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import covey
from covey.core.errors import CoveyError
from covey.data import Dataset
from test_api import METHODS, OWN, checkerboard, small

REFUSED = (
    "cofedrec",
    "cofedrec-mf",
    "cofedrec-ncf",
    "gpfedrec",
    "gpfedrec-printed",
    "metamf",
    "fedfast",
    "fedpergnn",
    "perfedrec",
    "ease-sums",
    "popularity-private",
    "spectral-private",
)
LEARNED: dict[str, tuple[int | None, dict[str, Any]]] = {
    "fedmf": (40, {}),
    "fedncf": (60, {}),
    "pfedrec": (60, {}),
    "spectral": (4, {"model": {"rank": 8}}),
    "ease": (None, {}),
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def learned(method: str) -> covey.Recommender:
    rounds, more = LEARNED[method]
    return covey.fit(method, checkerboard(), rounds=rounds, evaluate={"every": 100}, **more)


def owners(fitted: covey.Recommender, item: str) -> list[Any]:
    """Who trains on it."""
    train = fitted.prepared.split.train
    return [fitted.users[u] for u in train.owner[train.values == fitted.items.index(item)].tolist()]


def places(fitted: covey.Recommender) -> np.ndarray[Any, Any]:
    """Of all items in everybody's list, [N, I]."""
    lists = fitted.ranked(fitted.users, 1000, filter_seen=False).values()
    found = [{choice.item: at for at, choice in enumerate(chosen)} for chosen in lists]
    return np.array([[mine[item] for item in fitted.items] for mine in found])


@pytest.mark.parametrize("method", LEARNED)
def test_a_new_item_is_ranked_like_its_twin(method: str) -> None:
    """A new item with the users of an old one gets a row near it, among those of its colour."""
    fitted = learned(method)
    new = fitted.add_items(["new"], [(user, "new") for user in owners(fitted, "ia0")])
    assert new.items == [*fitted.items, "new"] and fitted.items == [*checkerboard().items.tolist()]  # type: ignore[union-attr]
    far_I = np.abs(places(new)[:, :-1] - places(new)[:, -1:]).mean(0)
    assert far_I[fitted.items.index("ia0")] < 0.75 * np.median(far_I)
    colours = [item[1] for item in np.array(fitted.items)[np.argsort(far_I)[:6]]]
    assert colours.count("a") >= 5, colours


@pytest.mark.parametrize("method", ["fedmf", "fedncf", "pfedrec", "pdc-frs", "fedcl", "spectral"])
def test_all_that_was_learned_stays_as_it_was(method: str, tmp_path: Path) -> None:
    """Old items keep their scores for users whose list did not change, also after saving."""
    fitted = small(method)
    public = {k: v.clone() for k, v in fitted.scorer.server.public.items()}
    before = fitted.ranked(fitted.users, 60, filter_seen=False)
    new = fitted.add_items(
        {"n1": "", "n2": ""}, [("1", "n1"), ("2", "n1"), (2, "n2"), ("2", "n2")], rounds=2
    )
    assert fitted.ranked(fitted.users, 60, filter_seen=False) == before
    for name, value in public.items():
        assert torch.equal(fitted.scorer.server.public[name], value)
        assert torch.equal(new.scorer.server.public[name][: len(value)], value), name
    others = [user for user in fitted.users if user not in ("1", "2")]
    after = new.ranked(others, 62, filter_seen=False)
    for user in others:
        old = {choice.item: choice.score for choice in before[user]}
        now = {choice.item: choice.score for choice in after[user]}
        assert now.keys() == old.keys() | {"n1", "n2"}
        assert all(
            now[item] == pytest.approx(score, rel=1e-5, abs=1e-6) for item, score in old.items()
        )
    assert not {"n1", "n2"} & set(new.recommend("2", 62)["2"])  # it has them already
    for part in ("valid", "test"):
        mine, theirs = getattr(new.prepared.split, part), getattr(fitted.prepared.split, part)
        assert torch.equal(mine.values, theirs.values) and torch.equal(mine.offsets, theirs.offsets)
    assert (
        new.prepared.split.train.lengths[2] == fitted.prepared.split.train.lengths[2] + 2
    )  # a pair counts once
    new.save(tmp_path / "saved")
    again = covey.Recommender.load(tmp_path / "saved")
    assert again.items == new.items
    assert again.ranked(new.users, 62) == new.ranked(new.users, 62)
    assert again.evaluate() == new.evaluate()
    assert again.recommend_new(["n1", "3"]) == new.recommend_new(["n1", "3"])


def titled() -> Dataset:
    board = checkerboard()
    words = [f"{'red' if k % 2 else 'blue'} number{k}" for k in range(board.n_items)]
    return Dataset(
        board.name, 40, 40, board.user_E, board.item_E, None, board.users, board.items, tuple(words)
    )


def test_an_item_that_nobody_has_is_placed_by_its_title() -> None:
    fitted = covey.fit("fedmf", titled(), rounds=40, evaluate={"every": 100})
    new = fitted.add_items({"twin": "number7", "sky": "BLUE sky!"}, rounds=3)
    items = new.scorer.server.public["items"]  # type: ignore[attr-defined]
    torch.testing.assert_close(items[40], items[7])  # the only title with that word
    nearest = torch.cosine_similarity(items[41:42], items[:40]).topk(5).indices
    assert not (nearest % 2).any()  # those that are blue
    assert new.prepared.dataset.titles[40:] == ("number7", "BLUE sky!")
    lists = places(new)
    even = np.arange(40) % 2 == 0
    assert lists[even, -1].mean() < lists[~even, -1].mean() - 5


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_or_says_why_not(method: str) -> None:
    fitted = small(method)

    def added() -> covey.Recommender:
        return fitted.add_items(["new"], [("1", "new"), ("2", "new")], rounds=1)

    if method in (*REFUSED, "local") or (
        "pooled" in fitted.config.tree and method not in ("ease", "ials", "popularity")
    ):
        with pytest.raises(CoveyError, match="fit again"):
            added()
    else:
        assert "new" in added().recommend("3", 100)["3"]


def test_no_round_goes_without_its_guard() -> None:
    fitted = small("fedmf", set=['mechanism=[{use="covey.defenses.clip:ClipRows"}]'])
    with pytest.raises(
        CoveyError,
        match="'clip rows' guards the uploads, and rounds for new items would go without it",
    ):
        fitted.add_items(["new"], [("1", "new")])


def test_no_round_goes_without_its_base() -> None:
    fitted = small(
        "fedmf",
        set=['mechanism=[{use="covey.methods.spectral_residual:SpectralResidual",rank=4,sums=1}]'],
    )
    with pytest.raises(
        CoveyError, match="'spectral residual' rests on sums without the new items; fit again"
    ):
        fitted.add_items(["new"], [("1", "new")])


@pytest.mark.parametrize(
    ("items", "interactions", "message"),
    [
        ([], [], "name at least one new item"),
        ("new", [], "a list of ids"),
        (["3", "new"], [], "item '3' is there already; leave it out"),
        ([3], [], "item '3' is there already"),
        (["new"], [("nobody", "new")], "there is no user 'nobody'"),
        (["new"], [("1", "2")], "item '2' is not one of the new items"),
        (["new"], [], "nothing is known of item 'new'; give interactions with it, or a title"),
        ({"n1": "", "n2": "qwertz"}, [("1", "n1")], "nothing is known of item 'n2'"),
    ],
)
def test_what_cannot_be_added(
    items: Any, interactions: list[tuple[str, str]], message: str
) -> None:
    fitted = covey.fit(
        "spectral", rounds=1, data={"users": 20, "items": 30, "mean_items": 6}, **OWN["spectral"]
    )
    with pytest.raises(CoveyError, match=message):
        fitted.add_items(items, interactions)


def test_closed_forms_need_somebody_who_has_it() -> None:
    fitted = small("ease")
    with pytest.raises(CoveyError, match="nothing is known of item 'new'"):
        fitted.add_items({"new": "a title"})
    popular = small("popularity").add_items(["hit"], [(user, "hit") for user in range(39)])
    assert popular.recommend("39", 1) == {"39": ["hit"]}


def test_ids_stay_whole_numbers() -> None:
    board = checkerboard()
    board = Dataset(
        "numbers", 40, 40, board.user_E, board.item_E, None, np.arange(40), np.arange(100, 140)
    )
    fitted = covey.fit("ease", board)
    new = fitted.add_items([500], [(user, 500) for user in range(0, 20, 2)])
    assert new.items[-1] == 500 and 500 in new.recommend(38, 10)[38]
    with pytest.raises(CoveyError, match="whole numbers"):
        fitted.add_items(["five"], [(0, "five")])
    with pytest.raises(CoveyError, match=r"there is no item '500'.*add_items"):
        fitted.recommend_new([500])
