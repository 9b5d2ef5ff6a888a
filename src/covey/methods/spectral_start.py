"""A gradient method that starts from the spectral factors: the first rounds also sum, then the item table is set.

The sums are those of `SubspaceIteration`. What is set is the leading directions, each by the root of how
much of it passes, as wide in all as the table that was published. Where clients keep tables of their own
(CoFedRec), everybody is handed this one.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from covey.contract.ledger import Disclosure
from covey.contract.mechanism import Mechanism
from covey.contract.views import ClientView, Reads, ServerView
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.messages import Sent, Total, Upload
from covey.core.ragged import FieldDict, Fields
from covey.models.spectral import Spectral

from .spectral import SubspaceIteration

TABLES = ("items", "weight", "filter")


@dataclass(frozen=True)
class SpectralStart(Mechanism):
    name: str = "spectral start"
    exchanges: frozenset[str] = frozenset({"report"})
    reads_reports: Reads = "total"
    sums: int = 3
    width: float = 1.0  # of the table that is set, as a multiple of the one that was there
    blend: float = 0.0  # share of the one that was there: for losses of directions, to which a short row is a cliff

    def __post_init__(self) -> None:
        positive(self.name, sums=self.sums, width=self.width)
        if not 0 <= self.blend <= 1:
            raise CoveyError(f"{self.name}: blend is a share, from 0 to 1")

    def _inner(self) -> SubspaceIteration:
        return SubspaceIteration(name=self.name, sums=self.sums)

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        if "items" not in view.public:
            raise CoveyError(
                f"{self.name!r} sets the item table that all start from; this model has none"
            )
        items_ID = view.public["items"]
        model = Spectral(items_ID.shape[1])
        model.check(len(items_ID))
        return {
            k: v.to(items_ID)
            for k, v in model.public(len(items_ID), view.server_rng.fold("start")).items()
        }

    def select_reporters(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        return (
            everyone if view.round.number <= self.sums else everyone[:0]
        )  # whoever trains in these rounds

    def send(self, view: ServerView) -> Sent:
        due = view.step == "report" and view.round.number <= self.sums
        return Sent({k: view.state[k] for k in TABLES}) if due else Sent()

    def report(self, view: ClientView) -> FieldDict:
        params: Fields = {k: v[None] for k, v in view.received.shared.items()}
        model = Spectral(params["items"].shape[2])
        return self._inner().report(replace(view, params=params, model=model, received=Sent()))

    def receive_reports(
        self, view: ServerView, reports: Upload | Total
    ) -> tuple[FieldDict, Fields]:
        tables: Fields = {k: view.state[k] for k in TABLES}
        drawer, tables = self._inner().receive_reports(replace(view, public=tables), reports)
        if view.round.number < self.sums:
            return {**drawer, **tables}, {}
        factor_ID = tables["items"] * tables["filter"].sqrt()
        there_ID = view.public["items"]
        factor_ID *= self.width * there_ID.std() / factor_ID.std().clamp(min=1e-12)
        return {**drawer, **tables}, {"items": factor_ID.lerp(there_ID, self.blend)}

    def disclosures(self) -> tuple[Disclosure, ...]:
        what = "the user's vector in the rows of the user's items; in clear it names them, in a secure sum it does not"
        return (Disclosure("report", f"{self.name}/rows", what),)
