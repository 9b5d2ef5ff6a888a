"""Metrics from a whole matrix of scores: what the rankings of the product are compared with."""

from torch import Tensor

from covey.core.ragged import Ragged
from covey.evaluate.metrics import EvaluateConfig, measure, with_held
from covey.evaluate.ranking import distinct, nothing, ranks_full, ranks_sampled


def evaluate_scores(
    score: Tensor,
    held: Ragged,
    hidden: Ragged,
    config: EvaluateConfig,
    candidates_CL: Tensor | None = None,
) -> dict[str, Tensor]:
    """The configured metrics of each client of a chunk, [C] each, from its scores.

    Full ranking: `score` is [C, I]. `hidden` are the client's train items in validation, and its
    train and validation items in the test, for leave-one-out and ratio splits alike (a ratio split
    without a validation part then ranks all items not in train); ignored where seen items are kept.
    Sampled: `score` is [C, L], held-out item first (see `with_held`), or [C, I] with the ids of the
    other candidates in `candidates_CL`.
    """
    held = distinct(held)
    if config.candidates == "sampled":
        score_CL = (
            score if candidates_CL is None else score.gather(1, with_held(held, candidates_CL))
        )
        ranks = held.like(ranks_sampled(score_CL)[held.lengths > 0])
    else:
        hidden = hidden if config.seen == "filtered" else nothing(len(held), score.device)
        ranks = ranks_full(score, held, hidden, config.cutoffs[-1])
    return measure(ranks, held.lengths, config)
