"""Returns and lengths of the episodes that end within rollouts, computed for a whole rollout at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from marlnb.algorithms.rollout import Rollout
from marlnb.specs import EnvSpec

MIN_EPISODES = 100  # that make up the recent returns
MAX_REPORTED_AGENTS = 32  # of a group whose agents' returns are reported one by one


@dataclass(frozen=True)
class EpisodeStatistics:
    """The episodes that ended in one rollout.

    Attributes:
        returns: by group, `[episode, agent]`, each agent's undiscounted sum of rewards.
        lengths: `[episode]`, steps.
    """

    returns: dict[str, np.ndarray]
    lengths: np.ndarray

    def group_means(self) -> dict[str, float | None]:
        """By group, the mean return of one agent in one episode; None if no episode ended."""
        return {name: float(values.mean()) if len(self) else None for name, values in self.returns.items()}

    def agent_means(self, spec: EnvSpec) -> dict[str, float | None]:
        """By agent, its mean return in one episode, for groups of 2 to MAX_REPORTED_AGENTS agents."""
        return {
            agent: float(self.returns[group.name][:, index].mean()) if len(self) else None
            for group in spec.groups
            if 1 < group.n_agents <= MAX_REPORTED_AGENTS
            for index, agent in enumerate(group.agents)
        }

    def __len__(self) -> int:
        return len(self.lengths)


class EpisodeTracker:
    """Follows every environment's episode across rollouts, and the mean return of recent episodes.

    Attributes:
        steps: `[env]`, steps taken in each environment's current episode.
    """

    def __init__(self, spec: EnvSpec, n_envs: int) -> None:
        self._groups = spec.group_names
        self._sums = {group.name: np.zeros((n_envs, group.n_agents)) for group in spec.groups}
        self.steps = np.zeros(n_envs, dtype=np.int64)
        self._recent: deque[tuple[int, dict[str, float]]] = deque()

    def reset(self) -> None:
        """Every environment was reset; the unfinished episodes do not count."""
        for sums in self._sums.values():
            sums[:] = 0.0
        self.steps[:] = 0

    def add(self, rollout: Rollout) -> EpisodeStatistics:
        """Accounts for one rollout, batch `[env, time]`."""
        done = rollout["next", "done"][..., 0]
        ends = done.nonzero(as_tuple=True)
        envs, times = (index.cpu().numpy() for index in ends)
        returns = {}
        for name in self._groups:
            # on the rollout's device: of thousands of envs only the ends are copied from a GPU
            before = torch.from_numpy(self._sums[name]).to(done.device)
            rewards = rollout["next", name, "reward"][..., 0].double()  # [env, time, agent]
            sums = rewards.cumsum(1).add_(before[:, None])
            totals, last = sums[ends].cpu().numpy(), sums[:, -1].cpu().numpy()
            returns[name], self._sums[name] = _split_at_ends(totals, last, envs)
        totals, last = self.steps[envs] + times + 1, self.steps + done.shape[1]
        lengths, self.steps = _split_at_ends(totals, last, envs)
        episodes = EpisodeStatistics(returns, lengths)
        if len(episodes):
            self._recent.append((len(episodes), {name: float(r.mean(1).sum()) for name, r in returns.items()}))
            while self.recent_episodes - self._recent[0][0] >= MIN_EPISODES:
                self._recent.popleft()
        return episodes

    @property
    def recent_episodes(self) -> int:
        return sum(count for count, _ in self._recent)

    @property
    def recent_returns(self) -> dict[str, float]:
        """By group, the mean return of one agent in the latest iterations with MIN_EPISODES episodes in total.

        Empty before any episode ended; of fewer episodes until there are that many.
        """
        if not self._recent:
            return {}
        return {name: sum(sums[name] for _, sums in self._recent) / self.recent_episodes for name in self._groups}

    def state_dict(self) -> dict[str, Any]:
        return {
            "sums": {name: sums.tolist() for name, sums in self._sums.items()},
            "steps": self.steps.tolist(),
            "recent": list(self._recent),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, sums in self._sums.items():
            saved = np.array(state["sums"][name], dtype=np.float64)
            sums[:] = saved.reshape(len(sums), -1)  # older checkpoints of the gallery have one value, the agents' mean
        self.steps = np.array(state["steps"], dtype=np.int64)
        self._recent = deque(state["recent"])


def _split_at_ends(totals: np.ndarray, last: np.ndarray, envs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Running sums split at the episodes' ends: each episode's sum `[episode, ...]`, and each env's rest `[env, ...]`.

    Args:
        totals: the running sums at the ends, `[episode, ...]`.
        last: those at the rollout's last step, `[env, ...]`.
        envs: `[episode]`, in ascending order.
    """
    earlier = np.zeros_like(totals)
    same_env = envs[1:] == envs[:-1]
    earlier[1:][same_env] = totals[:-1][same_env]
    rest = last.copy()
    final = np.flatnonzero(np.append(~same_env, True)) if len(envs) else np.zeros(0, dtype=np.int64)
    rest[envs[final]] -= totals[final]
    return totals - earlier, rest
