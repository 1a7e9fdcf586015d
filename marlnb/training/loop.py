"""Loop: everything that the next iteration of a training depends on, in one object that is saved and restored."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from marlnb.algorithms.rollout import Rollout
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, EnvError, MarlnbError
from marlnb.experiment import Experiment
from marlnb.models.networks.layers import fast_training
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.episode_statistics import EpisodeStatistics, EpisodeTracker
from marlnb.training.collect.rollout import Collector, Timing
from marlnb.training.collect.seeds import RandomStreams, derive_seed
from marlnb.training.learners import build_learners, load_learners

MUST_BE_FINITE = ("loss", "entropy", "kl", "grad")


class DivergedError(MarlnbError):
    """Losses or weights are not finite."""


@dataclass(frozen=True)
class Advance:
    """What one iteration did.

    Attributes:
        episodes: those that ended.
        learning: by group, the learner's metrics.
        agent_steps: steps of single agents, counted where they acted.
        stepping_s: seconds in the environment.
        acting_s: seconds of choosing actions and storing them.
        learning_s: seconds of learning.
        seconds: of the whole iteration.
    """

    episodes: EpisodeStatistics
    learning: dict[str, dict[str, float]]
    agent_steps: int
    stepping_s: float
    acting_s: float
    learning_s: float
    seconds: float


class Loop:
    """Environment, learners, collector, episode statistics and random numbers of one training."""

    def __init__(self, experiment: Experiment, env: VectorEnv, device: torch.device) -> None:
        self.experiment, self.env = experiment, env
        self.learners = build_learners(experiment, env.spec)
        self.episodes = EpisodeTracker(env.spec, experiment.n_envs)
        self._streams = RandomStreams(experiment.seed, device)
        self._generator = torch.Generator(device=device).manual_seed(derive_seed(experiment.seed, "actions"))
        self._networks = nn.ModuleList(self.policies.values())
        self._collector = Collector(
            env, self.policies, experiment.rollout_steps, generator=self._generator, device=device
        )

    @property
    def policies(self) -> dict[str, Policy]:
        return {name: learner.policy for name, learner in self.learners.items()}

    def begin(self, iteration: int) -> None:
        """Resets every environment, with a seed that depends on the experiment and the iteration only."""
        self.episodes.reset()
        self._collector.reset(derive_seed(self.experiment.seed, "env", iteration))

    def advance(self) -> Advance:
        """Collects one rollout, and every learner learns from it.

        Raises:
            DivergedError: losses or weights are not finite.
            EnvError: rewards or observations are not finite; nothing was learnt from them or stored.
        """
        start = time.perf_counter()
        self._collector.timing = timing = Timing()
        with self._streams.active():  # the notebook's random numbers neither affect the training nor change
            with record_function("collect"), fast_training(self._networks):
                rollout = self._collector.collect()
                self._check_rollout(rollout)
                episodes = self.episodes.add(rollout)
            agent_steps = sum(int(rollout[name, "acting"].sum()) for name in self.learners)
            learning_start = time.perf_counter()
            with record_function("learn"):
                learning = {name: learner.update(rollout) for name, learner in self.learners.items()}
        learning_s = time.perf_counter() - learning_start
        self._check_finite(learning)
        seconds = time.perf_counter() - start
        return Advance(episodes, learning, agent_steps, timing.stepping_s, timing.acting_s, learning_s, seconds)

    def state_dict(self) -> dict[str, Any]:
        """The state that `load_state_dict` restores; "env" is None if the environment cannot be saved."""
        return {
            "learners": {name: learner.state_dict() for name, learner in self.learners.items()},
            "env": self.env.state_dict(),
            "collector": self._collector.state_dict(),
            "scores": self.episodes.state_dict(),
            "random": self._streams.state_dict(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any], iteration: int) -> None:
        """Restores a saved state. Training then continues bit for bit on a CPU.

        Raises:
            CheckpointError: the state belongs to another experiment.
        """
        load_learners(self.learners, state.get("learners", {}))
        try:
            self._streams.load_state_dict(state["random"])
            self._generator.set_state(state["generator"])
            self.episodes.load_state_dict(state["scores"])
            if state["env"] is None:
                self.begin(iteration)
            else:
                self._collector.load_state_dict(state["collector"], self.env.load_state_dict(state["env"]))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"the checkpoint does not fit this experiment: {error!r}") from error

    def _check_rollout(self, rollout: Rollout) -> None:
        for name, policy in self.policies.items():
            has_network = next(policy.parameters(), None) is not None
            for key in [("next", name, "reward"), *([(name, "observation")] if has_network else [])]:
                values = rollout[key]
                # one sum is a cheap test; a sum of large numbers may be infinite too, so look closer before raising
                if values.is_floating_point() and not values.sum().isfinite():
                    self._check_each_value(name, key[-1], values)

    def _check_each_value(self, group: str, what: str, values: Tensor) -> None:
        not_finite = (~values.isfinite()).nonzero()
        if len(not_finite):
            env_index, step, agent = not_finite[0, :3].tolist()
            raise EnvError(
                f"{self.env.spec.name} gave {what} {float(values[tuple(not_finite[0])])} to "
                f"{self.env.spec.group(group).agents[agent]!r} in environment {env_index}, step {step} of "
                f"{values.shape[1]} of this iteration; expected a finite number. Nothing was learnt from it: the last "
                "checkpoint is complete"
            )

    def _check_finite(self, learning: Mapping[str, Mapping[str, float]]) -> None:
        problems = [
            f"{group}/{name} is {value}"
            for group, metrics in learning.items()
            for name, value in metrics.items()
            if not math.isfinite(value) and any(word in name for word in MUST_BE_FINITE)
        ]
        problems += [
            f"a weight of {group!r} is not finite"
            for group, policy in self.policies.items()
            if not _all_finite(list(policy.parameters()))
        ]
        if problems:
            raise DivergedError(
                f"training diverged: {'; '.join(problems)}. The last checkpoint is complete. Try a smaller learning "
                "rate or gradient norm, and check the scale of the rewards"
            )


def _all_finite(tensors: list[Tensor]) -> bool:
    """Whether every number is finite. The largest magnitude of a tensor is not if one of its numbers is not."""
    if not tensors:
        return True
    return bool(torch.stack(torch._foreach_norm(tensors, torch.inf)).isfinite().all())
