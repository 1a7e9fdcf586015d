"""ActivationStream: a site's activations from a recording, block by block, for what is trained on more than fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.rows import RowSource
from marlnb.errors import AnalysisError, unknown

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

BLOCK_ROWS = 4096
BLOCKS_AT_ONCE = 16
HELD_OUT = 0.2


class ActivationStream:
    """Activations `[example, unit]` of chosen agents at one site, where they acted, in blocks read from the file.

    Attributes:
        agents: whose they are; train, held_out: rows of the file, split by episode.
    """

    def __init__(
        self,
        recording: Recording,
        site: str,
        agent: str | Sequence[str] | None,
        *,
        seed: int,
        units: Sequence[int] | None = None,
    ) -> None:
        self.source = RowSource(recording, site.split("/")[0])
        self.array = recording[site]
        self.recording, self.site, self.seed = recording, site, seed
        bearers = list(self.array.labels["agent"])
        wanted = bearers if agent is None else [agent] if isinstance(agent, str) else list(agent)
        for name in wanted:
            if name not in bearers:
                raise AnalysisError(unknown(f"agent at {site!r}", name, bearers))
        self.agents = tuple(wanted)
        self._check_shared()
        self.places = [bearers.index(name) for name in wanted]
        group = list(self.source.env.group(self.source.group).agents)
        self._in_group = [group.index(name) for name in wanted]
        width = int(self.array.axes[1][1])
        self.units = None if units is None else list(units)
        if self.units is not None:
            wrong = [unit for unit in self.units if not 0 <= unit < width]
            if wrong or not self.units or len(set(self.units)) < len(self.units):
                raise AnalysisError(f"units are different ones of 0 to {width - 1} of {site}; got {self.units}")
        self.n_units = width if self.units is None else len(self.units)
        self.rows = self.source.rows(None)
        episodes = np.unique(self.rows.episode)
        if len(episodes) < 5:
            raise AnalysisError(f"a dictionary holds a fifth of the episodes out; this recording has {len(episodes)}")
        drawn = np.random.default_rng(seed).permutation(episodes)[: max(1, round(HELD_OUT * len(episodes)))]
        held = np.isin(self.rows.episode, drawn)
        self.train, self.held_out = self.rows.index[~held], self.rows.index[held]

    def of_all_units(self) -> ActivationStream:
        return ActivationStream(self.recording, self.site, self.agents, seed=self.seed)

    def read(self, index: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Activations `[row, agent, unit]` of rows of the file, and who acted `[row, agent]`."""
        values = replace(self.array, rows=index).to_torch()[:, self.places]
        values = values if self.units is None else values[..., self.units]
        chosen = replace(self.rows, index=index, episode=index, t=index)
        return values, self.source.acting(chosen)[:, self._in_group]

    def blocks(self, index: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor, np.ndarray]]:
        """(rows, activations, acting), block by block in the file's order."""
        for start in range(0, len(index), BLOCK_ROWS):
            rows = index[start : start + BLOCK_ROWS]
            yield rows, *self.read(rows)

    def batches(self, index: np.ndarray, batch_rows: int, rng: np.random.Generator) -> Iterator[Tensor]:
        """Shuffled examples `[batch, unit]`: blocks in random order, mixed some at a time."""
        starts = rng.permutation(np.arange(0, len(index), BLOCK_ROWS))
        for first in range(0, len(starts), BLOCKS_AT_ONCE):
            parts = []
            for start in np.sort(starts[first : first + BLOCKS_AT_ONCE]):
                values, acting = self.read(index[start : start + BLOCK_ROWS])
                parts.append(values[torch.from_numpy(acting)])
            pool = torch.cat(parts)
            pool = pool[torch.from_numpy(rng.permutation(len(pool)))]
            yield from (batch for batch in pool.split(batch_rows) if len(batch) >= min(batch_rows, len(pool)) // 2)

    def moments(self, *, from_rest: bool = False) -> tuple[Tensor, Tensor]:
        """Mean `[unit]` of the training activations, and the root mean square of a unit around it.

        Raises:
            AnalysisError: not finite, or the site never varies.
        """
        total, squares, n = torch.zeros(self.n_units, dtype=torch.float64), 0.0, 0
        for _, values, acting in self.blocks(self.train):
            x = values[torch.from_numpy(acting)].double()
            total, squares, n = total + x.sum(0), squares + float(x.square().sum()), n + len(x)
        if n == 0:
            raise AnalysisError(f"{', '.join(self.agents)} never acted in the training episodes")
        mean = total / n
        varies = (squares / n - float(mean.square().sum())) / self.n_units
        mean = torch.zeros_like(mean) if from_rest else mean
        scale = (squares / n - float(mean.square().sum())) / self.n_units
        if not np.isfinite(scale):
            raise AnalysisError(f"{self.site} has values that are not finite")
        if varies <= 1e-12 * max(1.0, squares / n):
            raise AnalysisError(f"{self.site} never varies: there is nothing to find in it")
        return mean.float(), torch.tensor(scale**0.5, dtype=torch.float32)

    def _check_shared(self) -> None:
        file = self.recording.file
        index = dict(zip(self.recording.agents, file["agents/policy_index"][:].tolist()))
        if len({index[name] for name in self.agents}) > 1:
            raise AnalysisError(
                f"{', '.join(self.agents)} have networks of their own, whose units have nothing in common: "
                f"give agent= one of them"
            )
