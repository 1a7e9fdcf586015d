"""Where in a recording a unit is most active."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marlnb.recording.file.reader import Recording


class Top(NamedTuple):
    """An episode's highest activation of a unit: where it is, in steps since the episode began, and how high."""

    episode: int
    t: int
    value: float


def top_episodes(
    recording: Recording, site: str, agent: str, unit: int, *, n: int = 5, checkpoint: int | None = None
) -> list[Top]:
    """The `n` episodes in which the unit rises highest, the highest first; of equal ones the earlier.

    Only steps at which the agent acts count; checkpoint: of a recording that spans several, whose units differ.
    """
    values = recording[site].sel(agent=agent, unit=unit).to_numpy().astype(np.float64)
    acting = recording.steps(site.split("/")[0], "acting").sel(agent=agent).to_numpy().astype(bool)
    episode, t = (recording.file[f"steps/{name}"][: len(values)] for name in ("episode", "t"))
    counts = acting & np.isfinite(values)
    if checkpoint is not None:
        table = recording.episodes
        counts &= np.isin(episode, table.index[table["checkpoint"] == checkpoint])
    rows = np.flatnonzero(counts)
    order = rows[np.lexsort((t[rows], episode[rows], -values[rows]))]
    _, first = np.unique(episode[order], return_index=True)
    best = order[np.sort(first)[:n]]
    return [Top(int(episode[row]), int(t[row]), float(values[row])) for row in best]
