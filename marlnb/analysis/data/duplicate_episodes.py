"""Episodes that repeat one another: many of them are one observation, whatever an interval over them says.

A deterministic environment whose agents take their most likely actions plays the same episode again and again: what is
held out has been fitted, and a bootstrap over such episodes has no width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from marlnb.analysis.data.trajectories import Trajectories
    from marlnb.recording.file.reader import Recording

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
    return _told(_distinct(recording, looked), len(looked), greedy=not recording.settings.get("explore"))


def played(seen: Trajectories) -> list[bytes]:
    """By episode, what tells whether it is the same as another: what all agents saw and did, hashed."""
    found = []
    for copy in range(len(seen.table)):
        length = int(seen.counts[:, copy].sum())
        digest = blake2b(digest_size=16)
        for group in seen.observation:
            for tensor in (seen.observation[group], seen.action[group]):
                digest.update(tensor[:length, copy].cpu().numpy().tobytes())
        found.append(digest.digest())
    return found


def played_again(episodes: Sequence[bytes], *, greedy: bool) -> tuple[str, ...]:
    """A doubt where fewer than half of what was `played` differ; greedy: the user may have actions drawn instead."""
    return _told(len(set(episodes)), len(episodes), greedy=greedy)


def _told(distinct: int, n: int, *, greedy: bool) -> tuple[str, ...]:
    if n < 2 or distinct >= n / 2:
        return ()
    how = " (explore=True varies them)" if greedy else ""
    return (f"only {distinct} of {n} episodes are different, the others repeat them{how}",)


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
