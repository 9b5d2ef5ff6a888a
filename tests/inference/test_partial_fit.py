"""New interactions after training: what the sums of everybody give, without a new fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import covey
from covey.core.errors import CoveyError
from covey.data import Dataset
from covey.inference.membership import join, members, update
from covey.run.assemble import assemble, method_of

SIZES = {"users": 120, "items": 50, "mean_items": 10}
OWN: dict[str, dict[str, Any]] = {"spectral": {"model": {"rank": 12}}}
NEW = [("n1", "3"), ("n2", "4"), ("5", "49"), ("n1", "9"), ("n3", "9"), (7, 48), ("n1", "3")]


def fit(method: str, dataset: Any = "synthetic", **more: Any) -> covey.Recommender:
    data = {"data": SIZES} if dataset == "synthetic" else {}
    return covey.fit(method, dataset, seed=3, **data, **OWN.get(method, {}), **more)


def together(fitted: covey.Recommender) -> Dataset:
    """All rows of a recommender, with its split."""
    assert fitted.prepared.dataset.part_E is not None
    return fitted.prepared.dataset


def test_ease_by_sums_is_that_of_a_fit_with_everything(tmp_path: Path) -> None:
    base = fit("ease-sums")
    before = base.scorer.server.public["weight"].clone()  # type: ignore[attr-defined]
    new = base.partial_fit(NEW)
    assert new.users == [*base.users, "n1", "n2", "n3"]
    again = fit("ease-sums", together(new), set=["split.kind=given", "split.rows=given"])
    weights = [one.scorer.server.public["weight"] for one in (new, again)]  # type: ignore[attr-defined]
    torch.testing.assert_close(*weights)
    assert not torch.allclose(before, weights[0])
    assert torch.equal(before, base.scorer.server.public["weight"])  # type: ignore[attr-defined]
    assert {"3", "9"}.isdisjoint(new.recommend("n1", 50)["n1"])
    assert "49" in base.recommend("5", 50)["5"] and "49" not in new.recommend("5", 50)["5"]
    assert new.evaluate()["test"] == pytest.approx(again.evaluate()["test"], abs=1e-6)
    new.save(tmp_path / "saved")
    loaded = covey.Recommender.load(tmp_path / "saved")
    assert loaded.ranked() == new.ranked()
    assert loaded.partial_fit([("n1", "20")]).ranked() == new.partial_fit([("n1", "20")]).ranked()


def test_it_is_what_memberships_give() -> None:
    """Known users update and new ones join, called by hand on fleets with the same lists."""
    base = fit("ease-sums")
    new = base.partial_fit(NEW)
    method = method_of(new.config, new.prepared.catalogue)
    fleet = assemble(new.config, new.prepared).fleet
    training = fleet.data.training  # type: ignore[attr-defined]
    old = base.prepared.split.train
    padded = type(old).cat([old, type(old).of([[], [], []])])
    object.__setattr__(training, "avoid", type(old).of([sorted(padded.take(
        torch.tensor([u])).values.tolist()) for u in range(len(padded))]))  # fmt: skip
    server = update(base.scorer.server, fleet, method, 5, torch.tensor([5, 7]))  # type: ignore[attr-defined]
    server = join(server, fleet, method, 9, torch.arange(120, 123))
    ours = new.scorer.server  # type: ignore[attr-defined]
    assert torch.equal(server.public["weight"], ours.public["weight"])
    assert torch.equal(members(server, method)[0], members(ours, method)[0])


def test_secure_sums_take_three_new_users() -> None:
    secure = {"secure": True, "neighbours": 8, "holders": 10, "masks": False}
    base = fit("ease-sums", fleet=secure)
    clear = fit("ease-sums").partial_fit(NEW[:2] + NEW[4:5])
    weights = [
        one.scorer.server.public["weight"]  # type: ignore[attr-defined]
        for one in (base.partial_fit(NEW[:2] + NEW[4:5]), clear)
    ]
    torch.testing.assert_close(*weights)
    with pytest.raises(CoveyError, match="nothing was changed"):
        base.partial_fit(NEW[:2])


def test_spectral_comes_close_to_a_fit_with_everything(tmp_path: Path) -> None:
    """A third of the users are new."""
    whole = covey.load("synthetic")
    pairs = [(str(u), str(i)) for u, i in zip(whole.user_E.tolist(), whole.item_E.tolist())]
    few, late = ([p for p in pairs if (int(p[0]) < 400) is early] for early in (True, False))
    late = [pair for pair in late if int(pair[0]) < 600]
    user_E, item_E = np.array(few, np.int64).T
    base = covey.fit("spectral", Dataset("few", 400, 500, user_E, item_E), model={"rank": 32})
    new = base.partial_fit(late)
    again = covey.fit("spectral", together(new), model={"rank": 32}, set=["split.kind=given"])
    found, expected = (set_of(one) for one in (new, again))
    overlap = [len(found[u] & expected[u]) / 10 for u in found]
    assert np.mean(overlap) > 0.85
    figure, best = (one.evaluate()["test"]["ndcg@20"] for one in (new, again))
    assert figure > 0.97 * best
    new.save(tmp_path / "saved")
    assert covey.Recommender.load(tmp_path / "saved").ranked() == new.ranked()


def set_of(fitted: covey.Recommender) -> dict[str, set[str]]:
    return {user: set(items) for user, items in fitted.recommend().items()}


def test_noisy_popularity_adds_new_users_alone() -> None:
    loud = [(f"n{n}", "49") for n in range(200)]
    base = fit("popularity-private", mechanism=[{
        "use": "covey.methods.private_sums:PrivateCount", "epsilon": 500.0}])  # fmt: skip
    new = base.partial_fit(loud)
    first = new.recommend("n0", 1, filter_seen=False)["n0"]
    assert first == ["49"] != base.recommend("5", 1, filter_seen=False)["5"]
    old_I, new_I = (
        one.scorer.server.public["items"][:49, 0]  # type: ignore[attr-defined]
        for one in (base, new)
    )
    moved_I = new_I - old_I
    assert float((moved_I - moved_I.mean()).abs().max()) < 0.1 * float(old_I.max() - old_I.min())
    assert float(moved_I.std()) > 0  # its own noise
    for known in (("5", "49"), ("n3", "2")):
        with pytest.raises(CoveyError, match="budget of 1 of these users is spent"):
            new.partial_fit([known])


@pytest.mark.parametrize("method", ["fedmf", "ease", "popularity", "spectral-private", "cofedrec"])
def test_other_methods_say_what_to_do(method: str) -> None:
    rounds = {"rounds": 1} if method in ("fedmf", "cofedrec") else {}
    more = {"grouping": {"categories": 4}} if method == "cofedrec" else {}
    more |= {"model": {"rank": 8}} if method == "spectral-private" else {}
    with pytest.raises(CoveyError, match="fit again with them, or use spectral, ease-sums or pop"):
        fit(method, **rounds, **more).partial_fit(NEW)


def test_nothing_new_and_unknown_items() -> None:
    base = fit("ease-sums")
    known = base.prepared.split.test.values[0]
    owner = int(base.prepared.split.test.owner[0])
    for wrong, why in (
        ([], "has all of these"),
        ([(str(owner), str(int(known)))], "has all of these"),
        ([("n1", "brand new")], "no item 'brand new'"),
    ):
        with pytest.raises(CoveyError, match=why):
            base.partial_fit(wrong)
