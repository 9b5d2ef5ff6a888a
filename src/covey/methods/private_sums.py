"""Sums over clients with user-level differential privacy: subspace iteration, and popularity by a noisy count.

A client's part of a sum has norm 1 at most; the clients add Gaussian noise in shares, so that the sum is
private and no share needs to be. A series of such sums is one Gaussian mechanism (Dong, Roth and Su, 2019,
Corollary 3.3), whose epsilon is exact (Balle and Wang, 2018, Theorem 8). Add-or-remove one user; how
many take part is public. The guarantee is that of the sum: it needs secure sums.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from covey.contract.accountant import gaussian_epsilon, gaussian_multiplier
from covey.contract.ledger import Disclosure
from covey.contract.mechanism import Mechanism
from covey.contract.views import ClientView, Reads, ServerView
from covey.core.checks import among_choices, positive, share
from covey.core.errors import CoveyError
from covey.core.messages import Sent, Total, Upload
from covey.core.ragged import FieldDict, Fields, Rows
from covey.evaluate.ranking import distinct
from covey.models.spectral import Spectral

Noise = Literal["shares", "summed"]
AT_ONCE = 1 << 22  # numbers of noise
LARGEST = 500.0  # epsilon; beyond it the arithmetic ends, and so does any meaning


@dataclass(frozen=True)
class PrivateSubspace(Mechanism):
    """A'A Q with every a_u of length 1, and noise; the directions shrunk by what noise alone would give."""

    name: str = "spectral"
    exchanges: frozenset[str] = frozenset({"report"})
    reads_reports: Reads = "total"
    whole_table: bool = True  # for the memory plan: a share of noise fills the whole table
    sums: int = 2
    epsilon: float = 8.0  # of a user over all sums
    delta: float = 1e-5
    shrink: float = 0.25  # by how much of the largest value that noise alone gives
    strength: float = 0.0  # and by how much of the mean value, where the lists themselves are noisy
    lost: float = 0.5  # share of the clients that may drop out without harm to the guarantee
    noise: Noise = "shares"  # or drawn once where the sum is: the same in law where nobody is lost, for studies

    def __post_init__(self) -> None:
        among_choices(self.name, self)
        positive(self.name, sums=self.sums, epsilon=self.epsilon, delta=self.delta)
        share(self.name, lost=self.lost, delta=self.delta)
        if min(self.shrink, self.strength) < 0:
            raise CoveyError(
                f"{self.name}: shrink = {self.shrink:g}, strength = {self.strength:g}; both are 0 or more"
            )
        if self.epsilon > LARGEST:
            raise CoveyError(
                f"{self.name}: epsilon = {self.epsilon:g} protects nothing; use at most {LARGEST:g}"
            )

    @property
    def sigma(self) -> float:
        """Standard deviation that the noise of each sum needs, to which a client adds 1 at most."""
        return math.sqrt(self.sums) * gaussian_multiplier(self.epsilon, self.delta)

    @property
    def spread(self) -> float:
        """Standard deviation that it has where nobody is lost: the reserve for those who are comes on top."""
        return self.sigma / math.sqrt(1 - self.lost)

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        if not isinstance(view.model, Spectral):
            raise CoveyError(
                f"{self.name!r} fits covey.models.spectral:Spectral alone; set [model] use to that"
            )
        view.model.check(view.catalogue.n_items)
        return {}

    def select_reporters(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        return None if view.round.number <= self.sums else everyone[:0]  # the budget is spent

    def send(self, view: ServerView) -> Sent:
        if view.step != "report":
            return Sent()
        basis_ID = (
            torch.linalg.qr(view.public["items"]).Q
            if view.round.number == 1
            else view.public["items"]
        )
        return Sent({"basis": basis_ID, "clients": torch.tensor(len(view.round.ids_C))})

    def report(self, view: ClientView) -> FieldDict:
        items, basis_ID = distinct(view.data.items), view.received.shared["basis"]
        n_C = items.lengths.clamp(min=1).to(basis_ID)
        u_CD = basis_ID.new_zeros(len(items), basis_ID.shape[1])
        u_CD = (
            u_CD.index_add(0, items.owner, basis_ID[items.values]) / n_C.sqrt()[:, None]
        )  # a_u' Q
        u_CD = u_CD / u_CD.norm(dim=1, keepdim=True).clamp(min=1)  # whatever basis was sent
        row_TD = (u_CD / n_C.sqrt()[:, None]).repeat_interleave(items.lengths, 0)
        return {"sum": self._noised(view, Rows(items, row_TD, view.catalogue.n_items))}

    def _noised(self, view: ClientView, rows: Rows) -> Rows | Tensor:
        if self.noise == "summed":
            return rows
        at_least = max(1.0, float(view.received.shared["clients"]) * (1 - self.lost))
        part_CID, rng = rows.dense(), view.rng.fold("noise")
        for pick in torch.arange(len(rows), device=part_CID.device).split(
            max(1, AT_ONCE // part_CID[0].numel())
        ):
            noise_CID = rng.take(pick).normal(*part_CID.shape[1:], dtype=part_CID.dtype)
            part_CID[pick] += noise_CID * (self.sigma / math.sqrt(at_least))
        return part_CID

    def receive_reports(
        self, view: ServerView, reports: Upload | Total
    ) -> tuple[FieldDict, Fields]:
        assert isinstance(reports, Total)
        z_ID = self._sum(view, reports).double()
        I, D = z_ID.shape
        basis_ID, value_D, _ = torch.linalg.svd(z_ID, full_matrices=False)
        noise = self.spread * (
            math.sqrt(I) + math.sqrt(D)
        )  # about the largest value of noise alone
        damp = self.shrink * noise + self.strength * value_D.mean()
        filter_D = value_D / (value_D + damp).clamp(min=torch.finfo(value_D.dtype).tiny)
        fields = {"items": basis_ID, "weight": torch.ones(I), "filter": filter_D}
        return view.state, {k: v.to(view.public[k]) for k, v in fields.items()}

    def _sum(self, view: ServerView, reports: Total) -> Tensor:
        sum_ID: Tensor = reports.extra[self.name]["sum"]
        if self.noise == "shares":
            return sum_ID
        return (
            sum_ID
            + view.server_rng.to(sum_ID.device).normal(*sum_ID.shape, dtype=sum_ID.dtype)[0]
            * self.spread
        )

    def disclosures(self) -> tuple[Disclosure, ...]:
        rows = "the user's vector in the rows of the user's items"
        if self.noise == "summed":  # whoever adds the noise has seen the sum without it
            what = f"{rows}; noise is added to the sum by the simulation, to study what it costs: no protection"
            return (Disclosure("report", f"{self.name}/sum", what),)
        what = (
            f"{rows}, and a share of noise, simulated from the run's seed; all {self.sums} sums together"
            f" are ({self.epsilon:g}, {self.delta:g})-private for a user, where only the sums are seen"
        )
        each = (
            self.delta / self.sums
        )  # one sum alone; the accountant puts them together by their noise
        alone = Disclosure(
            "report", f"{self.name}/sum", what, gaussian_epsilon(each, self.sigma), delta=each
        )
        return (replace(alone, releases=self.sums, multiplier=self.sigma, of_sum=True),)


@dataclass(frozen=True)
class PrivateCount(PrivateSubspace):
    """Popularity: one sum of everybody's list, each of length 1, with noise. The model has rank 1."""

    name: str = "count"
    sums: int = 1

    def report(self, view: ClientView) -> FieldDict:
        items = distinct(view.data.items)
        n_C = items.lengths.clamp(min=1).to(view.params["items"])
        row_T1 = n_C.rsqrt().repeat_interleave(items.lengths)[:, None]
        return {"sum": self._noised(view, Rows(items, row_T1, view.catalogue.n_items))}

    def receive_reports(
        self, view: ServerView, reports: Upload | Total
    ) -> tuple[FieldDict, Fields]:
        assert isinstance(reports, Total)
        count_I1 = self._sum(view, reports)
        ones = {k: torch.ones_like(view.public[k]) for k in ("weight", "filter")}
        over_I1 = (
            count_I1 - count_I1.min() + 1
        )  # every list has a vector over 0, so all are ranked alike
        return view.state, {"items": over_I1.expand_as(view.public["items"]).clone(), **ones}
