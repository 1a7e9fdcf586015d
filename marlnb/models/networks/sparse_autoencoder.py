"""SparseAutoencoder: a site's activations as few active features of many, each with a direction of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError, unknown

SparseKind = Literal["topk", "standard"]
_UNIT_AXIS = {"mean": 0, "decoder": 1, "encoder": 0, "decoder_bias": 0}


class SparseAutoencoder(nn.Module):
    """`[..., unit]` -> `[..., feature]` -> `[..., unit]`; decoder rows have length 1.

    topk keeps the `k` largest features of each activation (Gao et al. 2024, section 2.3, arXiv:2406.04093); standard
    keeps all positive ones and is trained with an L1 penalty (Bricken et al. 2023, Towards Monosemanticity).
    Activations are centred and scaled first, so that their mean square is 1 a unit, whatever the site's own units.

    Attributes:
        mean `[unit]`, scale `[]`: of the activations, in their own units.
        k: features kept by topk; 0 for standard.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, n_units: int, n_features: int, kind: SparseKind, k: int, *, seed: int = 0) -> None:
        super().__init__()
        if kind not in get_args(SparseKind):
            raise ConfigError(unknown("kind of dictionary", kind, get_args(SparseKind)))
        if n_features < 1 or (kind == "topk" and not 1 <= k <= n_features):
            raise ConfigError(f"a topk dictionary keeps 1 to n_features features; got k={k} of {n_features}")
        self.kind, self.k = kind, k if kind == "topk" else 0
        self.register_buffer("mean", torch.zeros(n_units))
        self.register_buffer("scale", torch.ones(()))
        generator = torch.Generator().manual_seed(seed)
        directions = torch.randn(n_features, n_units, generator=generator)
        self.decoder = nn.Parameter(directions / directions.norm(dim=1, keepdim=True))
        self.encoder = nn.Parameter(self.decoder.detach().T.clone())
        self.encoder_bias = nn.Parameter(torch.zeros(n_features))
        self.decoder_bias = nn.Parameter(torch.zeros(n_units))

    @property
    def n_units(self) -> int:
        return len(self.mean)

    @property
    def n_features(self) -> int:
        return len(self.decoder)

    def forward(self, x: Tensor) -> Tensor:
        """Features `[..., feature]`, none negative, of activations `[..., unit]` in their own units."""
        return self.sparse(self.before(self.normalised(x)))

    def decode(self, features: Tensor) -> Tensor:
        """Activations `[..., unit]`, in their own units."""
        return self.reconstruct(features) * self.scale + self.mean

    def normalised(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale

    def before(self, normalised: Tensor) -> Tensor:
        """What features are before those that stay are chosen."""
        return (normalised - self.decoder_bias) @ self.encoder + self.encoder_bias

    def sparse(self, before: Tensor) -> Tensor:
        positive = before.relu()
        if self.kind == "standard":
            return positive
        largest = positive.topk(self.k, dim=-1)
        return torch.zeros_like(positive).scatter(-1, largest.indices, largest.values)

    def reconstruct(self, features: Tensor) -> Tensor:
        """Normalised activations."""
        return features @ self.decoder + self.decoder_bias

    @torch.no_grad()
    def narrowed(self, units: Sequence[int]) -> SparseAutoencoder:
        """What it is among some of the units `[unit of units]`, where it neither reads nor writes the others."""
        chosen = list(units)
        found = SparseAutoencoder(len(chosen), self.n_features, self.kind, self.k)
        for name, tensor in self.state_dict().items():
            axis = _UNIT_AXIS.get(name)
            found.state_dict()[name].copy_(tensor if axis is None else tensor.index_select(axis, torch.tensor(chosen)))
        return found

    @torch.no_grad()
    def widened(self, units: Sequence[int], mean: Tensor) -> SparseAutoencoder:
        """The same among more units, of which it reads and writes `units` alone; `mean` `[unit]` is that of all."""
        found = SparseAutoencoder(len(mean), self.n_features, self.kind, self.k)
        found.mean.copy_(mean)
        for name, tensor in self.state_dict().items():
            axis, wide = _UNIT_AXIS.get(name), found.state_dict()[name]
            if axis is None:
                wide.copy_(tensor)
                continue
            if name != "mean":
                wide.zero_()
            wide.index_copy_(axis, torch.tensor(list(units)), tensor)
        return found

    @torch.no_grad()
    def unit_length(self) -> None:
        """Gives decoder rows length 1."""
        self.decoder.div_(self.decoder.norm(dim=1, keepdim=True).clamp_min(1e-12))
