"""Malicious clients: they execute another program than honest ones, in every fleet."""

from dataclasses import dataclass, field, replace

import torch

from covey.attacks.own_table import as_shared, as_table, as_update, uploads_table
from covey.contract.attack import Attack, AttackView, Informed, Profiled
from covey.contract.fleet import Request
from covey.core import FieldDict, Fields, Ragged, Rng, below, cat, offsets_of, stack, take

from .program import LocalData, Program, Reply, Summed

CLAIMED = 30  # examples that attackers without a list claim, where uploads are weighted by them


@dataclass
class SharedMemory:
    """The common memory of the attackers. What one writes in a round, all read in the next one."""

    round: int = 0
    now: FieldDict = field(default_factory=dict)
    later: FieldDict = field(default_factory=dict)

    def at(self, round: int) -> FieldDict:
        if round != self.round:
            self.round, self.now = round, {**self.now, **self.later}
        return self.now

    def state(self) -> Fields:
        """Tensors for a checkpoint."""
        out = {"crew/round": torch.tensor(self.round)}
        out |= {f"crew/now/{k}": v for k, v in self.now.items()}
        return out | {f"crew/later/{k}": v for k, v in self.later.items()}

    def load(self, state: Fields) -> None:
        self.round = int(state["crew/round"])
        self.now, self.later = (below(state, f"crew/{when}/") for when in ("now", "later"))


@dataclass(frozen=True)
class Malicious:
    """What the clients from id `first` on execute."""

    honest: Program  # what they would execute without the attack
    attack: Attack
    first: int
    start: int = 1  # first round of the attack
    memory: SharedMemory = field(default_factory=SharedMemory)
    known: Ragged | None = None  # what an informed attack is given of the honest users' items

    @property
    def uses_device_noise(self) -> bool:
        return False

    def birth(self, rng: Rng) -> FieldDict:
        return self.honest.birth(rng)

    def can_sum(self) -> bool:
        return False

    def answer_total(self, request: Request, kept: FieldDict, data: LocalData, rng: Rng) -> Summed:
        raise ValueError("malicious clients answer one by one")

    def answer(self, request: Request, kept: FieldDict, data: LocalData, rng: Rng) -> Reply:
        """Lets the honest program answer, and replaces its upload by that of the attack."""
        if request.round < self.start or request.step in ("deliver", "evaluate"):
            return self.honest.answer(request, kept, data, rng)
        own_tables = uploads_table(self.honest.model)
        if own_tables and len(request.ids_C) > 1:
            return self._one_by_one(request, kept, data, rng)
        asked = request.step, request.round, request.download, data.training, request.ids_C
        parts = rng.fold(self.attack.name), self.honest.model, self.honest.catalogue
        view = AttackView(*asked, *parts, self.memory.at(request.round), kept, self.known)
        view = as_shared(view) if own_tables else view
        if isinstance(self.attack, Profiled):
            view = replace(view, data=self.attack.profile(view))
        after, upload = self.honest.answer(request, kept, replace(data, training=view.data), rng)
        upload = as_update(view, upload) if own_tables else upload
        remembered, upload = self.attack.poison(view, upload)
        self.memory.later = {**self.memory.later, **remembered}
        if self.honest.weighting == "examples":  # the server cannot check the number
            upload = replace(upload, weight_C=upload.weight_C.clamp(min=CLAIMED))
        return after, as_table(view, upload) if own_tables else upload

    def _one_by_one(self, request: Request, kept: FieldDict, data: LocalData, rng: Rng) -> Reply:
        """The answers of attackers that each hold a table of their own."""
        answers = []
        for pick in torch.arange(len(request.ids_C), device=request.ids_C.device).split(1):
            mine = {k: take(v, pick) for k, v in kept.items()}
            answers.append(self.answer(request.take(pick), mine, data.take(pick), rng.take(pick)))
        after = {k: cat([one[k] for one, _ in answers]) for k in answers[0][0]}
        return after, stack([upload for _, upload in answers])


ClientProgram = Program | Malicious  # what a device executes


def leaked(attack: Attack, lists: Ragged, seed: int) -> Ragged | None:
    """What an informed attack is given: a random share of every list, rounded up."""
    if not isinstance(attack, Informed):
        return None
    lengths = (lists.lengths * attack.leak - 1e-9).ceil().long()
    ids = torch.arange(len(lists), device=lists.values.device)
    unit = Rng.of(seed, 0, ids).fold("leaked").ragged_uniform(lists.lengths)
    order = (unit.owner + unit.values).argsort()  # shuffled inside each list
    mixed = lists.like(lists.values[order])
    return Ragged(mixed.values[mixed.place < lengths[mixed.owner]], offsets_of(lengths))
