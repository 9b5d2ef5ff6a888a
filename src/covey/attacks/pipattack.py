"""PipAttack (Zhang et al., Poisoning Federated Recommender Systems for Manipulating Item Promotion, WSDM 2022).

From its abstract and from descriptions by others. An attacker raises its targets' scores for its own user,
and moves their rows to where a classifier takes them for popular items. K = targets, H = hidden units.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.attack import AttackView
from covey.contract.views import TrainingData
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.messages import Upload
from covey.core.ragged import FieldDict, Fields, Rows
from covey.core.rng import Rng

from .base import chosen, has_users, popularity
from .crafting import alike, one_step, ratings
from .fitting import adam
from .profiles import random_list

HEAD, TORSO = 0.1, 0.45  # shares of the catalogue: the most popular, and those with them


@dataclass(frozen=True)
class PipAttack:
    """Uploads one gradient step: the rows of the targets and the shared layers."""

    targets: tuple[int, ...] = (0,)
    align: float = 60.0  # a: weight of the popularity loss
    near: float = (
        0.0  # b: how much the update is drawn to that of an honest client with random items
    )
    steps: int = 1  # of Adam for the classifier, each round
    fit_rate: float = 0.001
    items: int = 30  # of the random list
    rate: float = 0.001  # of the upload
    name: str = "pipattack"
    knowledge: str = "how popular each item is"

    def __post_init__(self) -> None:
        positive(self.name, items=self.items)
        if not self.near >= 0:
            raise CoveyError(f"{self.name}: near = {self.near}; it is a weight, 0 or more")

    def profile(self, view: AttackView) -> TrainingData:
        """Random items: the honest update that the attacker knows, and a user vector of its own."""
        target_K = chosen(view, self.name, self.targets)
        return random_list(view, self.items, target_K)

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        if view.step != "train":
            return {}, upload
        has_users(view, "PipAttack")
        target_K = chosen(view, self.name, self.targets)
        net = self.classifier(view, target_K)
        w_CD = view.kept["user"]

        def loss(leaves: Fields) -> Tensor:
            raise_C = F.softplus(-ratings(view, leaves, w_CD[:, None])).sum((1, 2))  # L_exp
            popular_CK = -classes(net, leaves["items"]).log_softmax(-1)[..., 0]  # L_pop
            return raise_C + self.align * popular_CK.sum(1)

        made = one_step(view, upload, alike(target_K, len(view.ids_C)), loss, self.rate)
        return dict(net), self._near(made, upload)

    def classifier(self, view: AttackView, target_K: Tensor) -> Fields:
        """Popularity classes from item rows, trained on from round to round; the targets are left out."""
        table_ID, popular_I = view.download.public.shared["items"], popularity(view, self.name)
        place_I = popular_I.argsort(descending=True, stable=True).argsort()
        label_I = (place_I >= HEAD * len(place_I)).long() + (place_I >= TORSO * len(place_I)).long()
        keep_I = torch.ones_like(label_I, dtype=torch.bool).index_fill(0, target_K, False)
        start = _net(table_ID, Rng.server(0, 0, self.name).to(table_ID.device))
        net = {k: view.memory.get(k, v) for k, v in start.items()}

        def loss(x: Fields) -> Tensor:
            return F.cross_entropy(classes(x, table_ID[keep_I]), label_I[keep_I])

        return adam(net, loss, self.steps, self.fit_rate, view.memory)

    def _near(self, made: Upload, honest: Upload) -> Upload:
        """The least of |x - made|^2 + near |x - honest|^2: in the rows that it sends, and in the layers."""
        if not self.near:
            return made
        update: FieldDict = {}
        for name, value in made.update.items():
            if isinstance(value, Rows):  # the honest client has no row of a target, or one near 0
                update[name] = replace(value, values=value.values / (1 + self.near))
            else:
                update[name] = (value + self.near * honest.update[name]) / (1 + self.near)
        return replace(made, update=update)


def classes(net: Fields, v: Tensor) -> Tensor:
    """Logits of the classes, the most popular first: an MLP of 16 and 8 units."""
    for k in range(2):
        v = (v @ net[f"w{k}"] + net[f"b{k}"]).relu()
    return v @ net["w2"] + net["b2"]


def _net(table_ID: Tensor, rng: Rng) -> Fields:
    shapes = list(pairwise((table_ID.shape[1], 16, 8, 3)))
    w = {
        f"w{k}": rng.fold(k).normal(a, b)[0].to(table_ID) * (2 / a) ** 0.5
        for k, (a, b) in enumerate(shapes)
    }
    return w | {f"b{k}": table_ID.new_zeros(b) for k, (_, b) in enumerate(shapes)}
