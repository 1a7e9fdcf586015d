"""Episodes that an analysis has played, read as the rows of a recording, so that `rows=` and `given=` apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.data.trajectories import Trajectories
from marlnb.errors import AnalysisError
from marlnb.recording.capture.sources import group_of_label
from marlnb.specs import EnvSpec

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

FIELDS = ("observation", "action", "acting", "alive")


@dataclass(frozen=True)
class _PlayedArray:
    """Values `[row, ...]`, as a recording's `LabelledArray` is read.

    Attributes:
        values: all rows.
        labels: by axis, names.
    """

    values: np.ndarray
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_numpy(self) -> np.ndarray:
        return self.values

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        """The values `[row, ...]` of rows, given by their indices `[row]`."""
        return self.values[rows]


@dataclass(frozen=True)
class PlayedEpisodes:
    """Trajectories with the parts of `Recording` that labels and conditions read: every agent, every step.

    Attributes:
        tracks: the trajectories, in order of their episodes.
    """

    tracks: Sequence[Trajectories]

    @property
    def spec(self) -> EnvSpec:
        return self.tracks[0].env

    @property
    def groups(self) -> list[str]:
        return list(self.spec.group_names)

    @property
    def agents(self) -> list[str]:
        return list(self.spec.agents)

    @property
    def labels(self) -> list[str]:
        return list(self.tracks[0].labels)

    @property
    def path(self) -> str:
        return "the played episodes"

    @cached_property
    def rows(self) -> pd.DataFrame:
        t = self.by_row(lambda track: torch.arange(len(track.in_episode))[:, None].expand(track.in_episode.shape))
        episode = self.by_row(lambda track: track.episode.expand(track.in_episode.shape))
        return pd.DataFrame({"episode": episode, "t": t})

    def __len__(self) -> int:
        return sum(int(track.in_episode.sum()) for track in self.tracks)

    def group_agents(self, group: str) -> list[str]:
        return list(self.spec.group(group).agents)

    def fields(self, group: str) -> list[str]:
        return list(FIELDS)

    def feature_names(self, group: str) -> list[str]:
        return list(self.spec.group(group).observation.names)

    def classes(self, label: str) -> list[str]:
        return list(next((spec.classes for spec in self.spec.labels if spec.name == label), ()))

    def steps(self, group: str, field: str) -> _PlayedArray:
        """`[row, agent, ...]` of one of FIELDS."""
        return _PlayedArray(self.by_row(lambda track: getattr(track, field)[group]))

    def label(self, name: str) -> _PlayedArray:
        """`[row]`, or `[row, agent]` with the agents' names."""
        values = self.by_row(lambda track: track.labels[name])
        if values.ndim == 1:
            return _PlayedArray(values)
        group = next((spec.group for spec in self.spec.labels if spec.name == name), None)
        group = group or group_of_label(name, values.shape[1], self.spec)
        return _PlayedArray(values, {"agent": self.group_agents(group)})

    def by_row(self, read: Callable[[Trajectories], Tensor]) -> np.ndarray:
        """`[row, ...]` of tensors `[time, env, ...]`; an episode's rows follow one another."""
        parts = [read(track).transpose(0, 1).cpu()[track.in_episode.T.cpu()] for track in self.tracks]
        return torch.cat(parts).numpy()

    def by_step(self, values: np.ndarray) -> list[Tensor]:
        """The reverse of `by_row` for booleans: `[time, env, ...]` of each trajectory, False after an episode."""
        parts, start = [], 0
        for track in self.tracks:
            where = track.in_episode.T.cpu()
            n = int(where.sum())
            filled = torch.zeros(*where.shape, *values.shape[1:], dtype=torch.bool)
            filled[where] = torch.from_numpy(values[start : start + n].copy())
            parts.append(filled.transpose(0, 1).to(track.in_episode.device))
            start += n
        return parts

    def source(self, group: str) -> tuple[RowSource, Rows]:
        """The episodes as one group sees them, and all their rows."""
        source = RowSource(cast("Recording", self), group)
        return source, source.rows(None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AnalysisError(
            f"episodes that this analysis plays have no {name!r}: name a label of the environment, 'action', 't' or an "
            "observed feature, or give labels= a function of the time step"
        )
