"""The flat input of a network taken apart again: which of its columns are entities, images and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from marlnb.specs import InputSpec


class Columns:
    """Chosen parts of a flat input, as one tensor `[..., feature]`; a view where they lie side by side.

    Args:
        parts: indices of `inputs.parts`, in the order in which they lie.
        context: whether the features after the parts are taken as well.
    """

    def __init__(self, inputs: InputSpec, parts: Sequence[int], *, context: bool = False) -> None:
        ends = list(accumulate(inputs.sizes))
        stretches = [(ends[part] - inputs.sizes[part], ends[part]) for part in parts]
        if context and inputs.context:
            stretches.append((inputs.features - inputs.context, inputs.features))
        self.stretches: list[tuple[int, int]] = []
        for start, stop in stretches:
            if self.stretches and self.stretches[-1][1] == start:
                start = self.stretches.pop()[0]
            self.stretches.append((start, stop))

    @property
    def n_features(self) -> int:
        return sum(stop - start for start, stop in self.stretches)

    def take(self, x: Tensor) -> Tensor:
        if len(self.stretches) == 1:
            start, stop = self.stretches[0]
            return x if stop - start == x.shape[-1] else x[..., start:stop]
        found = [x[..., start:stop] for start, stop in self.stretches]
        return torch.cat(found, dim=-1) if found else x[..., :0]
