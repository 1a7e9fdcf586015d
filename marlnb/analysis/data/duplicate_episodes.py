"""Warnings about episodes that are copies of one another, which count as one observation in any statistic.

A deterministic environment whose agents take their most likely actions plays the same episode again and again. Held-out
episodes have then been fitted, and a bootstrap over such episodes gives an interval without width.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from marlnb.analysis.data.trajectories import Trajectories
    from marlnb.recording.file.reader import Recording

MAX_COMPARED_EPISODES = 200
COMPARED_FIELDS = ("observation", "action", "reward")


def duplicate_episode_warnings(recording: Recording, episode: np.ndarray) -> tuple[str, ...]:
    """A warning if fewer than half of a recording's episodes differ in observations, actions and rewards.

    Returns and lengths are compared first, and the steps of up to 200 episodes only if too few of these differ.

    Args:
        episode: `[row]`, each row's episode number.
    """
    table = recording.episodes
    table = table[table.index.isin(episode)]
    n_episodes = len(table)
    distinct_outcomes = np.unique(table[["length", *recording.agents]].to_numpy(np.float64), axis=0)
    if n_episodes < 2 or len(distinct_outcomes) >= n_episodes / 2:
        return ()
    sample = np.linspace(0, n_episodes - 1, min(n_episodes, MAX_COMPARED_EPISODES)).astype(int)
    compared = table.index.to_numpy()[sample]
    greedy = not recording.settings.get("explore")
    return _warning(_count_distinct(recording, compared), len(compared), greedy=greedy)


def episode_hashes(trajectories: Trajectories) -> list[bytes]:
    """A hash of each episode's observations and actions: equal hashes mean equal episodes."""
    hashes = []
    for env_index in range(len(trajectories.table)):
        length = int(trajectories.in_episode[:, env_index].sum())
        digest = blake2b(digest_size=16)
        for group in trajectories.observation:
            for tensor in (trajectories.observation[group], trajectories.action[group]):
                digest.update(tensor[:length, env_index].cpu().numpy().tobytes())
        hashes.append(digest.digest())
    return hashes


def duplicate_warnings(hashes: Sequence[bytes], *, greedy: bool) -> tuple[str, ...]:
    """A warning if fewer than half of the `episode_hashes` differ; greedy: advise sampled actions."""
    return _warning(len(set(hashes)), len(hashes), greedy=greedy)


def _warning(n_distinct: int, n_episodes: int, *, greedy: bool) -> tuple[str, ...]:
    if n_episodes < 2 or n_distinct >= n_episodes / 2:
        return ()
    advice = " (explore=True varies them)" if greedy else ""
    return (f"only {n_distinct} of {n_episodes} episodes are different, the others repeat them{advice}",)


def _count_distinct(recording: Recording, episodes: np.ndarray) -> int:
    arrays = [
        recording.steps(group, name)
        for group in recording.groups
        for name in COMPARED_FIELDS
        if name in recording.fields(group)
    ]
    if not arrays:
        return len(episodes)
    episode = recording.rows["episode"].to_numpy()
    rows = np.flatnonzero(np.isin(episode, episodes))
    episode_ends = np.flatnonzero(np.diff(episode[rows])) + 1
    by_field = [np.split(array.read_rows(rows), episode_ends) for array in arrays]
    return len({tuple(steps.tobytes() for steps in fields) for fields in zip(*by_field)})
