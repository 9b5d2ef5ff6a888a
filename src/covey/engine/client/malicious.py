"""Malicious clients: they run another program behind the same door, in every fleet."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from covey.attacks.own_table import as_shared, as_table, as_update, uploads_table
from covey.contract.attack import Attack, AttackView, Informed, Profiled
from covey.contract.ledger import Disclosure
from covey.contract.model import Model
from covey.core.messages import Catalogue, Download, Total, Upload, stack
from covey.core.ragged import FieldDict, Fields, Ragged, cat, offsets_of, take
from covey.core.rng import Rng
from covey.evaluate.metrics import EvaluateConfig

from .blocks import Engine
from .program import LocalData, Program

CLAIMED = 30  # examples that attackers without a list of their own say they have, where uploads are weighed by them


@dataclass
class SharedMemory:
    """The attackers' memory in common. What one writes in a round, all read from the next round on."""

    round: int = 0
    now: FieldDict = field(default_factory=dict)
    later: FieldDict = field(default_factory=dict)

    def at(self, round: int) -> FieldDict:
        if round != self.round:
            self.round, self.now = round, {**self.now, **self.later}
        return self.now

    def state(self) -> Fields:
        """Tensors for a checkpoint."""
        drawers = {"now": self.now, "later": self.later}
        told = {
            f"crew/{when}/{k}": v for when, drawer in drawers.items() for k, v in drawer.items()
        }
        return {"crew/round": torch.tensor(self.round), **told}

    def load(self, state: Fields) -> None:
        self.round = int(state["crew/round"])
        self.now, self.later = (
            {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}
            for start in ("crew/now/", "crew/later/")
        )


@dataclass(frozen=True)
class Malicious:
    """The program of clients from id `first` on."""

    honest: Program
    attack: Attack
    first: int
    start: int = 1  # first round of the attack
    crew: SharedMemory = field(default_factory=SharedMemory)
    known: Ragged | None = None  # what an informed attack is given of the honest users' items

    @property
    def model(self) -> Model:
        return self.honest.model

    @property
    def catalogue(self) -> Catalogue:
        return self.honest.catalogue

    @property
    def evaluate(self) -> EvaluateConfig:
        return self.honest.evaluate

    @property
    def engine(self) -> Engine:
        return self.honest.engine

    def birth(self, rng: Rng) -> FieldDict:
        return self.honest.birth(rng)

    def can_sum(self) -> bool:
        return False

    def answer_total(
        self, kept: FieldDict, data: LocalData, download: Download, ids_C: Tensor, rng: Rng
    ) -> tuple[FieldDict, Total]:
        raise ValueError("malicious clients answer one by one")

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
        if round < self.start or step in ("deliver", "evaluate"):
            return self.honest.answer(step, kept, data, download, ids_C, rng)
        own_tables = uploads_table(self.model)
        if own_tables and len(ids_C) > 1:
            return self._one_by_one(step, kept, data, download, ids_C, rng, round)
        memory, own = self.crew.at(round), rng.fold(self.attack.name)
        view = AttackView(
            step,
            round,
            download,
            data.training,
            ids_C,
            own,
            self.model,
            self.catalogue,
            memory,
            kept,
            self.known,
        )
        view = as_shared(view) if own_tables else view
        if isinstance(self.attack, Profiled):
            view = replace(view, data=self.attack.profile(view))
        after, upload = self.honest.answer(
            step, kept, replace(data, training=view.data), download, ids_C, rng
        )
        said, upload = self.attack.poison(view, as_update(view, upload) if own_tables else upload)
        self.crew.later = {**self.crew.later, **said}
        if self.honest.weighting == "examples":  # nobody can check it
            upload = replace(upload, weight_C=upload.weight_C.clamp(min=CLAIMED))
        return after, as_table(view, upload) if own_tables else upload

    def _one_by_one(
        self,
        step: str,
        kept: FieldDict,
        data: LocalData,
        download: Download,
        ids_C: Tensor,
        rng: Rng,
        round: int,
    ) -> tuple[FieldDict, Upload]:
        """Attackers that hold tables of their own, each another one."""
        parts = torch.arange(len(ids_C), device=ids_C.device).split(1)
        mine = [
            ({k: take(v, c) for k, v in kept.items()}, data.take(c), download.take(c))
            for c in parts
        ]
        answers = [
            self.answer(step, *one, ids_C[c], rng.take(c), round)
            for c, one in zip(parts, mine, strict=True)
        ]
        after = {k: cat([one[k] for one, _ in answers]) for k in answers[0][0]}
        return after, stack([upload for _, upload in answers])

    def disclosures(self) -> tuple[Disclosure, ...]:
        return self.honest.disclosures()


def leaked(attack: Attack, lists: Ragged, seed: int) -> Ragged | None:
    """What an informed attack is given: a share of every list, rounded up, at random."""
    if not isinstance(attack, Informed):
        return None
    lengths = (lists.lengths * attack.leak - 1e-9).ceil().long()
    ids = torch.arange(len(lists), device=lists.values.device)
    unit = Rng.of(seed, 0, ids).fold("leaked").ragged_uniform(lists.lengths)
    order = (unit.owner + unit.values).argsort()  # shuffled inside each list
    mixed = lists.like(lists.values[order])
    return Ragged(mixed.values[mixed.place < lengths[mixed.owner]], offsets_of(lengths))
