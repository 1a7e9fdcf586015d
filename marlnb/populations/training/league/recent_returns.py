"""RecentReturns: returns of recent episodes of several players, each for its group of agents."""

from __future__ import annotations

from collections.abc import Mapping

from marlnb.training.collect.episode_statistics import EpisodeTracker


class RecentReturns:
    """The part of an EpisodeTracker that a trainer reads.

    Args:
        trackers: by group, that of a player which learns to act for it.
    """

    def __init__(self, trackers: Mapping[str, EpisodeTracker]) -> None:
        self._trackers = dict(trackers)

    @property
    def recent_episodes(self) -> int:
        return min(tracker.recent_episodes for tracker in self._trackers.values())

    @property
    def recent_returns(self) -> dict[str, float]:
        """By group, the mean return of one agent in its player's recent episodes; empty until each player has one."""
        if not self.recent_episodes:
            return {}
        return {name: tracker.recent_returns[name] for name, tracker in self._trackers.items()}
