"""Columns of a network's flat input: which of them are entities, images and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from marlnb.specs import InputSpec


class Columns:
    """Chosen parts of a flat input, as one tensor `[..., feature]`; a view if they are adjacent.

    Args:
        parts: indices of `inputs.parts`, in their order.
        context: whether the features after the parts are taken as well.
    """

    def __init__(self, inputs: InputSpec, parts: Sequence[int], *, context: bool = False) -> None:
        ends = list(accumulate(inputs.sizes))
        spans = [(ends[part] - inputs.sizes[part], ends[part]) for part in parts]
        if context and inputs.context:
            spans.append((inputs.features - inputs.context, inputs.features))
        self.spans: list[tuple[int, int]] = []
        for start, stop in spans:
            if self.spans and self.spans[-1][1] == start:
                start = self.spans.pop()[0]
            self.spans.append((start, stop))

    @property
    def n_features(self) -> int:
        return sum(stop - start for start, stop in self.spans)

    def take(self, x: Tensor) -> Tensor:
        if len(self.spans) == 1:
            start, stop = self.spans[0]
            return x if stop - start == x.shape[-1] else x[..., start:stop]
        parts = [x[..., start:stop] for start, stop in self.spans]
        return torch.cat(parts, dim=-1) if parts else x[..., :0]


def join(parts: Sequence[Tensor]) -> Tensor:
    """The parts concatenated along the last axis; a single part is not copied."""
    parts = [part for part in parts if part.shape[-1]]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def features(x: Tensor, n_axes: int) -> Tensor:
    """One float32 vector for each agent: the last `n_axes` axes flattened, bytes scaled from 0..255 to 0..1."""
    if n_axes != 1:
        x = x.flatten(-n_axes) if n_axes else x.unsqueeze(-1)
    if x.dtype == torch.uint8:
        return x.float().div_(255)
    return x if x.dtype == torch.float32 else x.float()
