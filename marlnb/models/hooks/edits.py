"""Edits of units by numbers: ablate, scale and noise. Edits along directions are in `directions.py`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from marlnb.errors import ConfigError, ShapeError
from marlnb.models.hooks.activation_sources import open_activation_source, source_path
from marlnb.models.hooks.edit import EDITS, Change, Edit, EditTarget, plain
from marlnb.specs import derive_seed
from marlnb.values import checked_number

ABLATIONS = ("zero", "mean", "resample")


@EDITS.register("ablate")
@dataclass(frozen=True)
class Ablate(Edit):
    """Removes the information in the chosen units: `h' = c`.

    Attributes:
        value: "zero" (c = 0); a number, or one for each unit, in the activation's own units; "mean" (c = each agent's
            mean over the rows of the recording `source` at which it was alive); "resample" (c = another random row of
            the recording at every step: the same one for an agent's units at all sites, so that they fit together as in
            a step that was played, and others for other agents).
        source: a recording of one checkpoint, or its path.
        digest: the digest that the recording must have.
        seed: for drawing the rows; edits with other seeds draw other rows.
    Source: mean and resample ablation, Chan et al. 2022, Causal Scrubbing; Zhang & Nanda 2023 (arXiv:2309.16042).
    """

    value: float | str | tuple[float, ...] = "zero"
    source: str | None = field(default=None, kw_only=True)
    digest: str | None = field(default=None, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "source", source_path(self.source))
        if isinstance(self.value, str) and self.value not in ABLATIONS:
            raise ConfigError(
                f"ablation value {self.value!r} is invalid; valid: 'zero', 'mean', 'resample', a number, or one number "
                "per unit"
            )
        if self.value in ("mean", "resample") and self.source is None:
            raise ConfigError(f"an ablation to {self.value!r} needs source=, a recording of these agents")
        if isinstance(self.value, Iterable) and not isinstance(self.value, str):
            values = tuple(checked_number(plain(x), float, self._argument("value")) for x in self.value)
            object.__setattr__(self, "value", values)
        elif not isinstance(self.value, str):
            checked_number(self.value, float, self._argument("value"))

    @property
    def is_random(self) -> bool:
        return self.value == "resample"

    def bind(self, target: EditTarget) -> Change:
        if self.value == "resample":
            return self._resample(target)
        constant = self._constant(target)
        return lambda values, output: constant.to(values).expand_as(values)

    def linear(self, target: EditTarget) -> tuple[Tensor, Tensor] | None:
        return None if self.value == "resample" else (torch.tensor(0.0), self._constant(target))

    def _constant(self, target: EditTarget) -> Tensor:
        """Broadcastable to `[agent, unit]`."""
        if self.value == "mean":
            return torch.stack([rows.double().mean(0).float() for rows in self._recorded_rows(target)])
        constant = torch.tensor(0.0 if self.value == "zero" else self.value, dtype=torch.float32)
        if constant.ndim and len(constant) != len(target.units):
            raise ShapeError(
                f"got {len(constant)} values for {len(target.units)} units of {target.site.name!r}; give one each"
            )
        return constant

    def _resample(self, target: EditTarget) -> Change:
        rows_by_agent = self._recorded_rows(target)
        generators = [torch.Generator().manual_seed(derive_seed(self.seed, agent)) for agent in target.agents]

        def draw(values: Tensor, output: Tensor) -> Tensor:
            samples = []
            for rows, generator in zip(rows_by_agent, generators, strict=True):
                index = torch.randint(len(rows), values.shape[:-2], generator=generator)
                samples.append(rows[index].to(values))
            return torch.stack(samples, dim=-2)

        return draw

    def _recorded_rows(self, target: EditTarget) -> list[Tensor]:
        """For each edited agent its recorded activations, `[row, unit]`, at the rows where it was alive."""
        assert self.source is not None
        source, units = open_activation_source(self.source, self.digest), list(target.units)
        if len(source.checkpoints) > 1:
            raise ConfigError(
                f"{self.source} spans checkpoints {source.checkpoints}, each with other networks: copy the episodes of "
                "one of them with mnb.extract(recording, path, episodes=...) and name that file as source="
            )
        rows_by_agent = [
            torch.from_numpy(source.values(target.site.name, agent)[source.alive(agent)][:, units])
            for agent in target.agents
        ]
        if not all(len(rows) for rows in rows_by_agent):
            raise ConfigError(f"{self.source} has no row at which all of {list(target.agents)} were alive")
        return rows_by_agent


@EDITS.register("scale")
@dataclass(frozen=True)
class Scale(Edit):
    """Multiplies the chosen units: `h' = factor * h`. A factor of 1 changes nothing, bit for bit."""

    strength_field: ClassVar[str | None] = "factor"

    factor: float = 1.0

    def bind(self, target: EditTarget) -> Change:
        return lambda values, output: values * self.factor

    def linear(self, target: EditTarget) -> tuple[Tensor, Tensor]:
        return torch.tensor(self.factor), torch.tensor(0.0)


@EDITS.register("noise")
@dataclass(frozen=True)
class Noise(Edit):
    """Adds fresh Gaussian noise at every step: `h' = h + scale * e`, e ~ N(0, 1), in the activation's own units.

    The noises of several sites, and of several such edits at one site, are independent with the same `seed` too.
    """

    strength_field: ClassVar[str | None] = "scale"

    scale: float = 1.0
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_number(self.scale, float, self._argument("scale"), ge=0)

    @property
    def is_random(self) -> bool:
        return True

    def bind(self, target: EditTarget) -> Change:
        seed = derive_seed(self.seed, target.site.name, target.n_earlier)
        generator = torch.Generator().manual_seed(seed)
        return lambda values, output: values + self.scale * torch.randn(values.shape, generator=generator).to(values)
