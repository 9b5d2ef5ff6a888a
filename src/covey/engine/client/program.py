"""What a device does when asked. Written once over a cohort dimension; a phone is C = 1."""

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from covey.contract.ledger import INFINITE, Disclosure
from covey.contract.mechanism import Mechanism, client_views, unique_names
from covey.contract.model import Model
from covey.contract.objective import Objective
from covey.contract.views import ClientView, TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Download, Sent, Total, Upload
from covey.core.ragged import FieldDict, Fields
from covey.core.rng import Rng
from covey.evaluate.exposure import NAMES as EXPOSURE
from covey.evaluate.metrics import EvaluateConfig
from covey.objectives.pairs import NoObjective
from covey.solvers import Local

from .blocks import Engine, Work
from .ranking import HeldOut, Ranker, measure
from .training import Trained, Trainer, upload_rows

IN_SUM = "the server reads the sum over the round's clients only"


@dataclass(frozen=True)
class LocalData:
    training: TrainingData
    held: HeldOut | None = None

    def take(self, pick: Tensor) -> "LocalData":
        return LocalData(
            self.training.take(pick), None if self.held is None else self.held.take(pick)
        )


@dataclass(frozen=True)
class Program:
    """The client half of a method. `answer` is the only door: it returns what stays and what leaves."""

    model: Model
    objective: Objective
    catalogue: Catalogue
    solver: Local | None = None
    mechanisms: tuple[Mechanism, ...] = ()
    weighting: Literal["equal", "examples"] = "equal"
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    engine: Engine = field(default_factory=Engine)
    seed: int = 0  # of the start that all clients share
    hidden: frozenset[str] = (
        frozenset()
    )  # steps whose answers leave in secure sums only; for what is said of them

    def __post_init__(self) -> None:
        unique_names(self.mechanisms)
        if self.solver:
            _check(self.model, self.objective, self.solver)
        if len(bases := [m.name for m in self.mechanisms if m.implements("base_model")]) > 1:
            raise CoveyError(
                f"a model stands on one base, here are {', '.join(bases)}; leave out all but one"
            )
        for m in self.mechanisms:
            if not set(m.needs_private) <= set(self.model.kept):
                raise CoveyError(
                    f"{m.name} needs a model with a private {', '.join(m.needs_private)}, such as covey.models.mf:MF;"
                    f" {type(self.model).__name__} has {', '.join(self.model.kept) or 'nothing private'}"
                )

    @property
    def uses_device_noise(self) -> bool:
        return any(m.uses_device_noise for m in self.mechanisms)

    def birth(self, rng: Rng) -> FieldDict:
        """What new clients keep before they hear from the server; whole item tables come by delivery."""
        start = Rng.server(self.seed, 0, "start").to(rng.key_C.device)
        kept: FieldDict = dict(self.model.private(rng.home("birth"), start))
        if self.solver and self.solver.state == "kept" and self.solver.optimizer == "adam":
            for name in list(kept):
                kept |= {
                    f"opt/{name}/m": torch.zeros_like(kept[name]),
                    f"opt/{name}/v": torch.zeros_like(kept[name]),
                }
                kept[f"opt/{name}/t"] = torch.zeros(
                    len(kept[name]), dtype=torch.int64, device=rng.key_C.device
                )
        return kept

    def answer(
        self,
        step: str,
        kept: FieldDict,
        data: LocalData,
        download: Download,
        ids_C: Tensor,
        rng: Rng,
        round: int = 0,
    ) -> tuple[FieldDict, Upload]:
        """`round` tells nothing that an honest client uses; its randomness already depends on it."""
        view = self._view(kept, data, download, rng)
        upload = Upload(ids_C, torch.ones(len(ids_C), device=ids_C.device))
        match step:
            case "enrol" | "report":
                if step == "report" and data.held is not None:  # to choose by, never to train on
                    view = replace(view, valid=data.held.valid)
                views = client_views(self.mechanisms, view, download.extra)
                said = {
                    m.name: getattr(m, step)(v) for m, v in zip(self.mechanisms, views, strict=True)
                }
                for m in self.mechanisms if step == "report" else ():
                    if m.max_reports() and said[m.name]:
                        kept, said[m.name] = _repeated(
                            kept, said[m.name], f"said/{m.name}", m.max_reports()
                        )
                return kept, replace(
                    upload, extra={name: drawer for name, drawer in said.items() if drawer}
                )
            case "train":
                return self._train(view, kept, download, upload)
            case "deliver":
                return self._deliver(kept, download, len(ids_C)), upload
            case "evaluate":
                assert data.held is not None
                held = {
                    k.removeprefix("received/"): v
                    for k, v in kept.items()
                    if k.startswith("received/")
                }
                ranker = Ranker.of(self.model, {**view.params, **held}, kept, rng, self.mechanisms)
                figures = measure(ranker, data.training.items, data.held, self.evaluate)
                return kept, replace(upload, extra={"evaluate": dict(figures)})
        raise ValueError(f"unknown step {step!r}")

    def can_sum(self) -> bool:
        """Whether the sum of all updates can be had from one backward pass (one gradient, sealed by nobody)."""
        sealed = any(m.implements("protect_upload") for m in self.mechanisms)
        plain = not self.model.tuned and not self.model.uploaded and self.weighting == "equal"
        return self.solver is not None and self.solver.one_gradient and plain and not sealed

    def answer_total(
        self, kept: FieldDict, data: LocalData, download: Download, ids_C: Tensor, rng: Rng
    ) -> tuple[FieldDict, Total]:
        """`train` for a whole cohort, only the sum of updates leaving; equal to summing `answer`'s."""
        view = self._view(kept, data, download, rng)
        work, update, out = self._trainer().summed(view, kept, download.extra)
        items = work.row_items().values
        count_I = torch.zeros(self.catalogue.n_items, device=ids_C.device)
        count_I.index_add_(0, items, torch.ones(len(items), device=ids_C.device))
        touched = {k: count_I for k in self.model.tables if k in update}
        weight = torch.tensor(float(len(ids_C)), device=ids_C.device)
        return {**kept, **out.moved}, Total(ids_C, weight, update, touched=touched)

    def _view(self, kept: FieldDict, data: LocalData, download: Download, rng: Rng) -> ClientView:
        params: Fields = {
            k: v[None] for k, v in download.public.shared.items() if isinstance(v, Tensor)
        }
        params |= {k: v for k, v in download.public.each.items() if isinstance(v, Tensor)}
        params |= {
            k: kept[k] for k in self.model.kept if k in kept
        }  # its own, whatever else was sent
        return ClientView(
            params, data.training, Sent(), rng, self.model, self.objective, self.catalogue
        )

    def _trainer(self) -> Trainer:
        if self.solver is None:
            raise CoveyError("this method has no training step")
        return Trainer(self.solver, self.mechanisms, self.engine)

    def _train(
        self, view: ClientView, kept: FieldDict, download: Download, upload: Upload
    ) -> tuple[FieldDict, Upload]:
        work, out = self._trainer().train(view, kept, download.extra)
        rows_of = lambda name, values: (
            upload_rows(work, values) if name in self.model.tables else values
        )
        update: FieldDict = {k: rows_of(k, out.moved[k]) for k in self.model.shared}
        model: FieldDict = {k: out.moved[k] for k in self.model.uploaded}
        upload = replace(upload, update=update, model=model, weight_C=self._weight(upload, view))
        for m, v in zip(
            self.mechanisms, client_views(self.mechanisms, view, download.extra), strict=True
        ):
            upload = m.protect_upload(v, upload)
        kept = self._keep(kept, out, work)
        return kept | {f"received/{k}": view.params[k] for k in self._tuned()}, upload

    def _weight(self, upload: Upload, view: ClientView) -> Tensor:
        return (
            upload.weight_C
            if self.weighting == "equal"
            else view.data.items.lengths.to(upload.weight_C)
        )

    def _keep(self, kept: FieldDict, out: Trained, work: Work) -> FieldDict:
        moved: FieldDict = {k: out.moved[k] for k in self.model.kept}
        tuned: FieldDict = {f"tuned/{k}": upload_rows(work, out.moved[k]) for k in self._tuned()}
        return {**kept, **moved, **tuned, **{f"opt/{k}": v for k, v in out.state.items()}}

    def _tuned(self) -> tuple[str, ...]:
        """Tables whose tuned copy a client ranks with: as received, plus its own update of some rows."""
        return tuple(k for k in self.model.tuned if k in self.model.shared)

    def _deliver(self, kept: FieldDict, download: Download, many: int) -> FieldDict:
        """A model handed to these clients replaces what they kept."""
        shared = {
            k: v.expand(many, *v.shape).clone()
            for k, v in download.public.shared.items()
            if k in self.model.kept
        }
        return {
            **kept,
            **shared,
            **{k: v for k, v in download.public.each.items() if k in self.model.kept},
        }

    def disclosures(self) -> tuple[Disclosure, ...]:
        """Every field this program can put into a message."""
        clear = f"the client's own training moves it{'' if 'train' in self.hidden else '; nothing protects it'}"
        trains = self.solver is not None
        own = [
            Disclosure("train", f"update/{k}", f"update of {k}: {clear}")
            for k in self.model.shared
            if trains
        ]
        own += [
            Disclosure("train", f"model/{k}", f"the client's {k}: {clear}")
            for k in self.model.uploaded
            if trains
        ]
        for m in self.mechanisms:
            own = [
                after if after == before else _drawn(after, m)
                for before in own
                for after in m.protected_disclosures(before, self.model)
            ]
        if self.weighting == "examples":
            own.append(Disclosure("train", "weight", "how many items the client has"))
        figures = [f"{part}/{name}" for part in ("valid", "test") for name in self.evaluate.metrics]
        figures += [f"target/{item}/{name}" for item in self.evaluate.targets for name in EXPOSURE]
        own += [
            Disclosure("evaluate", f"evaluate/{k}", "how well the client is served; for the study")
            for k in figures
        ]
        every = (
            *own,
            *(
                _drawn(_as_sent(d, d.step in self.hidden), m)
                for m in self.mechanisms
                for d in m.disclosures()
            ),
        )
        return tuple(
            replace(d, what=f"{d.what}; {IN_SUM}") if d.step in self.hidden else d for d in every
        )


def _as_sent(d: Disclosure, summed: bool) -> Disclosure:
    """A promise about sums is none where each client's part can be read."""
    if not d.of_sum or summed:
        return d
    what = f"{d.what}; here it leaves in clear, without any protection: set fleet.secure"
    return Disclosure(d.step, d.name, what, of_sum=True)


def _drawn(d: Disclosure, by: Mechanism) -> Disclosure:
    """Noise that a mechanism does not say to be the device's own comes from the run's seed."""
    return replace(d, simulated=d.epsilon < INFINITE and not by.uses_device_noise)


def _repeated(
    kept: FieldDict, fresh: FieldDict, where: str, most: int
) -> tuple[FieldDict, FieldDict]:
    """What clients say that may say something new `most` times: then their last words, which they keep."""
    one = next(iter(fresh.values()))
    count_C = kept.get(
        f"{where}/count", torch.zeros(len(one), dtype=torch.int64, device=one.device)
    )
    over_C = count_C >= most
    wide = lambda x: over_C.view(-1, *[1] * (x.dim() - 1))
    last = {f"{where}/{k}": x for k, x in fresh.items()} | kept
    said = {k: torch.where(wide(x), last[f"{where}/{k}"], x) for k, x in fresh.items()}
    return {
        **kept,
        **{f"{where}/{k}": x for k, x in said.items()},
        f"{where}/count": count_C + ~over_C,
    }, said


def _check(model: Model, objective: Objective, solver: Local) -> None:
    """Says what is wrong with a training step that could not work."""
    name = type(objective).__name__
    if solver.batch and not objective.pointwise:
        raise CoveyError("this objective trains on whole lists: set solver.batch = 0")
    if isinstance(objective, NoObjective):
        raise CoveyError(
            "NoObjective trains nothing: leave out [solver], or use covey.objectives:Bce"
        )
    if model.sequential and not objective.sequential:
        raise CoveyError(
            f"{type(model).__name__} has no private user vector but reads the client's list, which {name} does not"
            " show it; use covey.objectives:NextItemSoftmax, or a model such as covey.models.mf:MF"
        )
    there = (*model.shared, *model.kept)
    for k in (*(k for phase in solver.phases for k in phase), *solver.rates, *solver.per_item):
        if k not in there:
            raise CoveyError(
                f"solver: the model has no parameter {k!r}; there are {', '.join(there)}"
            )
