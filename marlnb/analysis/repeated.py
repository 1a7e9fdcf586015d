"""Episodes that repeat one another: many of them are one observation, whatever an interval over them says.

A deterministic environment whose agents take their most likely actions plays the same episode again and again: what is
held out has been fitted, and a bootstrap over such episodes has no width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from marlnb.recording.reader import Recording

LOOKED_AT = 200
TOLD_BY = ("observation", "action", "reward")


def repeats(recording: Recording, episode: np.ndarray) -> tuple[str, ...]:
    """A doubt where fewer than half of the episodes differ in what any agent saw, did and was given; else nothing.

    Args:
        episode: `[row]`, the number of each row's episode. Of many, 200 are looked at, and those only if lengths and
            returns leave it open.
    """
    table = recording.episodes
    table = table[table.index.isin(episode)]
    n = len(table)
    outcomes = np.unique(table[["length", *recording.agents]].to_numpy(np.float64), axis=0)
    if n < 2 or len(outcomes) >= n / 2:
        return ()
    looked = table.index.to_numpy()[np.linspace(0, n - 1, min(n, LOOKED_AT)).astype(int)]
    distinct = _distinct(recording, looked)
    if distinct >= len(looked) / 2:
        return ()
    how = "" if recording.settings.get("explore") else " (explore=True varies them)"
    return (f"only {distinct} of {len(looked)} episodes are different, the others repeat them{how}",)


def _distinct(recording: Recording, numbers: np.ndarray) -> int:
    fields = [
        recording.steps(group, name)
        for group in recording.groups
        for name in TOLD_BY
        if name in recording.fields(group)
    ]
    if not fields:
        return len(numbers)
    episode = recording.rows["episode"].to_numpy()
    rows = np.flatnonzero(np.isin(episode, numbers))
    ends = np.flatnonzero(np.diff(episode[rows])) + 1
    parts = [np.split(replace(array, rows=rows).to_numpy(), ends) for array in fields]
    return len({tuple(part.tobytes() for part in played) for played in zip(*parts)})
