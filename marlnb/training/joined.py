"""Several trainings advanced together: one batch of environments, one product for all their networks.

Each training keeps its own Loop with its learners, random numbers and episodes, and so its own checkpoints and metrics.
Joined are the environments (`marlnb.envs.joined`), the networks and the optimizers (`marlnb.algorithms.stacked`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.rollout import Rollout
from marlnb.algorithms.stacked.stacked_ppo import StackedPPO, check_together
from marlnb.envs.joined import check_joinable, load_joined, split_state
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import ConfigError, MarlnbError
from marlnb.experiment import Experiment
from marlnb.models.networks.layers import fast_training
from marlnb.models.policies.stacked_policy import StackedPolicy
from marlnb.training.collect.episode_statistics import EpisodeStatistics
from marlnb.training.collect.rollout import Collector, Timing
from marlnb.training.learners import build_learners
from marlnb.training.loop import Advance, Loop

EQUAL_OPTIONS = ("env", "n_envs", "rollout_steps", "groups", "models", "critics", "device", "threads")


class JoinedLoop(Loop):
    """The loop of one of several trainings that advance together; `JoinedTrainings` makes them."""

    def __init__(self, experiment: Experiment, env: VectorEnv, device: torch.device, joined: JoinedTrainings) -> None:
        super().__init__(experiment, env, device)
        self._joined = joined

    @property
    def episode_seeds(self) -> Tensor:
        return self._joined.episode_seeds(self)

    @property
    def own_episode_seeds(self) -> Tensor:
        """`[env]`, of the episodes in its own environments."""
        return self._collector.episode_seeds

    def begin(self, iteration: int) -> None:
        self._joined.separate()
        super().begin(iteration)

    def advance(self) -> Advance:
        """As `Loop.advance`; the first training that asks advances all."""
        return self._joined.advance(self)

    def state_dict(self) -> dict[str, Any]:
        self._joined.write_back(self)
        return super().state_dict()

    def load_state_dict(self, state: Mapping[str, Any], iteration: int) -> None:
        self._joined.separate()
        super().load_state_dict(state, iteration)

    def close(self) -> None:
        self._joined.remove(self)

    @property
    def generator(self) -> torch.Generator:
        """Of the sampled actions."""
        return self._generator

    @property
    def first_steps(self) -> Tensor:
        """`[env, 1]` bool: whether the next step is an episode's first."""
        begins: Tensor = self._collector.state_dict()["begins"]
        return begins

    def restore_env(self, state: Mapping[str, Tensor], first_steps: Tensor) -> None:
        """Sets its own environments to what they are in the batch."""
        step = self.env.load_state_dict(state)
        self._collector.load_state_dict({"begins": first_steps, "recurrent": {}}, step)

    def look_at(self, rollout: Rollout) -> EpisodeStatistics:
        """Checks and counts its part of a rollout, before anything is learned from it. Raises EnvError as `advance`."""
        self._check_rollout(rollout)
        for callback in self.on_rollout:
            callback(rollout)
        return self.episodes.add(rollout)

    def check_learning(self, learning: Mapping[str, Mapping[str, float]]) -> None:
        """Raises DivergedError as `advance`."""
        self._check_finite(learning)


class JoinedTrainings:
    """The loops of trainings that advance together.

    A call of `JoinedLoop.advance` advances all, and the others receive their results when they call it. Call it for
    each loop before the first one again. A loop that is closed leaves, and the others continue without it.
    """

    def __init__(self) -> None:
        self._loops: list[JoinedLoop] = []
        self._results: dict[JoinedLoop, Advance | MarlnbError] = {}
        self._batch: _Batch | None = None

    def build_loop(self, experiment: Experiment, env: VectorEnv, device: torch.device, folder: Path) -> JoinedLoop:
        """A `LoopBuilder`: adds a training. Raises EnvBuildError: its environments cannot be joined with others."""
        check_joinable(env)
        self._loops.append(JoinedLoop(experiment, env, device, self))
        return self._loops[-1]

    def advance(self, loop: JoinedLoop) -> Advance:
        """Raises as `Loop.advance`."""
        if loop not in self._results:
            if self._results:
                raise RuntimeError("a training is ahead of the others; advance each one once")
            try:
                self._batch = self._batch or _Batch(self._loops)
                self._results = self._batch.advance()
            except MarlnbError as error:  # of all: what they did since their last checkpoints is not whole
                self._results = dict.fromkeys(self._loops, error)
        result = self._results.pop(loop)
        if isinstance(result, MarlnbError):
            raise result
        return result

    def episode_seeds(self, loop: JoinedLoop) -> Tensor:
        """`[env]`, of the episodes of one training that are in progress."""
        if self._batch is None:
            return loop.own_episode_seeds
        return self._batch.rows(loop, self._batch.collector.episode_seeds)

    def write_back(self, loop: JoinedLoop) -> None:
        """Sets a training's own environments to what they are in the batch."""
        if self._batch is not None:
            self._batch.write_back(loop)

    def separate(self) -> None:
        """Ends the batch; the next call of `advance` joins those that are left."""
        if self._batch is not None:
            for loop in self._loops:
                self._batch.write_back(loop)
            self._batch.env.close()
            self._batch = None

    def remove(self, loop: JoinedLoop) -> None:
        if loop in self._loops:
            self._loops.remove(loop)
            self._results.pop(loop, None)
            self.separate()


class _Batch:
    """The environments and networks of some trainings as one.

    Attributes:
        env: all environments, sorted by training.
        collector: steps them.
    """

    def __init__(self, loops: Sequence[JoinedLoop]) -> None:
        self._loops, experiment = list(loops), loops[0].experiment
        self._n_envs, n_trainings = experiment.n_envs, len(loops)
        self._learners = {group: StackedPPO([loop.learners[group] for loop in loops]) for group in loops[0].learners}
        spec, generators = loops[0].env.spec, [loop.generator for loop in loops]
        policies = {
            group: StackedPolicy(spec.group(group), learner.actor, generators)
            for group, learner in self._learners.items()
        }
        self._networks = nn.ModuleList(policies.values())
        self.env = build_env(experiment, n_trainings * self._n_envs, device=experiment.device)
        self.collector = Collector(self.env, policies, experiment.rollout_steps, device=loops[0].device)
        states = [state for loop in loops if (state := loop.env.state_dict()) is not None]
        step = load_joined(self.env, states, self._n_envs)
        begins = torch.cat([loop.first_steps for loop in loops])
        self.collector.load_state_dict({"begins": begins, "recurrent": {}}, step)
        self._states: list[dict[str, Tensor]] | None = None  # of each training's environments, once they are needed

    def advance(self) -> dict[JoinedLoop, Advance | MarlnbError]:
        """One rollout and update of all; errors are those of single trainings."""
        self._states, start = None, time.perf_counter()
        self.collector.timing = timing = Timing()
        with fast_training(self._networks):
            rollout = self.collector.collect()
        parts = [self._part(rollout, place) for place in range(len(self._loops))]
        results: dict[JoinedLoop, Any] = {}
        for loop, part in zip(self._loops, parts):
            try:
                results[loop] = loop.look_at(part)
            except MarlnbError as error:
                results[loop] = error
        learning_start = time.perf_counter()
        by_group = {group: learner.update(parts) for group, learner in self._learners.items()}
        learning_s = time.perf_counter() - learning_start
        seconds = time.perf_counter() - start
        for place, (loop, part) in enumerate(zip(self._loops, parts)):
            if isinstance(results[loop], MarlnbError):
                continue
            learning = {group: metrics[place] for group, metrics in by_group.items()}
            agent_steps = sum(int(part[group, "acting"].sum()) for group in by_group)
            try:
                loop.check_learning(learning)
            except MarlnbError as error:
                results[loop] = error
                continue
            times = timing.stepping_s, timing.acting_s, learning_s, seconds  # of all trainings
            results[loop] = Advance(results[loop], learning, agent_steps, *times)
        return results

    def rows(self, loop: JoinedLoop, values: Tensor) -> Tensor:
        """One training's part of `[env, ...]`."""
        start = self._loops.index(loop) * self._n_envs
        return values[start : start + self._n_envs]

    def write_back(self, loop: JoinedLoop) -> None:
        if self._states is None:
            self._states = split_state(self.env, self._n_envs)
        begins: Tensor = self.collector.state_dict()["begins"]
        loop.restore_env(self._states[self._loops.index(loop)], self.rows(loop, begins))

    def _part(self, rollout: Rollout, place: int) -> Rollout:
        return rollout.envs(place * self._n_envs, (place + 1) * self._n_envs)


def check_joined(experiments: Sequence[Experiment]) -> None:
    """Checks whether these trainings can advance together, as far as that is possible without environments.

    Raises:
        ConfigError: they cannot; the message says what can, and what to do instead.
    """
    first = experiments[0]
    for experiment in experiments:
        _check_single(experiment)
        for name in EQUAL_OPTIONS:
            if getattr(experiment, name) != getattr(first, name):
                values = f"{getattr(first, name)} and {getattr(experiment, name)}"
                raise ConfigError(f"trainings together need the same {name}; got {values}")


def check_parts(experiment: Experiment) -> None:
    """Builds one environment and the learners, to check whether such trainings can advance together.

    Raises:
        ConfigError, EnvBuildError: they cannot; or the experiment cannot be trained at all.
    """
    with build_env(experiment, 1, device=experiment.device) as env:
        check_joinable(env)
        for learner in build_learners(experiment, env.spec).values():
            check_together([learner])


def _check_single(experiment: Experiment) -> None:
    problems = [
        (experiment.league is not None, "a league"),
        (experiment.evolution is not None, "an evolving population"),
        (experiment.compile != "never", f"compile={experiment.compile}"),
        (experiment.profile, "profile=true"),
        (bool(experiment.groups), "groups="),
    ]
    for group in experiment.algorithms or ("",):
        algorithm = experiment.algorithm_of(group)
        problems.append((not isinstance(algorithm, IPPOConfig), f"algorithm={algorithm.name}, not ippo or mappo"))
    networks = [experiment.model, experiment.critic, *experiment.models.values(), *experiment.critics.values()]
    for network in networks:
        if network is not None:
            problems.append((network.name != "mlp", f"a network of kind {network.name}, not mlp"))
    for is_problem, what in problems:
        if is_problem:
            raise ConfigError(
                f"trainings do not advance together with {what}; they do with ippo or mappo and networks of kind mlp, "
                "on mpe/..., tag/..., games and your own TensorEnv. Train these in processes: seed=0..7 --jobs 2"
            )
