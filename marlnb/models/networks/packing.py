"""Several recurrent states in one tensor `[..., agent, layer, unit]`: layers concatenated, units padded."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

RecurrentShape = tuple[int, int] | None


def stacked_shape(shapes: Sequence[RecurrentShape]) -> RecurrentShape:
    """(layer, unit) that holds states of these shapes, concatenated; None if there are none."""
    existing = [shape for shape in shapes if shape is not None]
    return (sum(layers for layers, _ in existing), max(units for _, units in existing)) if existing else None


def widest_shape(shapes: Sequence[RecurrentShape]) -> RecurrentShape:
    """(layer, unit) that holds any one of these states; None if there are none."""
    existing = [shape for shape in shapes if shape is not None]
    return (max(layers for layers, _ in existing), max(units for _, units in existing)) if existing else None


def unpad(state: Tensor, shape: tuple[int, int], first_layer: int = 0) -> Tensor:
    """The state of that shape that starts at `first_layer`."""
    layers, units = shape
    return state[..., first_layer : first_layer + layers, :units]


def pad(state: Tensor, shape: tuple[int, int]) -> Tensor:
    """The state with zeros after its layers and units, up to `shape`."""
    return F.pad(state, (0, shape[1] - state.shape[-1], 0, shape[0] - state.shape[-2]))
