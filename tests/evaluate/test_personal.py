"""How personal lists are, on lists that can be compared by hand."""

import torch

from covey.evaluate.personal import best_items, drawn, summary


def test_three_lists_by_hand() -> None:
    found = summary(torch.tensor([[0, 1], [1, 0], [2, 3]]), 8)
    # One pair of users shares both items, the two others none; the order makes a list another one.
    assert found == {"users": 3, "k": 2, "distinct": 3, "overlap": 1 / 3, "coverage": 0.5}
    same = summary(torch.tensor([[0, 1]] * 3), 8)
    assert (same["distinct"], same["overlap"], same["coverage"]) == (1, 1.0, 0.25)
    assert summary(torch.tensor([[4, 2]]), 8)["overlap"] == 1.0


def test_the_overlap_is_the_mean_over_pairs() -> None:
    lists = torch.stack([torch.randperm(50)[:20] for _ in range(12)])
    sets = [set(row.tolist()) for row in lists]
    shares = [len(a & b) / 20 for i, a in enumerate(sets) for b in sets[:i]]
    torch.testing.assert_close(summary(lists, 50)["overlap"], sum(shares) / len(shares))


def test_best_items_break_ties_by_row() -> None:
    score_CI = torch.tensor([[1.0, 3.0, 1.0, 3.0, 1.0], [0.0] * 5, [2.0, float("nan"), 5, -1, 9]])
    assert best_items(score_CI, 3).tolist() == [[1, 3, 0], [0, 1, 2], [4, 2, 0]]
    assert best_items(score_CI, 9)[2].tolist() == [4, 2, 0, 3, 1]
    many = torch.rand(40, 300)
    assert torch.equal(best_items(many), many.topk(20).indices)


def test_users_are_drawn_by_the_seed() -> None:
    ids = torch.arange(1000) * 3
    one = drawn(ids, 1)
    assert len(one.unique()) == 200 and bool(torch.isin(one, ids).all())
    assert torch.equal(one, drawn(ids, 1)) and not torch.equal(one, drawn(ids, 2))
    assert torch.equal(drawn(ids[:150], 1), ids[:150])
