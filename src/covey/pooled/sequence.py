"""GRU, SASRec and BERT4Rec on everybody's data: the models of the clients, trained in batches of users.

Cross-entropy over all items, by Adam, with dropout; the epoch with the best validation counts. A batch is
a cohort with one set of weights. Shape suffixes: B = users of a batch, N = all users, P = positions, T =
positions that are learnt from, C = users of a chunk, L = items to score per user.
"""

from dataclasses import KW_ONLY, dataclass, field, replace

import torch
from torch import Tensor

from covey.contract.model import History, Model, rows
from covey.core.checks import positive, share
from covey.core.ragged import Fields, Ragged
from covey.core.rng import Rng
from covey.models.bert4rec import BERT4Rec, cloze
from covey.models.catalogue import catalogue_nll
from covey.models.gru import GRU
from covey.models.lists import widths
from covey.models.sasrec import SASRec

from .common import FitRequest, Fitted, shuffled

AT_ONCE = 4096  # users whose vectors are computed together


@dataclass(frozen=True)
class SequenceTraining:
    """The options that all models of lists share: the width of their vectors, and how they train.

    A subclass says with `model` what is trained.
    """

    dim: int = 64
    _: KW_ONLY
    dropout: float = 0.2
    last: int = 200  # newest items of a list
    lr: float = 0.001
    epochs: int = 300
    batch: int = 128  # users
    decay: float = 0.0  # L2 term in Adam's gradient
    patience: int = 20  # evaluations without a new best before training stops; 0: never

    def __post_init__(self) -> None:
        positive("pooled", last=self.last - 1, lr=self.lr, epochs=self.epochs, batch=self.batch)
        positive("pooled", patience=self.patience + 1)
        self.model()  # checks its own options

    def model(self) -> Model:
        raise NotImplementedError

    def hiding(self) -> tuple[float, float] | None:
        """Where hidden items are learnt, the shares that `cloze` takes; None where next ones are."""
        return None

    def fit(self, request: FitRequest) -> Fitted:
        """Train on lists. All items are negatives, so `request.avoid` has no effect."""
        return train_sequences(self, self.model(), request)


@dataclass(frozen=True)
class FittedSequence:
    """The parameters, leading 1 each, and what is known of each user, oldest first."""

    model: Model
    params: Fields
    known: Ragged
    last: int

    def knowing(self, known: Ragged) -> "FittedSequence":
        """The same model for users of whom something else is known."""
        return replace(self, known=known.to(self.params["items"].device))

    def score(self, users_C: Tensor) -> Tensor:
        """Scores of all items, [C, I]."""
        return self.model.score(self.params, self.user(users_C), self.params["items"])

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        """Scores of some items of each user, [C, L]."""
        return self.model.score(
            self.params, self.user(users_C), rows(self.params["items"], items_CL)
        )

    def items(self) -> Tensor:
        """Item vectors, [I, D]."""
        return self.params["items"][0]

    def user(self, users_C: Tensor) -> Tensor:
        """User vectors, [C, D]."""
        parts = []
        for some_C in users_C.split(AT_ONCE):
            history = History.of(self.known.take(some_C), self.last)
            parts.append(self.model.user(self.params, history, Rng.of(0, 0, some_C), False))
        return torch.cat(parts)


def train_sequences(options: SequenceTraining, model: Model, request: FitRequest) -> Fitted:
    """Each next item from those before it; where `options.hiding()` says so, hidden ones from the others."""
    seed, device, hide = request.seed, request.device, options.hiding()
    train = request.train.to(device)
    start = model.public(request.n_items, Rng.server(seed, 0, "pooled-sequence"))
    params = {k: v[None].to(device).requires_grad_() for k, v in start.items()}

    def frozen() -> FittedSequence:
        copies = {k: v.detach().clone() for k, v in params.items()}
        return FittedSequence(model, copies, train, options.last)

    optimiser = torch.optim.Adam(
        params.values(), lr=options.lr, weight_decay=options.decay, fused=True
    )
    lists = History.of(train, options.last)
    some_N = (train.lengths > (0 if hide else 1)).nonzero()[:, 0]  # with something to learn from
    for epoch in range(1, options.epochs + 1):
        for users_B in some_N[shuffled(len(some_N), seed, epoch).to(device)].split(options.batch):
            optimiser.zero_grad()
            batch_loss(model, params, lists, users_B, Rng.of(seed, epoch, users_B), hide).backward()
            optimiser.step()
        if request.stops(epoch, frozen):
            break
    return frozen()


def batch_loss(
    model: Model,
    params: Fields,
    lists: History,
    users_B: Tensor,
    rng: Rng,
    hide: tuple[float, float] | None,
) -> Tensor:
    """Mean cross-entropy over the positions of a batch that are learnt from."""
    length_B = lists.mask_CP[users_B].sum(1)
    parts = [
        learnt(model, params, lists, users_B[at], rng.take(at), hide) for at in alike(length_B)
    ]
    u_TD, target_T = (torch.cat(x) for x in zip(*parts, strict=True))
    return catalogue_nll(u_TD[None], params["items"], target_T[None]).mean()


def alike(length_B: Tensor) -> list[Tensor]:
    """Places of lists of like length: most are short, and padding is work. A GPU would rather start once."""
    if length_B.is_cuda:
        return [torch.arange(len(length_B), device=length_B.device)]
    wide_B = widths(length_B)
    return [(wide_B == wide).nonzero()[:, 0] for wide in wide_B.unique()]


def learnt(
    model: Model,
    params: Fields,
    lists: History,
    users_B: Tensor,
    rng: Rng,
    hide: tuple[float, float] | None,
) -> tuple[Tensor, Tensor]:
    """User vectors at the positions that are learnt from, [T, D], and the items there, [T]."""
    mask_BP = lists.mask_CP[users_B]
    wide = int(mask_BP.sum(1).max())
    index_BP, mask_BP = lists.index_CP[users_B, :wide], mask_BP[:, :wide]
    hidden_BP = cloze(mask_BP, *hide, rng) if hide else None
    u_BPD = model.user(params, History(index_BP, mask_BP, hidden_BP), rng, True)
    learnt_BP = (
        mask_BP & (torch.arange(wide, device=mask_BP.device) > 0)
        if hidden_BP is None
        else hidden_BP
    )
    return u_BPD[learnt_BP], index_BP[learnt_BP]


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
    hide: float = 0.2  # share of items that are hidden
    end: float = 0.1  # share of lists of which only the last item is hidden
    epochs: int = field(default=500, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        share("pooled", hide=self.hide, end=self.end)

    def model(self) -> BERT4Rec:
        return BERT4Rec(self.dim, self.layers, self.heads, self.dropout, self.last)

    def hiding(self) -> tuple[float, float] | None:
        return self.hide, self.end
