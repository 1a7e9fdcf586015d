"""JoinedCollector: steps the environments of several runs as one batch, from and back to each run's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from marlnb.algorithms.rollout import Rollout
from marlnb.envs.joined import load_joined, split_state
from marlnb.envs.regroup import build_env
from marlnb.envs.side_by_side import SideBySide
from marlnb.envs.vector import Step, VectorEnv
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.rollout import Collector, Timing, collect_in_turn


class JoinedCollector:
    """Environments on tensors step as one larger batch; those whose states cannot be joined step side by side.

    Args:
        experiment: of one of the training runs.
        envs: of each training run; they belong to the caller.
        steps: with which each of them continues.
        first_steps: `[env, 1]` of each, whether its next step is an episode's first.
        policies: by group, which act in all environments, sorted by training.
        device: of the rollouts.
    """

    def __init__(
        self,
        experiment: Experiment,
        envs: Sequence[VectorEnv],
        steps: Sequence[Step],
        first_steps: Sequence[Tensor],
        policies: Mapping[str, Policy],
        device: torch.device,
    ) -> None:
        self._envs, self._n_envs = list(envs), experiment.n_envs
        self._states: list[dict[str, Tensor]] | None = None  # of each training's environments, once they are needed
        if envs[0].state_axis is None:
            self._env: VectorEnv = SideBySide(envs, steps)
            step = self._env.step_of_all()
        else:
            self._env = build_env(experiment, len(envs) * self._n_envs, device=experiment.device)
            states = [state for env in envs if (state := env.state_dict()) is not None]
            step = load_joined(self._env, states, self._n_envs)
        self._collector = Collector(self._env, policies, experiment.rollout_steps, device=device)
        self._collector.load_state_dict({"begins": torch.cat(list(first_steps)), "recurrent": {}}, step)

    def begin_rollout(self, timing: Timing) -> Collector:
        """The collector of the next rollout, with which what `write_back` returns changes."""
        self._states, self._collector.timing = None, timing
        return self._collector

    def split(self, rollout: Rollout) -> list[Rollout]:
        """The part of each training run."""
        starts = range(0, len(self._envs) * self._n_envs, self._n_envs)
        return [rollout.envs(start, start + self._n_envs) for start in starts]

    def episode_seeds(self, k: int) -> Tensor:
        """`[env]`, of the episodes of training k that are in progress."""
        return self._rows(k, self._collector.episode_seeds)

    def write_back(self, k: int) -> tuple[Step, Tensor]:
        """Sets the own environments of training k to what they are here; returns their step and first steps."""
        first_steps = self._rows(k, self._collector.state_dict()["begins"])
        if isinstance(self._env, SideBySide):
            return self._env.steps[k], first_steps
        if self._states is None:
            self._states = split_state(self._env, self._n_envs)
        return self._envs[k].load_state_dict(self._states[k]), first_steps

    def close(self) -> None:
        """Frees what it made; the training runs' own environments stay open."""
        self._env.close()

    def _rows(self, k: int, values: Tensor) -> Tensor:
        """The part of training k in `[env, ...]`."""
        return values[k * self._n_envs : (k + 1) * self._n_envs]


def collect_joined(collectors: Sequence[JoinedCollector], timing: Timing) -> list[Rollout]:
    """The next rollout of each training run of each collector, in their order.

    Args:
        timing: to which the seconds of all are added.
    """
    rollouts = collect_in_turn([joined.begin_rollout(timing) for joined in collectors])
    return [part for joined, rollout in zip(collectors, rollouts) for part in joined.split(rollout)]
