"""Pooled GRU, SASRec and BERT4Rec: the clients' sequence models, trained in batches of users.

They minimise the cross-entropy over all items by Adam, with dropout. A batch is a cohort with one
set of weights. Shape suffixes: B = users of a batch, N = all users, P = positions, T = positions
with a target, C = users of a chunk, L = items to score per user.
"""

from dataclasses import KW_ONLY, dataclass, field, replace

import torch
from torch import Tensor

from covey.contract.model import History, Model, rows
from covey.core import Fields, Ragged, Rng, positive, share
from covey.models.bert4rec import BERT4Rec, cloze
from covey.models.catalogue import catalogue_nll
from covey.models.gru import GRU
from covey.models.lists import widths
from covey.models.sasrec import SASRec

from .common import FitRequest, Fitted, shuffled

Hide = tuple[float, float] | None  # shares for `cloze` if masked items are predicted, else None
USERS_AT_ONCE = 4096  # whose vectors are computed together


@dataclass(frozen=True)
class SequenceTraining:
    """The options that all sequence models share; a subclass returns the model to train."""

    dim: int = 64
    _: KW_ONLY
    dropout: float = 0.2
    last: int = 200  # how many of a user's newest items are used
    lr: float = 0.001
    epochs: int = 300
    batch: int = 128  # users
    decay: float = 0.0  # L2 term in Adam's gradient
    patience: int = 20  # evaluations without a new best before training stops; 0: never

    def __post_init__(self) -> None:
        positive("pooled", last=self.last - 1, lr=self.lr, epochs=self.epochs, batch=self.batch)
        positive("pooled", patience=self.patience + 1)
        self.model()  # checks the model's options

    def model(self) -> Model:
        raise NotImplementedError

    def masking(self) -> Hide:
        """None if next items are predicted."""
        return None

    def fit(self, request: FitRequest) -> Fitted:
        """Trains on next items, or on masked ones if `masking` says so; all items are negatives."""
        seed, device, hide, model = request.seed, request.device, self.masking(), self.model()
        train = request.train.to(device)
        start = model.public(request.n_items, Rng.server(seed, 0, "pooled-sequence"))
        params = {k: v[None].to(device).requires_grad_() for k, v in start.items()}

        def frozen() -> FittedSequence:
            copies = {k: v.detach().clone() for k, v in params.items()}
            return FittedSequence(model, copies, train, self.last)

        adam = torch.optim.Adam(params.values(), lr=self.lr, weight_decay=self.decay, fused=True)
        lists = History.of(train, self.last)
        some_N = (train.lengths > (0 if hide else 1)).nonzero()[:, 0]  # users with a target
        for epoch in range(1, self.epochs + 1):
            for users_B in some_N[shuffled(len(some_N), seed, epoch).to(device)].split(self.batch):
                adam.zero_grad()
                rng = Rng.of(seed, epoch, users_B)
                batch_loss(model, params, lists, users_B, rng, hide).backward()
                adam.step()
            if request.stops(epoch, frozen):
                break
        return frozen()


@dataclass(frozen=True)
class FittedSequence:
    """A trained model, and the items of each user that it ranks for."""

    model: Model
    params: Fields  # [1, ...] each
    known: Ragged  # oldest first
    last: int

    def with_history(self, known: Ragged) -> "FittedSequence":
        return replace(self, known=known.to(self.params["items"].device))

    def score(self, users_C: Tensor) -> Tensor:
        return self.model.score(self.params, self.user(users_C), self.params["items"])

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        item_CLD = rows(self.params["items"], items_CL)
        return self.model.score(self.params, self.user(users_C), item_CLD)

    def items(self) -> Tensor:
        return self.params["items"][0]

    def user(self, users_C: Tensor) -> Tensor:
        parts = []
        for some_C in users_C.split(USERS_AT_ONCE):
            history = History.of(self.known.take(some_C), self.last)
            parts.append(self.model.user(self.params, history, Rng.of(0, 0, some_C), False))
        return torch.cat(parts)


def batch_loss(
    model: Model, params: Fields, lists: History, users_B: Tensor, rng: Rng, hide: Hide
) -> Tensor:
    """Mean cross-entropy over the positions of a batch of users that have a target.

    Parameters are [1, ...], `lists` those of all users; `rng` has a stream for each of the batch.
    """

    def outputs(at: Tensor) -> tuple[Tensor, Tensor]:
        """For some users of the batch, the vectors at positions with a target, and the targets."""
        mask_BP = lists.mask_CP[users_B[at]]
        wide = int(mask_BP.sum(1).max())
        index_BP, mask_BP = lists.index_CP[users_B[at], :wide], mask_BP[:, :wide]
        own = rng.take(at)
        masked_BP = cloze(mask_BP, *hide, own) if hide else None
        u_BPD = model.user(params, History(index_BP, mask_BP, masked_BP), own, True)
        later_BP = mask_BP & (torch.arange(wide, device=mask_BP.device) > 0)
        target_BP = later_BP if masked_BP is None else masked_BP
        return u_BPD[target_BP], index_BP[target_BP]

    parts = [outputs(at) for at in by_length(lists.mask_CP[users_B].sum(1))]
    u_TD, target_T = (torch.cat(x) for x in zip(*parts, strict=True))
    return catalogue_nll(u_TD[None], params["items"], target_T[None]).mean()


def by_length(length_B: Tensor) -> list[Tensor]:
    """Groups lists of similar length to save padding; on a GPU all are one group."""
    if length_B.is_cuda:
        return [torch.arange(len(length_B), device=length_B.device)]
    wide_B = widths(length_B)
    return [(wide_B == wide).nonzero()[:, 0] for wide in wide_B.unique()]


@dataclass(frozen=True)
class PooledGRU(SequenceTraining):
    """Options of the model and its training."""

    def model(self) -> GRU:
        return GRU(dim=self.dim, last=self.last, dropout=self.dropout)


@dataclass(frozen=True)
class PooledSASRec(SequenceTraining):
    """Options of the model and its training."""

    layers: int = 2
    heads: int = 1

    def model(self) -> SASRec:
        return SASRec(self.dim, self.layers, self.heads, self.dropout, self.last)


@dataclass(frozen=True)
class PooledBERT4Rec(SequenceTraining):
    """Options of the model and its training."""

    layers: int = 2
    heads: int = 2
    hide: float = 0.2  # share of items that are masked
    end: float = 0.1  # share of lists in which only the last item is masked
    epochs: int = field(default=500, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        share("pooled", hide=self.hide, end=self.end)

    def model(self) -> BERT4Rec:
        return BERT4Rec(self.dim, self.layers, self.heads, self.dropout, self.last)

    def masking(self) -> Hide:
        return self.hide, self.end
