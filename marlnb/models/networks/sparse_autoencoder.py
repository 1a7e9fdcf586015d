"""SparseAutoencoder: writes a site's activations as a sparse sum of many features, each with its direction."""

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

        x~ = (x - mean) / scale                 mean square 1 for each unit, whatever the site's own units
        f  = sparse(E (x~ - b_d) + b_e)         standard: relu; topk: the k largest of relu
        x^ = scale * (D f + b_d) + mean

    standard is trained with an L1 penalty, |x~ - x~^|^2 + l1 |f|_1 (Bricken et al. 2023, Towards Monosemanticity); topk
    with |x~ - x~^|^2 alone (Gao et al. 2024, section 2.3, arXiv:2406.04093).

    Attributes:
        kind: standard or topk.
        k: features kept by topk; 0 for standard.
        mean: `[unit]`, mean of the activations, in their own units.
        scale: `[]`, their scale.
        encoder: `[unit, feature]`.
        decoder: `[feature, unit]`.
        encoder_bias: `[feature]`.
        decoder_bias: `[unit]`.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, n_units: int, n_features: int, kind: SparseKind, k: int, *, seed: int = 0) -> None:
        super().__init__()
        if kind not in get_args(SparseKind):
            raise ConfigError(unknown("kind of dictionary", kind, get_args(SparseKind)))
        if n_features < 1 or (kind == "topk" and not 1 <= k <= n_features):
            raise ConfigError(f"a topk dictionary needs 1 <= k <= n_features; got k={k}, n_features={n_features}")
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
        """Non-negative features `[..., feature]` of activations `[..., unit]` in their own units."""
        return self.sparse(self.before(self.normalised(x)))

    def decode(self, features: Tensor) -> Tensor:
        """Activations `[..., unit]`, in their own units, of features `[..., feature]`."""
        return self.reconstruct(features) * self.scale + self.mean

    def normalised(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale

    def before(self, normalised: Tensor) -> Tensor:
        """Pre-activations `[..., feature]` of normalised activations `[..., unit]`."""
        return (normalised - self.decoder_bias) @ self.encoder + self.encoder_bias

    def sparse(self, before: Tensor) -> Tensor:
        positive = before.relu()
        if self.kind == "standard":
            return positive
        largest = positive.topk(self.k, dim=-1)
        return torch.zeros_like(positive).scatter(-1, largest.indices, largest.values)

    def reconstruct(self, features: Tensor) -> Tensor:
        """Normalised activations `[..., unit]` of features `[..., feature]`."""
        return features @ self.decoder + self.decoder_bias

    @torch.no_grad()
    def narrowed(self, units: Sequence[int]) -> SparseAutoencoder:
        """The autoencoder of some of the units, if it neither reads nor writes the others."""
        chosen = list(units)
        narrow = SparseAutoencoder(len(chosen), self.n_features, self.kind, self.k)
        for name, tensor in self.state_dict().items():
            axis = _UNIT_AXIS.get(name)
            narrow.state_dict()[name].copy_(tensor if axis is None else tensor.index_select(axis, torch.tensor(chosen)))
        return narrow

    @torch.no_grad()
    def widened(self, units: Sequence[int], mean: Tensor) -> SparseAutoencoder:
        """The autoencoder of more units, of which it reads and writes only `units`; `mean` `[unit]` is that of all."""
        wide = SparseAutoencoder(len(mean), self.n_features, self.kind, self.k)
        wide.mean.copy_(mean)
        for name, tensor in self.state_dict().items():
            axis, target = _UNIT_AXIS.get(name), wide.state_dict()[name]
            if axis is None:
                target.copy_(tensor)
                continue
            if name != "mean":
                target.zero_()
            target.index_copy_(axis, torch.tensor(list(units)), tensor)
        return wide

    @torch.no_grad()
    def unit_length(self) -> None:
        """Gives decoder rows length 1."""
        self.decoder.div_(self.decoder.norm(dim=1, keepdim=True).clamp_min(1e-12))
