"""A site's activations read from a recording block by block, to train on more than fits into memory.

Blocks are kept up to a fixed size, so that a small recording is read once and not in each epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.data.views import site_agents
from marlnb.errors import AnalysisError
from marlnb.models.hooks.sites import group_of

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

BLOCK_ROWS = 4096
N_MIXED_BLOCKS = 16
HELD_OUT_SHARE = 0.2
MIN_EPISODES = 5
MAX_KEPT_BYTES = 2**26  # of blocks

Block = tuple[Tensor, np.ndarray]


class ActivationStream:
    """Activations `[example, unit]` of chosen agents at one site, where they acted.

    Attributes:
        agents: the agents' names.
        units: the units that are read; None: all.
        n_units: how many units that is.
        checkpoint: iteration whose rows are read.
        train: positions of the training rows in the file.
        held_out: positions of the other rows; a fifth of the episodes.
    """

    def __init__(
        self,
        recording: Recording,
        site: str,
        agent: str | Sequence[str] | None,
        *,
        seed: int,
        units: Sequence[int] | None = None,
        checkpoint: int | None = None,
    ) -> None:
        self.source = RowSource(recording, group_of(site))
        self.array = recording[site]
        self.recording, self.site, self.seed = recording, site, seed
        self.agents = tuple(site_agents(recording, site, agent))
        self._check_shared_network()
        self._site_columns = [list(self.array.labels["agent"]).index(name) for name in self.agents]
        self._group_columns = [self.source.agents.index(name) for name in self.agents]
        width = int(self.array.axes[1][1])
        self.units = None if units is None else list(units)
        if self.units is not None:
            invalid = [unit for unit in self.units if not 0 <= unit < width]
            if invalid or not self.units or len(set(self.units)) < len(self.units):
                raise AnalysisError(f"units must be distinct units of {site}, 0 to {width - 1}; got {self.units}")
        self.n_units = width if self.units is None else len(self.units)
        self.checkpoint = self.source.resolve_checkpoint(checkpoint)
        self.rows = self.source.rows(None, self.checkpoint)
        episodes = np.unique(self.rows.episode)
        if len(episodes) < MIN_EPISODES:
            raise AnalysisError(
                f"a fifth of the episodes is held out, which needs {MIN_EPISODES} or more; got {len(episodes)}"
            )
        n_held_out = max(1, round(HELD_OUT_SHARE * len(episodes)))
        held_out = np.isin(self.rows.episode, np.random.default_rng(seed).permutation(episodes)[:n_held_out])
        self.train, self.held_out = self.rows.index[~held_out], self.rows.index[held_out]
        self._kept: dict[bytes, Block] = {}
        self._kept_bytes = 0

    def with_all_units(self) -> ActivationStream:
        return ActivationStream(self.recording, self.site, self.agents, seed=self.seed, checkpoint=self.checkpoint)

    def read(self, index: np.ndarray) -> Block:
        """Activations `[row, agent, unit]` at positions in the file, and who acted, `[row, agent]` bool."""
        key = index.tobytes()
        if key in self._kept:
            return self._kept[key]
        values, acting = self._read(index)
        n_bytes = values.nbytes + acting.nbytes + len(key)
        if self._kept_bytes + n_bytes <= MAX_KEPT_BYTES:
            self._kept[key] = values, acting
            self._kept_bytes += n_bytes
        return values, acting

    def _read(self, index: np.ndarray) -> Block:
        values = replace(self.array, rows=index).to_torch()[:, self._site_columns]
        values = values if self.units is None else values[..., self.units]
        rows = replace(self.rows, index=index, episode=index, t=index)
        return values, self.source.acting(rows)[:, self._group_columns]

    def blocks(self, index: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor, np.ndarray]]:
        """(positions, activations, acting), block by block in the file's order."""
        for start in range(0, len(index), BLOCK_ROWS):
            block = index[start : start + BLOCK_ROWS]
            yield block, *self.read(block)

    def batches(self, index: np.ndarray, batch_rows: int, rng: np.random.Generator) -> Iterator[Tensor]:
        """Shuffled examples `[batch, unit]`: blocks in random order, the examples of several blocks mixed."""
        starts = rng.permutation(np.arange(0, len(index), BLOCK_ROWS))
        for first in range(0, len(starts), N_MIXED_BLOCKS):
            parts = []
            for start in np.sort(starts[first : first + N_MIXED_BLOCKS]):
                values, acting = self.read(index[start : start + BLOCK_ROWS])
                parts.append(values[torch.from_numpy(acting)])
            pool = torch.cat(parts)
            pool = pool[torch.from_numpy(rng.permutation(len(pool)))]
            yield from (batch for batch in pool.split(batch_rows) if len(batch) >= min(batch_rows, len(pool)) // 2)

    def mean_and_scale(self, *, from_rest: bool = False) -> tuple[Tensor, Tensor]:
        """Mean `[unit]` of the training activations, and a unit's root mean square around it.

        Args:
            from_rest: take 0 for the mean.
        Raises:
            AnalysisError: values that are not finite, no training rows, or a site that never varies.
        """
        total, squares, n = torch.zeros(self.n_units, dtype=torch.float64), 0.0, 0
        for _, values, acting in self.blocks(self.train):
            x = values[torch.from_numpy(acting)].double()
            total, squares, n = total + x.sum(0), squares + float(x.square().sum()), n + len(x)
        if n == 0:
            raise AnalysisError(f"{', '.join(self.agents)} never acted in the training episodes")
        mean = total / n
        variance = (squares / n - float(mean.square().sum())) / self.n_units
        mean = torch.zeros_like(mean) if from_rest else mean
        mean_square = (squares / n - float(mean.square().sum())) / self.n_units
        if not np.isfinite(mean_square):
            raise AnalysisError(f"{self.site} has values that are not finite")
        if variance <= 1e-12 * max(1.0, squares / n):
            raise AnalysisError(f"{self.site} never varies, so there are no features to learn")
        return mean.float(), torch.tensor(mean_square**0.5, dtype=torch.float32)

    def _check_shared_network(self) -> None:
        index = dict(zip(self.recording.agents, self.recording.file["agents/policy_index"][:].tolist()))
        if len({index[name] for name in self.agents}) > 1:
            raise AnalysisError(
                f"{', '.join(self.agents)} have separate networks, whose units have nothing in common: choose one of "
                "them with agent="
            )
