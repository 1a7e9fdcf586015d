"""The rows of a recording that an analysis works on, read batch by batch as tensors with every agent in its place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from marlnb.errors import AnalysisError, unknown
from marlnb.models.policy import Policy
from marlnb.specs import EnvSpec

if TYPE_CHECKING:
    from marlnb.recording.reader import Recording


@dataclass(frozen=True)
class Rows:
    """Chosen rows, in the recording's order: the rows of an episode lie next to each other.

    Attributes:
        index: `[row]`, where they lie in the file; episode, t: `[row]`.
    """

    index: np.ndarray
    episode: np.ndarray
    t: np.ndarray

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Moments:
    """What policies saw and did at a batch of rows.

    Attributes:
        observations: of each group, `[row, agent, *shape]`.
        action: of the group that is explained, `[row, agent(, component)]`; acting: `[row, agent]` bool.
        recurrent: the actor's state that entered the step, `[row, agent, layer, unit]`; action_mask
            `[row, agent, choice]`; state `[row, *state_shape]`; None where there is none.
    """

    observations: Mapping[str, Tensor]
    action: Tensor
    acting: Tensor
    recurrent: Tensor | None = None
    action_mask: Tensor | None = None
    state: Tensor | None = None


class RowSource:
    pass
