"""What a client does with a request. Written once for a cohort; a single device is C = 1."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from covey.contract.fleet import Request
from covey.contract.mechanism import Mechanism, Mechanisms, client_views, unique_names
from covey.core import Extra, FieldDict, Fields, Ragged, Rng
from covey.core.errors import CoveyError
from covey.core.fixed_point import WEIGHT
from covey.core.messages import Catalogue, Download, Sent, Total, Upload
from covey.core.ragged import below
from covey.evaluate.metrics import EvaluateConfig
from covey.mechanism import ClientView, Disclosure, Model, Objective, TrainingData
from covey.solvers import Local

from .blocks import Engine, Work
from .disclosures import IN_SUM, message_disclosures, metric_disclosures, upload_disclosures
from .ranking import HeldOut, Ranker, measure
from .training import Trained, Trainer, check_training, upload_rows

Reply = tuple[FieldDict, Upload]  # what clients keep from now on, and what leaves the devices
Summed = tuple[FieldDict, Total]


@dataclass(frozen=True)
class LocalData:
    """The data of a cohort: what clients train on, and what they hold out to measure themselves."""

    training: TrainingData
    held: HeldOut | None = None

    def take(self, pick: Tensor) -> "LocalData":
        held = None if self.held is None else self.held.take(pick)
        return LocalData(self.training.take(pick), held)

    @staticmethod
    def cat(parts: Sequence["LocalData"]) -> "LocalData":
        """Joins the data of different clients, in order."""
        training = [part.training for part in parts]
        lists = (Ragged.cat([t.items for t in training]), Ragged.cat([t.avoid for t in training]))
        held = [part.held for part in parts if part.held is not None]
        return LocalData(TrainingData(*lists), HeldOut.cat(held) if held else None)


@dataclass(frozen=True)
class Program:
    """The client half of a method.

    A program is a pure function for a cohort of C clients; the fleet holds what they keep.
    """

    model: Model
    objective: Objective
    catalogue: Catalogue
    solver: Local | None = None
    mechanisms: tuple[Mechanism, ...] = ()
    weighting: Literal["equal", "examples"] = "equal"
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    engine: Engine = field(default_factory=Engine)
    seed: int = 0  # of the parameters with which all clients start alike
    hidden: frozenset[str] = frozenset()  # steps whose answers leave in secure sums only
    reads: str = IN_SUM  # what the server reads of these

    def __post_init__(self) -> None:
        unique_names(self.mechanisms)
        if self.solver:
            check_training(self.model, self.objective, self.solver)
        if len(bases := [m.name for m in self.mechanisms if m.implements("base_model")]) > 1:
            wrong = f"a model has at most one base, here are {', '.join(bases)}"
            raise CoveyError(f"{wrong}; leave out all but one")
        for m in self.mechanisms:
            if not set(m.needs_private) <= set(self.model.kept):
                needs, has = ", ".join(m.needs_private), ", ".join(self.model.kept)
                wrong = f"{m.name} needs a model with a private {needs}, such as covey.models.mf:MF"
                own = f"{type(self.model).__name__} has {has or 'nothing private'}"
                raise CoveyError(f"{wrong}; {own}")

    @property
    def uses_device_noise(self) -> bool:
        """Whether an answer holds noise that differs if the same request is computed again."""
        return any(m.uses_device_noise for m in self.mechanisms)

    def birth(self, rng: Rng) -> FieldDict:
        """What new clients keep before their first request; whole item tables come by delivery."""
        device = rng.key_C.device
        start = Rng.server(self.seed, 0, "start").to(device)
        kept: FieldDict = dict(self.model.private(rng.home("birth"), start))
        if self.solver and self.solver.state == "kept" and self.solver.optimizer == "adam":
            for name, value in list(kept.items()):
                kept |= {f"opt/{name}/{k}": torch.zeros_like(value) for k in ("m", "v")}
                kept[f"opt/{name}/t"] = torch.zeros(len(value), dtype=torch.int64, device=device)
        return kept

    def answer(self, request: Request, kept: FieldDict, data: LocalData, rng: Rng) -> Reply:
        """Carries out a request; `kept` is what the clients keep on the devices, [C, ...] by name.

        `rng` has one stream per client, for this round, and the upload one entry per client.
        """
        ids_C, download = request.ids_C, request.download
        view = self._view(kept, data, download, rng)
        if request.step != "deliver":
            view = replace(view, params=materialised(self.mechanisms, view.params))
        upload = Upload(ids_C, torch.ones(len(ids_C), device=ids_C.device))
        match request.step:
            case "enrol" | "report" as step:
                if step == "report" and data.held is not None:
                    # To choose between models by, never to train on.
                    view = replace(view, valid=data.held.valid)
                kept, extra = self._messages(step, view, kept, download.extra)
                return kept, replace(upload, extra=extra)
            case "train":
                begun, kept = self._renewed(view, kept, download.extra)
                kept, upload = self._train(begun, kept, download.extra, upload)
                tuned = (k for k in self.model.tuned if k in self.model.shared)
                return {**kept, **{f"received/{k}": view.params[k] for k in tuned}}, upload
            case "deliver":
                return self._deliver(kept, download, len(ids_C)), upload
            case "evaluate":
                assert data.held is not None
                params = {**view.params, **below(kept, "received/")}
                ranker = Ranker.of(self.model, params, kept, rng, self.mechanisms)
                metrics = measure(ranker, data.training.items, data.held, self.evaluate)
                return kept, replace(upload, extra={"evaluate": dict(metrics)})
        raise ValueError(f"unknown step {request.step!r}")

    def can_sum(self) -> bool:
        """True if one backward pass gives the sum: one gradient step, and nothing protects it."""
        protected = any(m.implements("protect_upload") for m in self.mechanisms)
        plain = not self.model.tuned and not self.model.uploaded and self.weighting == "equal"
        return self.solver is not None and self.solver.one_gradient and plain and not protected

    def answer_total(self, request: Request, kept: FieldDict, data: LocalData, rng: Rng) -> Summed:
        """The same as `answer` for the step "train", with only the sum of the uploads."""
        ids_C, download = request.ids_C, request.download
        view, kept = self._renewed(self._view(kept, data, download, rng), kept, download.extra)
        work, out = self._trainer().summed(view, kept, download.extra)
        items = work.row_items().values
        count_I = torch.zeros(self.catalogue.n_items, device=ids_C.device)
        count_I.index_add_(0, items, torch.ones(len(items), device=ids_C.device))
        touched = {k: count_I for k in self.model.tables if k in out.sums}
        weight = torch.tensor(float(len(ids_C)), device=ids_C.device)
        return {**kept, **out.moved}, Total(ids_C, weight, out.sums, touched=touched)

    def _view(self, kept: FieldDict, data: LocalData, download: Download, rng: Rng) -> ClientView:
        """The clients with what was sent; what they keep takes precedence."""
        shared, each = download.public.shared, download.public.each
        params: Fields = {k: v[None] for k, v in shared.items() if isinstance(v, Tensor)}
        params |= {k: v for k, v in each.items() if isinstance(v, Tensor)}
        params |= {k: kept[k] for k in self.model.kept if k in kept}
        parts = self.model, self.objective, self.catalogue
        return ClientView(params, data.training, Sent(), rng, *parts)

    def _renewed(
        self, view: ClientView, kept: FieldDict, extra: Extra
    ) -> tuple[ClientView, FieldDict]:
        """The clients with the private parameters that mechanisms renew, and new moments."""
        fresh: Fields = {}
        for m, v in client_views(self.mechanisms, view, extra):
            fresh |= m.renew(v)
        moments = {k for k in kept if k.startswith("opt/") and k.split("/")[1] in fresh}
        own = {k: x for k, x in fresh.items() if k in self.model.kept}
        kept = {**kept, **own, **{k: torch.zeros_like(kept[k]) for k in moments}}
        return replace(view, params={**view.params, **fresh}), kept

    def _messages(
        self, step: str, view: ClientView, kept: FieldDict, extra: Extra
    ) -> tuple[FieldDict, dict[str, FieldDict]]:
        """What mechanisms send in "enrol" or "report", and what clients keep of it."""
        views = client_views(self.mechanisms, view, extra)
        sent = {m.name: getattr(m, step)(v) for m, v in views}
        for m in self.mechanisms if step == "report" else ():
            if m.max_reports() and sent[m.name]:
                where = f"said/{m.name}"
                kept, sent[m.name] = _repeated(kept, sent[m.name], where, m.max_reports())
        return kept, {name: fields for name, fields in sent.items() if fields}

    def _trainer(self) -> Trainer:
        if self.solver is None:
            raise CoveyError("this method has no training step")
        return Trainer(self.solver, self.mechanisms, self.engine)

    def _train(self, view: ClientView, kept: FieldDict, extra: Extra, upload: Upload) -> Reply:
        work, out = self._trainer().train(view, kept, extra)
        update: FieldDict = {k: out.moved[k] for k in self.model.shared}
        update |= {k: upload_rows(work, update[k]) for k in update if k in self.model.tables}
        model: FieldDict = {k: out.moved[k] for k in self.model.uploaded}
        upload = replace(upload, update=update, model=model)
        if self.weighting == "examples":
            upload = replace(upload, weight_C=view.data.items.lengths.to(upload.weight_C))
        for m, v in client_views(self.mechanisms, view, extra):
            upload = m.protect_upload(v, upload)
        return self._kept_after(view, kept, out, work), upload

    def _kept_after(self, view: ClientView, kept: FieldDict, out: Trained, work: Work) -> FieldDict:
        """Of tuned tables, clients keep their own update of some rows."""
        tuned = [k for k in self.model.tuned if k in self.model.shared]
        return {
            **kept,
            **{k: out.moved[k] for k in self.model.kept},
            **{f"tuned/{k}": upload_rows(work, out.moved[k]) for k in tuned},
            **{f"opt/{k}": v for k, v in out.state.items()},
        }

    def _deliver(self, kept: FieldDict, download: Download, many: int) -> FieldDict:
        """Parameters that were handed to these clients replace those that they kept."""
        mine, shared, each = self.model.kept, download.public.shared, download.public.each
        copies = {k: v.expand(many, *v.shape).clone() for k, v in shared.items() if k in mine}
        return {**kept, **copies, **{k: v for k, v in each.items() if k in mine}}

    def disclosures(self) -> tuple[Disclosure, ...]:
        """Every field that this program can put into a message."""
        found: list[Disclosure] = []
        if self.solver is not None:
            found = upload_disclosures(self.model, self.mechanisms, self.hidden)
        if self.weighting == "examples":
            what = "how many items the client has"
            found.append(Disclosure("train", "weight", what, largest=WEIGHT))
        found += metric_disclosures(self.evaluate)
        for m in self.mechanisms:
            found += message_disclosures(m, self.hidden)
        summed = {True: f"; {self.reads}", False: ""}
        return tuple(replace(d, what=d.what + summed[d.step in self.hidden]) for d in found)


def materialised(mechanisms: Mechanisms, params: Fields) -> Fields:
    """The parameters of clients, with those that mechanisms compute from them."""
    for m in mechanisms:
        params = {**params, **m.materialise(params)}
    return params


def _repeated(kept: FieldDict, new: FieldDict, where: str, most: int) -> tuple[FieldDict, ...]:
    """What clients keep and send that make `most` `new` reports and then repeat the last one."""
    one = next(iter(new.values()))
    none_C = torch.zeros(len(one), dtype=torch.int64, device=one.device)
    count_C = kept.get(f"{where}/count", none_C)
    over_C = count_C >= most
    last = {f"{where}/{k}": x for k, x in new.items()} | kept
    over = {k: over_C.view(-1, *[1] * (x.dim() - 1)) for k, x in new.items()}
    sent = {k: torch.where(over[k], last[f"{where}/{k}"], x) for k, x in new.items()}
    remembered = {f"{where}/{k}": x for k, x in sent.items()}
    return {**kept, **remembered, f"{where}/count": count_C + ~over_C}, sent
