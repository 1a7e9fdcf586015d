"""SparseAutoencoder: a site's activations as few active features of many, each with a direction of its own."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError, unknown

SparseKind = Literal["topk", "standard"]


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
    def unit_length(self) -> None:
        """Gives decoder rows length 1."""
        self.decoder.div_(self.decoder.norm(dim=1, keepdim=True).clamp_min(1e-12))
