"""Metrics by hand and against ir-measures; options and their errors; means over clients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.core.errors import CoveyError
from covey.core.ragged import Ragged
from covey.evaluate.metrics import METRICS, EvaluateConfig, per_client, summarise, with_held
from covey.evaluate.ranking import nothing
from from_scores import evaluate_scores

ALL = tuple(f"{name}@{k}" for name in METRICS for k in (1, 5, 20))


def test_by_hand() -> None:
    ranks = Ragged.of([[1, 3, 7], [2], [], [4]])
    found = per_client(
        ranks, torch.tensor([3, 1, 0, 1]), (2, 3), ("recall", "ndcg", "hit", "mrr", "precision")
    )
    log = math.log2
    expected = {
        "recall@2": [1 / 3, 1, 0],
        "recall@3": [2 / 3, 1, 0],
        "ndcg@2": [1 / (1 + 1 / log(3)), 1 / log(3), 0],
        "ndcg@3": [(1 + 1 / 2) / (1 + 1 / log(3) + 1 / 2), 1 / log(3), 0],
        "hit@2": [1, 1, 0],
        "hit@3": [1, 1, 0],
        "mrr@2": [1, 1 / 2, 0],
        "mrr@3": [1, 1 / 2, 0],
        "precision@2": [1 / 2, 1 / 2, 0],
        "precision@3": [2 / 3, 1 / 3, 0],
    }
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key].dtype == torch.float64
        assert found[key][2].isnan(), "nothing held out"
        assert found[key][[0, 1, 3]].tolist() == pytest.approx(values, abs=1e-12), key


def test_the_ideal_list_is_as_long_as_the_relevant_items() -> None:
    found = per_client(Ragged.of([[1, 2]]), torch.tensor([2]), (20,), ("ndcg", "recall"))
    assert found == {"ndcg@20": torch.ones(1), "recall@20": torch.ones(1)}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), items=st.integers(2, 60), most=st.integers(1, 30))
def test_equals_ir_measures(seed: int, items: int, most: int) -> None:
    ir = pytest.importorskip("ir_measures")
    g = torch.Generator().manual_seed(seed)
    score_CI = (
        torch.rand(4, items, generator=g, dtype=torch.float64).argsort(1).double()
    )  # no ties: ours differ
    relevant = [torch.randperm(items, generator=g)[: 1 + c * most // 4].tolist() for c in range(4)]
    hidden = [sorted(set(range(0, items, 3)) - set(row)) for row in relevant]
    found = evaluate_scores(
        score_CI, Ragged.of(relevant), Ragged.of(hidden), EvaluateConfig(metrics=ALL)
    )
    qrels = {str(c): {str(i): 1 for i in row} for c, row in enumerate(relevant)}
    shown = [[i for i in range(items) if i not in row] for row in hidden]
    run = {str(c): {str(i): float(score_CI[c, i]) for i in row} for c, row in enumerate(shown)}
    theirs = {"recall": ir.R, "precision": ir.P, "ndcg": ir.nDCG, "mrr": ir.RR, "hit": ir.Success}
    measures = {theirs[name] @ k: f"{name}@{k}" for name in theirs for k in (1, 5, 20)}
    seen = 0
    for value in ir.iter_calc(list(measures), qrels, run):
        ours = float(found[measures[value.measure]][int(value.query_id)])
        assert ours == pytest.approx(value.value, abs=1e-9), value
        seen += 1
    assert seen == len(measures) * 4


def test_full_and_sampled_scores() -> None:
    score_CI = torch.tensor([[5.0, 4.0, 3.0, 2.0], [5.0, 4.0, 3.0, 2.0]])
    held, hidden, metrics = Ragged.of([[2], []]), Ragged.of([[0], [0]]), ("mrr@4",)
    full = evaluate_scores(score_CI, held, hidden, EvaluateConfig(metrics=metrics))
    kept = evaluate_scores(score_CI, held, hidden, EvaluateConfig(seen="kept", metrics=metrics))
    assert float(full["mrr@4"][0]) == pytest.approx(1 / 2)
    assert float(kept["mrr@4"][0]) == pytest.approx(1 / 3)
    assert full["mrr@4"][1].isnan()

    sampled, candidates_CL = (
        EvaluateConfig(candidates="sampled", metrics=metrics),
        torch.tensor([[3], [3]]),
    )
    items_CL = with_held(held, candidates_CL)
    assert items_CL.tolist() == [[2, 3], [0, 3]]
    by_id = evaluate_scores(score_CI, held, hidden, sampled, candidates_CL)
    direct = evaluate_scores(score_CI.gather(1, items_CL), held, hidden, sampled)
    assert float(by_id["mrr@4"][0]) == float(direct["mrr@4"][0]) == 1.0
    assert direct["mrr@4"][1].isnan()


def test_a_held_out_item_counts_once() -> None:
    found = evaluate_scores(
        torch.tensor([[3.0, 2.0, 1.0]]), Ragged.of([[1, 1, 0]]), nothing(1), EvaluateConfig()
    )
    assert found["recall@20"].tolist() == [1.0]
    assert found["ndcg@20"].tolist() == [1.0]


def test_sampled_ranks_one_item_only() -> None:
    with pytest.raises(CoveyError, match="one held-out item"):
        with_held(Ragged.of([[1, 2]]), torch.tensor([[3, 4]]))


def test_a_client_alone_is_the_same_as_in_a_cohort() -> None:
    g = torch.Generator().manual_seed(0)
    score_CI = torch.randint(0, 99, (5, 400), generator=g).float()
    held = Ragged.of([torch.randperm(400, generator=g)[: 9 * c].tolist() for c in range(5)])
    hidden = Ragged.of([torch.randperm(400, generator=g)[:50].tolist() for _ in range(5)])
    together = evaluate_scores(score_CI, held, hidden, EvaluateConfig())
    for c in range(5):
        one = torch.tensor([c])
        alone = evaluate_scores(score_CI[one], held.take(one), hidden.take(one), EvaluateConfig())
        torch.testing.assert_close(
            alone["ndcg@20"], together["ndcg@20"][one], equal_nan=True, rtol=0, atol=1e-15
        )


def test_means_leave_out_clients_with_nothing_held_out() -> None:
    values = {"hit@1": torch.tensor([1.0, math.nan, 0.0, 0.0], dtype=torch.float64)}
    assert summarise(values) == {"hit@1": pytest.approx(1 / 3)}
    assert math.isnan(summarise({"hit@1": torch.tensor([math.nan])}, torch.tensor([1]))["hit@1"])


def test_means_by_activity() -> None:
    values = {"hit@1": torch.tensor([1.0, 0.0, 0.5, 0.0, 1.0, 0.0, math.nan])}
    found = summarise(values, torch.tensor([10, 20, 30, 40, 50, 60, 999]))
    assert found == {
        "hit@1": pytest.approx(2.5 / 6),
        "hit@1/light": pytest.approx(0.5),
        "hit@1/medium": pytest.approx(0.25),
        "hit@1/heavy": pytest.approx(0.5),
    }
    equal = summarise(values, torch.full((7,), 3))
    assert equal == {"hit@1": pytest.approx(2.5 / 6), "hit@1/light": pytest.approx(2.5 / 6)}
    assert {"hit@1/group1", "hit@1/group4"} < summarise(values, torch.arange(7), groups=4).keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ("recal@20",)}, "did you mean 'recall'"),
        ({"metrics": ("NDCG@20",)}, "did you mean 'ndcg'"),
        ({"metrics": ("auc@20",)}, "it is one of 'recall', 'ndcg'"),
        ({"metrics": ("recall",)}, "such as 'recall@20'"),
        ({"metrics": ("recall@0",)}, "such as 'recall@20'"),
        ({"metrics": ()}, "is empty"),
        ({"candidates": "sample"}, "did you mean 'sampled'"),
        ({"seen": "keep"}, "did you mean 'kept'"),
        ({"select": "ndcg@2"}, "did you mean 'ndcg@20'"),
        ({"every": 0}, "1 or more"),
    ],
)
def test_impossible_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(CoveyError, match=message):
        EvaluateConfig(**options)  # type: ignore[arg-type]


def test_options() -> None:
    config = EvaluateConfig(metrics=("ndcg@10", "recall@5", "recall@10"), select="recall@10")
    assert (config.selector, config.names, config.cutoffs) == (
        "recall@10",
        ("ndcg", "recall"),
        (5, 10),
    )
    assert EvaluateConfig().selector == "recall@20"
