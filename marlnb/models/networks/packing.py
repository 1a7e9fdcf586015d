"""Several recurrent states in one tensor `[..., agent, layer, unit]`: layers one after the other, units padded."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

RecurrentShape = tuple[int, int] | None


def stacked_shape(shapes: Sequence[RecurrentShape]) -> RecurrentShape:
    """(layer, unit) that holds states of these shapes one after the other; None where there are none."""
    found = [shape for shape in shapes if shape is not None]
    return (sum(layers for layers, _ in found), max(units for _, units in found)) if found else None


def widest_shape(shapes: Sequence[RecurrentShape]) -> RecurrentShape:
    """(layer, unit) that holds any one of these states; None where there are none."""
    found = [shape for shape in shapes if shape is not None]
    return (max(layers for layers, _ in found), max(units for _, units in found)) if found else None


def unpad(state: Tensor, shape: tuple[int, int], first_layer: int = 0) -> Tensor:
    """The state of that shape which begins at `first_layer`."""
    layers, units = shape
    return state[..., first_layer : first_layer + layers, :units]


def pad(state: Tensor, shape: tuple[int, int]) -> Tensor:
    """The state with zeros after its layers and units, up to `shape`."""
    return F.pad(state, (0, shape[1] - state.shape[-1], 0, shape[0] - state.shape[-2]))
