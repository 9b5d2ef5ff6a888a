"""PipAttack: makes the targets look like popular items to a classifier.

Zhang et al., "PipAttack: Poisoning Federated Recommender Systems for Manipulating Item Promotion",
WSDM 2022; written from its abstract and from descriptions by others. An attacker also raises the
targets' scores for its own user. Shape suffix: K = targets.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.attack import AttackView
from covey.contract.views import TrainingData
from covey.core import CoveyError, FieldDict, Fields, Rng, Rows, Upload, positive

from .base import TrainingAttack, checked_targets, equal_lists, need_user_vectors, popularity
from .crafting import adam, one_step, ratings
from .profiles import random_list

HEAD, TORSO = 0.1, 0.45  # cumulative shares of the catalogue, the most popular items first


@dataclass(frozen=True)
class PipAttack(TrainingAttack):
    """Uploads one gradient step: the rows of the targets and the shared layers."""

    targets: tuple[int, ...] = (0,)
    align: float = 60.0  # a: weight of the popularity loss
    near: float = 0.0  # b: weight of the distance to the update of an honest, random client
    steps: int = 1  # of Adam for the classifier, in each round
    fit_rate: float = 0.001
    items: int = 30  # length of the random list
    rate: float = 0.001  # learning rate of the upload
    name: str = "pipattack"
    knowledge: str = "how popular each item is"

    def __post_init__(self) -> None:
        positive(self.name, items=self.items)
        if not self.near >= 0:
            raise CoveyError(f"{self.name}: near = {self.near}; it is a weight, 0 or more")

    def profile(self, view: AttackView) -> TrainingData:
        """Random items, which give the attacker an honest update and a user vector."""
        return random_list(view, self.items, checked_targets(view, self.name, self.targets))

    def craft(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        need_user_vectors(view, self.name)
        target_K = checked_targets(view, self.name, self.targets)
        net, w_CD = self.classifier(view, target_K), view.kept["user"]

        def loss(leaves: Fields) -> Tensor:
            raise_C = F.softplus(-ratings(view, leaves, w_CD[:, None])).sum((1, 2))  # L_exp
            popular_CK = -classes(net, leaves["items"]).log_softmax(-1)[..., 0]  # L_pop
            return raise_C + self.align * popular_CK.sum(1)

        items = equal_lists(target_K.expand(len(view.ids_C), -1))
        made = one_step(view, upload, items, loss, self.rate)
        if not self.near:
            return dict(net), made
        # Minimises |x - made|^2 + near |x - honest|^2 over the rows and layers that are sent.
        update: FieldDict = {}
        for name, value in made.update.items():
            if isinstance(value, Rows):  # an honest client's row of a target is missing or near 0
                update[name] = replace(value, values=value.values / (1 + self.near))
            else:
                update[name] = (value + self.near * upload.update[name]) / (1 + self.near)
        return dict(net), replace(made, update=update)

    def classifier(self, view: AttackView, target_K: Tensor) -> Fields:
        """Predicts popularity from item rows; each round trains it on all items but the targets."""
        table_ID, popular_I = view.download.public.shared["items"], popularity(view, self.name)
        place_I = popular_I.argsort(descending=True, stable=True).argsort()
        label_I = (place_I >= HEAD * len(place_I)).long() + (place_I >= TORSO * len(place_I)).long()
        keep_I = torch.ones_like(label_I, dtype=torch.bool).index_fill(0, target_K, False)
        rng, net = Rng.server(0, 0, self.name).to(table_ID.device), Fields()
        for k, (a, b) in enumerate(pairwise((table_ID.shape[1], 16, 8, 3))):
            net[f"w{k}"] = rng.fold(k).normal(a, b)[0].to(table_ID) * (2 / a) ** 0.5
            net[f"b{k}"] = table_ID.new_zeros(b)
        net = {k: view.memory.get(k, v) for k, v in net.items()}

        def loss(x: Fields) -> Tensor:
            return F.cross_entropy(classes(x, table_ID[keep_I]), label_I[keep_I])

        return adam(net, loss, self.steps, self.fit_rate, view.memory)


def classes(net: Fields, v: Tensor) -> Tensor:
    """Logits of the classes, the most popular first, by an MLP with 16 and 8 hidden units."""
    for k in range(2):
        v = (v @ net[f"w{k}"] + net[f"b{k}"]).relu()
    return v @ net["w2"] + net["b2"]
