"""Uploads that are clipped and get noise on the device, for every method (as in Wu et al., FedGNN, 2021).

What it promises. Any two uploads are hard to tell apart, up to epsilon: for one row of a parameter, or for the
whole upload. The noise is for two vectors of norm `clip` that point in opposite directions. Which rows are sent is
not protected, unless all are.
Shape suffixes: T = rows of all clients together, E = width of a row.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from covey.contract.ledger import Disclosure
from covey.contract.mechanism import Mechanism
from covey.contract.model import Model
from covey.contract.views import ClientView
from covey.core.checks import among_choices, positive
from covey.core.errors import CoveyError
from covey.core.messages import Upload
from covey.core.ragged import Field, FieldDict, Ragged, Rows, offsets_of
from covey.core.rng import Rng

from . import gaussian, laplace, library
from .discrete import released

SHY = 1 - 1e-9  # floats that are clipped to a bound may end a little beyond it


@dataclass(frozen=True)
class NoisyUploads(Mechanism):
    """Stands last in the list: what another mechanism adds to a sealed upload is not protected."""

    epsilon: float = 1.0  # of a row, or of a whole upload; inf: no noise
    delta: float = 0.0  # the same; over 0 where kind = "gaussian"
    clip: float = 1.0  # largest norm: L1 for Laplace, L2 for Gaussian noise
    kind: Literal["laplace", "gaussian"] = "laplace"
    per: Literal["row", "upload"] = "row"
    rows: Literal["touched", "all"] = (
        "touched"  # of a table: those that training touched tell which these are
    )
    noise: Literal["simulated", "device", "opendp"] = (
        "simulated"  # from the run's seed, or from entropy
    )
    name: str = "noisy uploads"

    def __post_init__(self) -> None:
        among_choices(self.name, self)
        positive(self.name, epsilon=self.epsilon, clip=self.clip)
        if math.isinf(self.epsilon):
            return
        if math.isinf(self.clip):
            raise CoveyError(
                f"{self.name}: clip = inf; noise needs a bound; epsilon = inf is without noise"
            )
        if self.kind == "laplace" and self.delta:
            raise CoveyError(
                f"{self.name}: delta = {self.delta}; Laplace noise has none: set it to 0"
            )
        if self.kind == "gaussian":
            gaussian.multiplier_for(self.epsilon, self.delta)
        if self.kind == "gaussian" and self.noise == "device":
            raise CoveyError(
                f"{self.name}: a device draws Gaussian noise by OpenDP: set noise = 'opendp'"
            )
        if self.noise == "opendp":
            library.check_installed(self.name)

    @property
    def multiplier(self) -> float:
        """Deviation, or scale, of the noise over the sensitivity."""
        return (
            gaussian.multiplier_for(self.epsilon, self.delta)
            if self.kind == "gaussian"
            else 1 / self.epsilon
        )

    def protect_upload(self, view: ClientView, upload: Upload) -> Upload:
        fields: FieldDict = {f"update/{k}": self._whole(v) for k, v in upload.update.items()}
        fields |= {f"model/{k}": v for k, v in upload.model.items()}
        parts = {name: _as_rows(value) for name, value in fields.items()}
        if self.noise == "device" and not math.isinf(self.epsilon):
            done = self._exact(parts)
        else:
            done = {
                name: self._noisy(x, view.rng.fold(name))
                for name, x in self._clipped(parts).items()
            }
        sealed = {name: _like(value, done[name]) for name, value in fields.items()}
        of = lambda part: {k.removeprefix(part): v for k, v in sealed.items() if k.startswith(part)}
        return replace(upload, update=of("update/"), model=of("model/"))

    def _whole(self, value: Field) -> Field:
        return _all_rows(value) if self.rows == "all" and isinstance(value, Rows) else value

    def _clipped(self, parts: dict[str, Ragged]) -> dict[str, Ragged]:
        """In double precision; a number that is none counts as 0."""
        parts = {
            name: x.like(x.values.double().nan_to_num(0.0, 0.0, 0.0)) for name, x in parts.items()
        }
        if math.isinf(self.clip) or not parts:
            return parts
        power = 1 if self.kind == "laplace" else 2
        size = {name: x.values.abs().pow(power).sum(1) for name, x in parts.items()}
        if self.per == "upload":
            each = [
                size[name].new_zeros(len(x)).index_add_(0, x.owner, size[name])
                for name, x in parts.items()
            ]
            all_C = torch.stack(each).sum(0)
            size = {name: all_C[x.owner] for name, x in parts.items()}
        bound = self.clip * SHY
        factor = {
            name: bound / size_T.pow(1 / power).clamp(min=bound) for name, size_T in size.items()
        }
        return {name: x.like(x.values * factor[name][:, None]) for name, x in parts.items()}

    def _noisy(self, rows: Ragged, rng: Rng) -> Tensor:
        """Every number of clipped rows with its noise, [T, E]."""
        if math.isinf(self.epsilon):
            return rows.values
        spread = 2 * self.clip * self.multiplier
        if (
            self.noise == "opendp"
        ):  # the library adds it: a sum of floats here would betray what it hides
            values = rows.values.flatten().tolist()
            if self.kind == "laplace":
                noisy = library.laplace(values, spread, 2 * self.clip, self.epsilon)
            else:
                noisy = library.gaussian(values, spread, 2 * self.clip)
            return torch.tensor(noisy, dtype=torch.float64, device=rows.values.device).view(
                rows.values.shape
            )
        draw = laplace.simulated if self.kind == "laplace" else gaussian.simulated
        drawn_T = draw(rng, spread, rows.lengths * rows.values.shape[1], torch.float64)
        return rows.values + drawn_T.view(rows.values.shape)

    def _exact(self, parts: dict[str, Ragged]) -> dict[str, Tensor]:
        """Clipped and noisy in whole numbers, from the device's entropy."""
        if self.per == "row":
            return {name: released(x.values, self.clip, self.epsilon) for name, x in parts.items()}
        done: dict[str, list[Tensor]] = {name: [] for name in parts}
        many = len(next(iter(parts.values()))) if parts else 0
        for client in torch.arange(many).split(1):
            own = {name: x.take(client.to(x.offsets.device)).values for name, x in parts.items()}
            flat = released(
                torch.cat([x.flatten().double() for x in own.values()])[None],
                self.clip,
                self.epsilon,
            )[0]
            for (name, x), part in zip(
                own.items(), flat.split([x.numel() for x in own.values()]), strict=True
            ):
                done[name].append(part.view(x.shape))
        return {name: torch.cat(done[name]) if many else x.values for name, x in parts.items()}

    def protected_disclosures(self, disclosed: Disclosure, model: Model) -> tuple[Disclosure, ...]:
        part, _, name = disclosed.name.partition("/")
        if math.isinf(self.epsilon) or name not in (*model.shared, *model.uploaded):
            return (disclosed,)
        norm, drawn = ("L1", "Laplace") if self.kind == "laplace" else ("L2", "Gaussian")
        where = (
            "simulated from the run's seed"
            if self.noise == "simulated"
            else "from the device's entropy"
        )
        held = "each row" if self.per == "row" else "the whole upload"
        own = replace(
            disclosed,
            what=f"{part} of {name}, {held} clipped to {norm} norm {self.clip:g}, with {drawn} noise {where}",
            epsilon=self.epsilon,
            delta=self.delta,
            multiplier=self.multiplier if self.kind == "gaussian" else 0.0,
            unit="row" if self.per == "row" else "message",
            budget=self.name if self.per == "upload" else "",
        )
        if part != "update" or name not in model.tables or self.rows == "all":
            return (own,)
        support = (
            "which rows of the table are sent: the client's own items are among them, noise or not"
        )
        return own, Disclosure("train", f"{disclosed.name}/touched", support)


def _as_rows(value: Field) -> Ragged:
    """The rows of each client, [T, E]: an item's vector, or the last dimension of any other parameter."""
    if isinstance(value, Rows):
        return value.items.like(value.values.flatten(1))
    assert isinstance(value, Tensor)
    x_CRE = value.reshape(len(value), -1, value.shape[-1] if value.dim() > 1 else 1)
    offsets = torch.arange(len(value) + 1, device=value.device) * x_CRE.shape[1]
    return Ragged(x_CRE.flatten(0, 1), offsets)


def _like(value: Field, rows_TE: Tensor) -> Field:
    if isinstance(value, Rows):
        return replace(value, values=rows_TE.view(value.values.shape).to(value.values))
    assert isinstance(value, Tensor)
    return rows_TE.view(value.shape).to(value)


def _all_rows(value: Rows) -> Rows:
    """Every row of the table, those that were not touched as zeros."""
    items = torch.arange(value.height, device=value.values.device).repeat(len(value))
    lengths = torch.full_like(value.items.lengths, value.height)
    return Rows(Ragged(items, offsets_of(lengths)), value.dense().flatten(0, 1), value.height)
