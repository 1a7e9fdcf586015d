"""Loop: everything that the next iteration of a training depends on, in one object that can be saved and restored."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, EnvError, MarlnbError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.episode_statistics import EpisodeStatistics, EpisodeTracker
from marlnb.training.collect.rollout import Collector, Timing
from marlnb.training.collect.seeds import RandomStreams, derive_seed
from marlnb.training.learners import build_learners, load_learners

MUST_BE_FINITE = ("loss", "entropy", "kl", "grad")


class DivergedError(MarlnbError):
    """Losses or weights are no longer finite numbers."""


@dataclass(frozen=True)
class Advance:
    """What one iteration did: the episodes that ended, each learner's metrics, and where its seconds went."""

    ended: EpisodeStatistics
    learning: dict[str, dict[str, float]]
    stepping_s: float
    acting_s: float
    learning_s: float
    seconds: float


class Loop:
    """Environment, learners, collector, scores and random numbers of one training."""

    def __init__(self, experiment: Experiment, env: VectorEnv, device: torch.device) -> None:
        self.experiment, self.env = experiment, env
        self.learners = build_learners(experiment, env.spec)
        self.scores = EpisodeTracker(env.spec, experiment.n_envs)
        self._streams = RandomStreams(experiment.seed, device)
        self._generator = torch.Generator(device=device).manual_seed(derive_seed(experiment.seed, "actions"))
        self._collector = Collector(
            env, self.policies, experiment.rollout_steps, generator=self._generator, device=device
        )

    @property
    def policies(self) -> dict[str, Policy]:
        return {name: learner.policy for name, learner in self.learners.items()}

    def begin(self, iteration: int) -> None:
        """Starts every copy anew, under a seed that depends on the experiment and the iteration only."""
        self.scores.begin()
        self._collector.reset(derive_seed(self.experiment.seed, "env", iteration))

    def advance(self) -> Advance:
        """Collects one rollout and lets every learner learn from it.

        Raises:
            DivergedError: losses or weights are no longer finite.
            EnvError: rewards or observations are not; nothing was learnt from them, and no memory holds them.
        """
        began = time.perf_counter()
        self._collector.timing = timing = Timing()
        with self._streams.active():
            rollout = self._collector.collect()
            self._check_given(rollout)
            ended = self.scores.add(rollout)
            before = time.perf_counter()
            learning = {name: learner.update(rollout) for name, learner in self.learners.items()}
        learning_s = time.perf_counter() - before
        self._check_finite(learning)
        seconds = time.perf_counter() - began
        return Advance(ended, learning, timing.stepping_s, timing.acting_s, learning_s, seconds)

    def state_dict(self) -> dict[str, Any]:
        """A state from which `load_state_dict` goes on; "env" is None where the environment cannot be saved."""
        return {
            "learners": {name: learner.state_dict() for name, learner in self.learners.items()},
            "env": self.env.state_dict(),
            "collector": self._collector.state_dict(),
            "scores": self.scores.state_dict(),
            "random": self._streams.state_dict(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any], iteration: int) -> None:
        """Goes on from a saved state, bit for bit on a CPU.

        Raises:
            CheckpointError: the state is of another experiment.
        """
        load_learners(self.learners, state.get("learners", {}))
        try:
            self._streams.load_state_dict(state["random"])
            self._generator.set_state(state["generator"])
            self.scores.load_state_dict(state["scores"])
            if state["env"] is None:
                self.begin(iteration)
            else:
                self._collector.load_state_dict(state["collector"], self.env.load_state_dict(state["env"]))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"the checkpoint does not fit this experiment: {error!r}") from error

    def _check_given(self, rollout: TensorDictBase) -> None:
        for name, policy in self.policies.items():
            reads = next(policy.parameters(), None) is not None
            for key in [("next", name, "reward"), *([(name, "observation")] if reads else [])]:
                given = rollout[key]
                if given.is_floating_point() and not given.sum().isfinite():  # as a sum of large numbers may be, too
                    self._check_each(name, key[-1], given)

    def _check_each(self, group: str, what: str, given: Tensor) -> None:
        wrong = (~given.isfinite()).nonzero()
        if len(wrong):
            copy, step, agent = wrong[0, :3].tolist()
            raise EnvError(
                f"{self.env.spec.name} gave {what} {float(given[tuple(wrong[0])])} to "
                f"{self.env.spec.group(group).agents[agent]!r} in copy {copy}, step {step} of {given.shape[1]} of this "
                "iteration; a finite number is needed. Nothing was learnt from it: the last checkpoint is whole"
            )

    def _check_finite(self, learning: Mapping[str, Mapping[str, float]]) -> None:
        wrong = [
            f"{group}/{name} is {value}"
            for group, metrics in learning.items()
            for name, value in metrics.items()
            if not math.isfinite(value) and any(word in name for word in MUST_BE_FINITE)
        ]
        wrong += [
            f"a weight of {group!r} is not finite"
            for group, policy in self.policies.items()
            if not _all_finite(list(policy.parameters()))
        ]
        if wrong:
            raise DivergedError(
                f"training diverged: {'; '.join(wrong)}. The last checkpoint is whole; a smaller learning rate or "
                "gradient norm may help, and so may a look at the rewards"
            )


def _all_finite(tensors: list[Tensor]) -> bool:
    """Whether every number is finite: the largest magnitude of a tensor is not when one of its numbers is not."""
    if not tensors:
        return True
    return bool(torch.stack(torch._foreach_norm(tensors, torch.inf)).isfinite().all())
