"""Local differential privacy for every method: uploads are clipped and get noise on the device.

Wu et al., FedGNN, 2021. Any two values of one row of a parameter, or of a whole upload, are hard to
tell apart, up to epsilon. The noise covers two vectors of norm `clip` in opposite directions. Which
rows are sent is not protected, unless all of them are sent.
Shape suffixes: T = rows of all clients together, E = width of a row.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from covey.core import CoveyError, Field, FieldDict, Ragged, Rng, Rows, Upload, offsets_of
from covey.core.checks import among_choices, positive
from covey.mechanism import ClientView, Disclosure, Mechanism, Model

from . import gaussian, laplace, library
from .discrete import released

MARGIN = 1 - 1e-9  # as floats that are clipped to a bound may end slightly above it


@dataclass(frozen=True)
class NoisyUploads(Mechanism):
    """Clips uploads and adds noise; it is listed last, since later additions are not protected."""

    epsilon: float = 1.0  # of a row, or of a whole upload; inf: no noise
    delta: float = 0.0  # likewise; over 0 if kind = "gaussian"
    clip: float = 1.0  # largest norm: L1 for Laplace, L2 for Gaussian noise
    kind: Literal["laplace", "gaussian"] = "laplace"
    per: Literal["row", "upload"] = "row"
    # The rows of a table that are sent. "touched" reveals which rows training touched.
    rows: Literal["touched", "all"] = "touched"
    # Noise is drawn from the run's seed if simulated, else from the device's entropy.
    noise: Literal["simulated", "device", "opendp"] = "simulated"
    name: str = "noisy uploads"

    def __post_init__(self) -> None:
        among_choices(self.name, self)
        positive(self.name, epsilon=self.epsilon, clip=self.clip)
        if math.isinf(self.epsilon):
            return
        error = ""
        if math.isinf(self.clip):
            error = "clip = inf; noise needs a bound; for no noise set epsilon = inf"
        elif self.kind == "laplace" and self.delta:
            error = f"delta = {self.delta}; Laplace noise has none: set it to 0"
        elif self.kind == "gaussian":
            gaussian.multiplier_for(self.epsilon, self.delta)  # checks both
            if self.noise == "device":
                error = "a device draws Gaussian noise by OpenDP: set noise = 'opendp'"
        if error:
            raise CoveyError(f"{self.name}: {error}")
        if self.noise == "opendp":
            library.check_installed(self.name)

    @property
    def multiplier(self) -> float:
        """The standard deviation, or the scale, of the noise divided by the sensitivity."""
        if self.kind == "laplace":
            return 1 / self.epsilon
        return gaussian.multiplier_for(self.epsilon, self.delta)

    def protect_upload(self, view: ClientView, upload: Upload) -> Upload:
        fields: FieldDict = {f"update/{k}": self._sent(v) for k, v in upload.update.items()}
        fields |= {f"model/{k}": v for k, v in upload.model.items()}
        parts = {name: _as_rows(value) for name, value in fields.items()}
        if self.noise == "device" and not math.isinf(self.epsilon):
            noisy = self._exact(parts)
        else:
            clipped = self._clipped(parts)
            noisy = {k: self._noisy(x, view.rng.fold(k)) for k, x in clipped.items()}
        update = {k: _like(fields[f"update/{k}"], noisy[f"update/{k}"]) for k in upload.update}
        model = {k: _like(fields[f"model/{k}"], noisy[f"model/{k}"]) for k in upload.model}
        return replace(upload, update=update, model=model)

    def _sent(self, value: Field) -> Field:
        """If `rows` is "all", every row of a table; rows that were not touched are zero."""
        if self.rows != "all" or not isinstance(value, Rows):
            return value
        items = torch.arange(value.height, device=value.values.device).repeat(len(value))
        lengths = torch.full_like(value.items.lengths, value.height)
        return Rows(Ragged(items, offsets_of(lengths)), value.dense().flatten(0, 1), value.height)

    def _clipped(self, parts: dict[str, Ragged]) -> dict[str, Ragged]:
        """Clips in double precision; NaN and infinity count as 0."""
        parts = {k: x.like(x.values.double().nan_to_num(0.0, 0.0, 0.0)) for k, x in parts.items()}
        if math.isinf(self.clip) or not parts:
            return parts
        power, bound = 1 if self.kind == "laplace" else 2, self.clip * MARGIN
        size = {k: x.like(x.values.abs().pow(power).sum(1)) for k, x in parts.items()}
        if self.per == "upload":
            every = size.values()
            each = [x.values.new_zeros(len(x)).index_add_(0, x.owner, x.values) for x in every]
            all_C = torch.stack(each).sum(0)
            size = {k: x.like(all_C[x.owner]) for k, x in size.items()}
        factor = {k: bound / x.values.pow(1 / power).clamp(min=bound) for k, x in size.items()}
        return {k: x.like(x.values * factor[k][:, None]) for k, x in parts.items()}

    def _noisy(self, rows: Ragged, rng: Rng) -> Tensor:
        """Clipped rows with noise on every number, [T, E]."""
        if math.isinf(self.epsilon):
            return rows.values
        spread, shape = 2 * self.clip * self.multiplier, rows.values.shape
        if self.noise == "opendp":  # adds the noise itself, as a sum of floats would reveal values
            values = rows.values.flatten().tolist()
            if self.kind == "laplace":
                noisy = library.laplace(values, spread, 2 * self.clip, self.epsilon)
            else:
                noisy = library.gaussian(values, spread, 2 * self.clip)
            return rows.values.new_tensor(noisy, dtype=torch.float64).view(shape)
        draw = laplace.simulated if self.kind == "laplace" else gaussian.simulated
        drawn_T = draw(rng, spread, rows.lengths * shape[1])
        return rows.values + drawn_T.view(shape)

    def _exact(self, parts: dict[str, Ragged]) -> dict[str, Tensor]:
        """Clips and adds noise in whole numbers, from the device's entropy."""
        if self.per == "row":
            return {k: released(x.values, self.clip, self.epsilon) for k, x in parts.items()}
        blocks: dict[str, list[Tensor]] = {k: [] for k in parts}
        many = len(next(iter(parts.values()))) if parts else 0
        for client in torch.arange(many).split(1):
            own = {k: x.take(client.to(x.offsets.device)).values for k, x in parts.items()}
            flat = torch.cat([x.flatten().double() for x in own.values()])
            noisy = released(flat[None], self.clip, self.epsilon)[0]
            for (k, x), part in zip(own.items(), noisy.split([x.numel() for x in own.values()])):
                blocks[k].append(part.view(x.shape))
        return {k: torch.cat(blocks[k]) if many else x.values for k, x in parts.items()}

    def protected_disclosures(self, disclosed: Disclosure, model: Model) -> tuple[Disclosure, ...]:
        part, _, name = disclosed.name.partition("/")
        if math.isinf(self.epsilon) or name not in (*model.shared, *model.uploaded):
            return (disclosed,)
        norm, drawn = ("L1", "Laplace") if self.kind == "laplace" else ("L2", "Gaussian")
        simulated = self.noise == "simulated"
        source = "simulated from the run's seed" if simulated else "from the device's entropy"
        clipped = "each row" if self.per == "row" else "the whole upload"
        own = replace(
            disclosed,
            what=f"{part} of {name}, {clipped} clipped to {norm} norm {self.clip:g},"
            f" with {drawn} noise {source}",
            epsilon=self.epsilon,
            delta=self.delta,
            multiplier=self.multiplier if self.kind == "gaussian" else 0.0,
            unit="row" if self.per == "row" else "message",
            budget=self.name if self.per == "upload" else "",
            largest=max(disclosed.largest, 64 * 2 * self.clip * self.multiplier),
        )
        if part != "update" or name not in model.tables or self.rows == "all":
            return (own,)
        what = "which rows of the table are sent: the client's own items are among them"
        return own, Disclosure("train", f"{disclosed.name}/touched", f"{what}, noise or not")


def _as_rows(value: Field) -> Ragged:
    """Each client's rows, [T, E]: item vectors, or the last dimension of another parameter."""
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
