"""Subspace iteration and popularity by sums over clients with user-level differential privacy.

A client's summand has a norm of at most 1. Each client adds a share of the Gaussian noise, so the
guarantee is that of the sum and needs secure sums. A series of sums is one Gaussian mechanism
(Dong, Roth and Su, 2019, Corollary 3.3), whose epsilon is exact (Balle and Wang, 2018, Theorem 8).
Neighbours differ by one user; how many take part is public.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from covey.contract.accountant import gaussian_epsilon, gaussian_multiplier
from covey.core import Answers, FieldDict, Fields, Rows, Sent, Total, Upload
from covey.core.checks import among_choices, positive, share
from covey.core.errors import CoveyError
from covey.evaluate.ranking import distinct
from covey.mechanism import ClientView, Disclosure, Mechanism, Reads, ServerView

from .spectral import check_spectral

Noise = Literal["shares", "summed"]
AT_ONCE = 1 << 22  # numbers of noise
LARGEST = 500.0  # epsilon; beyond it the accountant's arithmetic overflows


@dataclass(frozen=True)
class PrivateSubspace(Mechanism):
    """A'A Q with every a_u of length 1, and noise, whose largest value shrinks the directions."""

    name: str = "spectral"
    exchanges: frozenset[str] = frozenset({"report"})
    reads_reports: Reads = "total"
    whole_table: bool = True  # for the memory plan: a share of noise fills the whole table
    sums: int = 2
    epsilon: float = 8.0  # of a user over all sums
    delta: float = 1e-5
    shrink: float = 0.25  # in units of the largest value that noise alone gives
    strength: float = 0.0  # further shrinking, in units of the mean value, for noisy lists
    lost: float = 0.5  # share of the clients that may drop out without harm to the guarantee
    noise: Noise = "shares"  # or "summed": drawn once for the sum, without drop-out, for studies

    def __post_init__(self) -> None:
        among_choices(self.name, self)
        positive(self.name, sums=self.sums, epsilon=self.epsilon, delta=self.delta)
        share(self.name, lost=self.lost, delta=self.delta)
        if min(self.shrink, self.strength) < 0:
            wrong = f"{self.name}: shrink = {self.shrink:g}, strength = {self.strength:g}"
            raise CoveyError(f"{wrong}; both are 0 or more")
        if self.epsilon > LARGEST:
            wrong = f"{self.name}: epsilon = {self.epsilon:g} protects nothing"
            raise CoveyError(f"{wrong}; use at most {LARGEST:g}")

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise that each sum needs for the guarantee."""
        return math.sqrt(self.sums) * gaussian_multiplier(self.epsilon, self.delta)

    @property
    def spread(self) -> float:
        """The standard deviation without drop-out, which includes the reserve for drop-out."""
        return self.sigma / math.sqrt(1 - self.lost)

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        check_spectral(self.name, view)
        return {}

    def select_reporters(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        return None if view.round.number <= self.sums else everyone[:0]  # the budget is spent

    def send(self, view: ServerView) -> Sent:
        if view.step != "report":
            return Sent()
        basis_ID = view.public["items"]
        if view.round.number == 1:
            basis_ID = torch.linalg.qr(basis_ID).Q
        return Sent({"basis": basis_ID, "clients": torch.tensor(len(view.round.ids_C))})

    def report(self, view: ClientView) -> FieldDict:
        items, basis_ID = distinct(view.data.items), view.received.shared["basis"]
        n_C = items.lengths.clamp(min=1).to(basis_ID)
        u_CD = basis_ID.new_zeros(len(items), basis_ID.shape[1])
        u_CD = u_CD.index_add(0, items.owner, basis_ID[items.values])
        u_CD = u_CD / n_C.sqrt()[:, None]  # a_u' Q
        u_CD = u_CD / u_CD.norm(dim=1, keepdim=True).clamp(min=1)  # whatever basis was sent
        row_TD = (u_CD / n_C.sqrt()[:, None]).repeat_interleave(items.lengths, 0)
        return {"sum": self._noised(view, Rows(items, row_TD, view.catalogue.n_items))}

    def _noised(self, view: ClientView, rows: Rows) -> Rows | Tensor:
        if self.noise == "summed":
            return rows
        at_least = max(1.0, float(view.received.shared["clients"]) * (1 - self.lost))
        sum_CID, rng = rows.dense(), view.rng.fold("noise")
        many = max(1, AT_ONCE // sum_CID[0].numel())
        for pick in torch.arange(len(rows), device=sum_CID.device).split(many):
            noise_CID = rng.take(pick).normal(*sum_CID.shape[1:], dtype=sum_CID.dtype)
            sum_CID[pick] += noise_CID * (self.sigma / math.sqrt(at_least))
        return sum_CID

    def receive_reports(self, view: ServerView, reports: Answers) -> tuple[FieldDict, Fields]:
        assert isinstance(reports, Total)
        z_ID = self._sum(view, reports).double()
        I, D = z_ID.shape
        basis_ID, value_D, _ = torch.linalg.svd(z_ID, full_matrices=False)
        noise = self.spread * (math.sqrt(I) + math.sqrt(D))  # about noise's largest value
        damp = self.shrink * noise + self.strength * value_D.mean()
        filter_D = value_D / (value_D + damp).clamp(min=torch.finfo(value_D.dtype).tiny)
        fields = {"items": basis_ID, "weight": torch.ones(I), "filter": filter_D}
        return view.state, {k: v.to(view.public[k]) for k, v in fields.items()}

    def _sum(self, view: ServerView, reports: Total) -> Tensor:
        sum_ID: Tensor = reports.extra[self.name]["sum"]
        if self.noise == "shares":
            return sum_ID
        rng = view.server_rng.to(sum_ID.device)
        return sum_ID + rng.normal(*sum_ID.shape, dtype=sum_ID.dtype)[0] * self.spread

    def disclosures(self) -> tuple[Disclosure, ...]:
        rows = "the user's vector in the rows of the user's items"
        if self.noise == "summed":  # whoever adds the noise has seen the sum without it
            how = "noise is added to the sum by the simulation, to study what it costs"
            return (Disclosure("report", f"{self.name}/sum", f"{rows}; {how}: no protection"),)
        private = f"({self.epsilon:g}, {self.delta:g})-private for a user"
        what = f"{rows}, and a share of noise, simulated from the run's seed; all {self.sums} sums"
        what += f" together are {private}, where only the sums are seen"
        each = self.delta / self.sums  # of one sum; the accountant composes them by their noise
        epsilon = gaussian_epsilon(each, self.sigma)
        alone = Disclosure("report", f"{self.name}/sum", what, epsilon, delta=each)
        return (replace(alone, releases=self.sums, multiplier=self.sigma, of_sum=True),)


@dataclass(frozen=True)
class PrivateCount(PrivateSubspace):
    """Popularity: one sum of all lists, each of length 1, with noise. The model has rank 1."""

    name: str = "count"
    sums: int = 1

    def report(self, view: ClientView) -> FieldDict:
        items = distinct(view.data.items)
        n_C = items.lengths.clamp(min=1).to(view.params["items"])
        row_T1 = n_C.rsqrt().repeat_interleave(items.lengths)[:, None]
        return {"sum": self._noised(view, Rows(items, row_T1, view.catalogue.n_items))}

    def receive_reports(self, view: ServerView, reports: Answers) -> tuple[FieldDict, Fields]:
        assert isinstance(reports, Total)
        count_I1 = self._sum(view, reports)
        ones = {k: torch.ones_like(view.public[k]) for k in ("weight", "filter")}
        over_I1 = count_I1 - count_I1.min() + 1  # over 0, so that all users get the same ranking
        return view.state, {"items": over_I1.expand_as(view.public["items"]).clone(), **ones}
