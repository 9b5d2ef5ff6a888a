"""Starts a gradient method from the spectral factors.

The first rounds also compute the sums of `SubspaceIteration`; then the item table is set to the
leading directions, each times the root of its gain, scaled to the standard deviation of the
published table. If clients keep personal tables (CoFedRec), all of them receive this one.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from covey.core import Answers, CoveyError, FieldDict, Fields, Sent, Upload, positive
from covey.mechanism import ClientView, Disclosure, Mechanism, Reads, ServerView
from covey.models.spectral import Spectral

from .spectral import TABLES, SubspaceIteration, rows_disclosure


@dataclass(frozen=True)
class SpectralStart(Mechanism):
    """Sets the item table after `sums` rounds."""

    name: str = "spectral start"
    exchanges: frozenset[str] = frozenset({"report"})
    reads_reports: Reads = "total"
    sums: int = 3
    width: float = 1.0  # of the table that is set, as a multiple of the table before
    blend: float = 0.0  # share of the table before; losses of cosines are steep at short rows

    def __post_init__(self) -> None:
        positive(self.name, sums=self.sums, width=self.width)
        if not 0 <= self.blend <= 1:
            raise CoveyError(f"{self.name}: blend is a share, from 0 to 1")

    def _inner(self) -> SubspaceIteration:
        return SubspaceIteration(name=self.name, sums=self.sums)

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        if "items" not in view.public:
            wrong = f"{self.name!r} sets the item table that all start from; this model has none"
            raise CoveyError(wrong)
        items_ID = view.public["items"]
        model = Spectral(items_ID.shape[1])
        model.check(len(items_ID))
        tables = model.public(len(items_ID), view.server_rng.fold("start"))
        return {k: v.to(items_ID) for k, v in tables.items()}

    def select_reporters(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        """All clients, whichever of them train in these rounds."""
        return everyone if view.round.number <= self.sums else everyone[:0]

    def send(self, view: ServerView) -> Sent:
        due = view.step == "report" and view.round.number <= self.sums
        return Sent({k: view.state[k] for k in TABLES}) if due else Sent()

    def report(self, view: ClientView) -> FieldDict:
        params: Fields = {k: v[None] for k, v in view.received.shared.items()}
        model = Spectral(params["items"].shape[2])
        return self._inner().report(replace(view, params=params, model=model, received=Sent()))

    def receive_reports(self, view: ServerView, reports: Answers) -> tuple[FieldDict, Fields]:
        tables: Fields = {k: view.state[k] for k in TABLES}
        state, tables = self._inner().receive_reports(replace(view, public=tables), reports)
        if view.round.number < self.sums:
            return {**state, **tables}, {}
        factor_ID = tables["items"] * tables["filter"].sqrt()
        before_ID = view.public["items"]
        factor_ID *= self.width * before_ID.std() / factor_ID.std().clamp(min=1e-12)
        return {**state, **tables}, {"items": factor_ID.lerp(before_ID, self.blend)}

    def disclosures(self) -> tuple[Disclosure, ...]:
        return (rows_disclosure(self.name),)
