"""Loop: everything that the next iteration of a training run depends on, in one object that is saved and restored."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from marlnb.algorithms.captured import Captured, CUDAGraph, NewGraph, not_captured
from marlnb.algorithms.learner import Learner, restore_generator
from marlnb.algorithms.off_policy import OffPolicyLearner
from marlnb.algorithms.rollout import Rollout
from marlnb.display.notice import print_notice
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, ConfigError, EnvError, MarlnbError
from marlnb.experiment import Experiment
from marlnb.models.networks.layers import fast_training
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.scripted import check_frozen_weights
from marlnb.schedule import read_schedule
from marlnb.specs import derive_seed
from marlnb.training.collect.episode_statistics import EpisodeStatistics, EpisodeTracker
from marlnb.training.collect.finite import check_rollout
from marlnb.training.collect.rollout import Collector, Timing
from marlnb.training.collect.seeds import RandomStreams
from marlnb.training.compilation import compile_long_training
from marlnb.training.learners import STATE_ERRORS, build_learners, load_learners
from marlnb.training.limits import Trained
from marlnb.training.population_support import population_support
from marlnb.training.precision import note_slow_precision
from marlnb.training.reporting.report import Report
from marlnb.training.shared_return import shared_return

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
        joined_s: seconds of all training runs that advanced together; 0: it advanced by itself.
        turn: in a league or population, whose turn it was, and how a league's matches ended; else empty.
        extra_frames: beyond those of one rollout: of a population's evaluations.
        evaluation: by group, the mean return of a population's fittest member, at the end of a generation; else empty.
    """

    episodes: EpisodeStatistics
    learning: dict[str, dict[str, float]]
    agent_steps: int
    stepping_s: float
    acting_s: float
    learning_s: float
    seconds: float
    joined_s: float = 0.0
    turn: dict[str, Any] = field(default_factory=dict)
    extra_frames: int = 0
    evaluation: dict[str, float] = field(default_factory=dict)


class RecentEpisodes(Protocol):
    """Recent episodes of a training run."""

    @property
    def recent_episodes(self) -> int: ...
    @property
    def recent_returns(self) -> dict[str, float]: ...


class TrainingLoop(Protocol):
    """What a Trainer needs of its loop; leagues and populations have theirs in `marlnb.populations.training`.

    Attributes:
        may_end: whether the training may end here because of its frames; a population's ends after a generation.
    """

    @property
    def env(self) -> VectorEnv: ...
    @property
    def learners(self) -> Mapping[str, Learner]: ...
    @property
    def policies(self) -> Mapping[str, Policy]: ...
    @property
    def episodes(self) -> RecentEpisodes: ...
    @property
    def may_end(self) -> bool: ...
    def begin(self, iteration: int) -> None: ...
    def advance(self) -> Advance: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], iteration: int) -> None: ...
    def close(self) -> None: ...


class Loop:
    """Environment, learners, collector, episode statistics and random numbers of one training run.

    Args:
        experiment: what is trained.
        env: its environments; they belong to the caller.
        device: of networks and rollouts.
        learners: by group; None: those of the experiment.
    Attributes:
        on_rollout: functions called with each rollout before anything is learned from it. They must not change it, nor
            keep its tensors, which the next rollout overwrites.
    """

    def __init__(
        self,
        experiment: Experiment,
        env: VectorEnv,
        device: torch.device,
        learners: Mapping[str, Learner] | None = None,
    ) -> None:
        self.experiment, self.env, self.device = experiment, env, device
        self.on_rollout: list[Callable[[Rollout], None]] = []
        self._iteration, self._options = 0, experiment.at_frames(0)
        self.learners = build_learners(self._options, env.spec) if learners is None else dict(learners)
        self._check_schedule()
        self.episodes = EpisodeTracker(env.spec, experiment.n_envs)
        self._streams = RandomStreams(experiment.seed, device)
        self._generator = torch.Generator(device=device).manual_seed(derive_seed(experiment.seed, "actions"))
        self._networks = nn.ModuleList(self.policies.values())
        self._weights = {name: list(policy.parameters()) for name, policy in self.policies.items()}
        self._captured: Captured[Rollout] | None = None
        self._collector = Collector(
            env, self.policies, experiment.rollout_steps, generator=self._generator, device=device
        )
        if experiment.cuda_graphs:
            self.capture(partial(CUDAGraph, device) if device.type == "cuda" else None)

    @property
    def policies(self) -> dict[str, Policy]:
        return {name: learner.policy for name, learner in self.learners.items()}

    @property
    def may_end(self) -> bool:
        return True

    def capture(self, new_graph: NewGraph | None) -> None:
        """Collects and learns by graphs from the fourth iteration on; a notice says what cannot be captured, and why.

        Args:
            new_graph: makes a graph; None: this device has none.
        """
        problems = {"collecting": self._why_not_captured() if new_graph else f"{self.device} has no CUDA graphs"}
        if new_graph is not None:
            if not problems["collecting"]:
                self._captured = Captured("collecting", self._collector.collect, lambda: new_graph([self._generator]))
            for name, learner in self.learners.items():
                problems[f"the update of {name!r}"] = learner.capture_updates(new_graph)
        for what, problem in problems.items():
            if problem:
                print_notice(not_captured(what, problem))

    def begin(self, iteration: int) -> None:
        """Resets every environment, with a seed of experiment and iteration. Raises as `check_frozen_weights`."""
        check_frozen_weights(self.policies.values())
        self._forget_captured()
        self._iteration = iteration
        self.episodes.reset()
        self._collector.reset(derive_seed(self.experiment.seed, "env", iteration))

    def advance(self) -> Advance:
        """Collects one rollout, and every learner learns from it.

        Raises:
            DivergedError: losses or weights are not finite.
            EnvError: rewards or observations are not finite; nothing was learned from them or stored.
        """
        start = time.perf_counter()
        self._follow_schedule()
        self._collector.timing = timing = Timing()
        with self._streams.active():  # the notebook's random numbers neither affect the training nor change
            with record_function("collect"), fast_training(self._networks):
                rollout = self._collect()
                for callback in self.on_rollout:
                    callback(rollout)
                episodes = self.episodes.add(rollout)
            agent_steps = sum(int(rollout[name, "acting"].sum()) for name in self.learners)
            learning_start = time.perf_counter()
            with record_function("learn"):
                learning = {name: learner.update(rollout) for name, learner in self.learners.items()}
        learning_s = time.perf_counter() - learning_start
        self._check_finite(learning)
        self._iteration += 1
        seconds = time.perf_counter() - start
        return Advance(episodes, learning, agent_steps, timing.stepping_s, timing.acting_s, learning_s, seconds)

    @property
    def episode_seeds(self) -> Tensor:
        """`[env]`, of the episodes that are in progress."""
        return self._collector.episode_seeds

    def close(self) -> None:
        """Nothing to free: the environments belong to the caller."""

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
        self._forget_captured()
        self._iteration = iteration
        self._follow_schedule()
        load_learners(self.learners, state.get("learners", {}))
        try:
            self._streams.load_state_dict(state["random"])
            restore_generator(self._generator, state["generator"])
            self.episodes.load_state_dict(state["scores"])
            if state["env"] is None:
                self.begin(iteration)
            else:
                self._collector.load_state_dict(state["collector"], self.env.load_state_dict(state["env"]))
        except EnvError as error:
            raise CheckpointError(f"the checkpoint does not fit this experiment: {error}") from error
        except STATE_ERRORS as error:
            raise CheckpointError(f"the checkpoint does not fit this experiment: {error!r}") from error

    def _check_schedule(self) -> None:
        """Makes every change once: one that cannot be made would end the training when its time comes.

        Raises ConfigError: of such a change, or of one that concerns no group.
        """
        if self.experiment.schedule:
            self.experiment.check_without_env()
        groups, own = self.env.spec.group_names, self.experiment.algorithms
        for change in read_schedule(self.experiment.schedule):
            try:
                if not change.group and own.keys() >= set(groups):
                    valid = ", ".join(f"algorithms.{name}" for name in groups)
                    raise ConfigError(f"no group learns by algorithm, as each has its own; valid: {valid}")
                self._learners_with(self.experiment.at_frames(change.frames))
            except (ConfigError, CheckpointError) as error:
                raise ConfigError(f"schedule: {str(change)!r}: {error}", at="schedule") from error

    def _follow_schedule(self) -> None:
        """Continues with the options of algorithms that are in effect now; weights, moments and buffers stay."""
        if not self.experiment.schedule:
            return
        options = self.experiment.at_frames(self._iteration * self.experiment.iteration_frames)
        if options == self._options:
            return
        self._options, self.learners = options, self._learners_with(options)
        self._networks = nn.ModuleList(self.policies.values())
        self._weights = {name: list(policy.parameters()) for name, policy in self.policies.items()}
        self._collector = self._collector.with_policies(self.policies)

    def _learners_with(self, options: Experiment) -> dict[str, Learner]:
        """The learners as they are now, with other options."""
        states = {name: learner.state_dict() for name, learner in self.learners.items()}
        for name, learner in self.learners.items():
            if isinstance(learner, OffPolicyLearner):  # checkpoints can be without it
                states[name]["replay"] = learner.replay.state_dict()
                states[name]["open_turns"] = learner.open_turns.state_dict()
        learners = build_learners(options, self.env.spec)
        load_learners(learners, states)
        return learners

    def _collect(self) -> Rollout:
        """A rollout whose numbers are finite."""
        try:
            start = time.perf_counter()
            rollout = (self._captured or self._collector.collect)()
            if self._captured is not None and self._captured.is_captured:  # Python measures nothing in a graph
                self._collector.timing.acting_s += time.perf_counter() - start
        except EnvError:  # an action is NaN where an observation was
            self._check_rollout(self._collector.rollout)
            raise
        self._check_rollout(rollout)
        return rollout

    def _why_not_captured(self) -> str:
        if not self.env.restarts_by_mask:
            return f"{self.env.spec.name} does not restart its episodes by masks"
        if not self._collector.by_mask:
            return "ends of episodes are read in Python, as always on a CPU"
        others = [name for name, learner in self.learners.items() if not learner.by_mask]
        return f"exploration of {', '.join(others)} may have a state in Python" if others else ""

    def _forget_captured(self) -> None:
        """Graphs hold the seeds and addresses of the time when they were captured."""
        if self._captured is not None:
            self._captured.forget()
        for learner in self.learners.values():
            learner.forget_captured()

    def _check_rollout(self, rollout: Rollout) -> None:
        with_network = [name for name, policy in self.policies.items() if next(policy.parameters(), None) is not None]
        check_rollout(self.env.spec, rollout, with_network, self.episodes.steps, self.episode_seeds)

    def _check_finite(self, learning: Mapping[str, Mapping[str, float]]) -> None:
        problems = [
            f"{group}/{name} is {value}"
            for group, metrics in learning.items()
            for name, value in metrics.items()
            if not math.isfinite(value) and any(word in name for word in MUST_BE_FINITE)
        ]
        problems += [
            f"a weight of {group!r} is not finite"
            for group, weights in self._weights.items()
            if not _all_finite(weights)
        ]
        if problems:
            raise DivergedError(
                f"training diverged: {'; '.join(problems)}. The last checkpoint is complete. Try a smaller learning "
                "rate or gradient norm, and check the scale of the rewards"
            )


LoopBuilder = Callable[[Experiment, VectorEnv, torch.device, Path], TrainingLoop]
"""As `build_loop`."""


def build_loop(experiment: Experiment, env: VectorEnv, device: torch.device, folder: Path) -> TrainingLoop:
    """The loop of an experiment's training: a `Loop`, or that of its league or its evolving population.

    Args:
        experiment, env, device: as of `Loop`.
        folder: of the run, where leagues and populations keep their players.
    """
    note_slow_precision(experiment, device)
    if experiment.league is None and experiment.evolution is None:
        training = Loop(experiment, env, device)
        compile_long_training(experiment, training.learners)
        return training
    if experiment.league is not None and experiment.cuda_graphs:
        print_notice(not_captured("a league", "Python chooses who acts in its matches"))
    loop: TrainingLoop = population_support().build_loop(experiment, env, device, folder)
    return loop


def report_of(
    advance: Advance, loop: TrainingLoop, trained: Trained, rate: float, evaluation: dict[str, float]
) -> Report:
    """The Report of an iteration.

    Args:
        advance: what it did.
        trained: so far, with this iteration.
        rate: frames per second.
        evaluation: by group, the mean return of an evaluation after it; empty without one.
    """
    episodes, recent_returns = advance.episodes, loop.episodes.recent_returns
    return Report(
        iteration=trained.iterations,
        frames=trained.frames,
        seconds=trained.seconds,
        episodes=len(episodes),
        returns=episodes.group_means(),
        agent_returns=episodes.agent_means(loop.env.spec),
        recent_return=shared_return(recent_returns),
        recent_returns=recent_returns,
        length=float(episodes.lengths.mean()) if len(episodes) else None,
        learning=advance.learning,
        evaluation=evaluation,
        frames_per_second=rate,
        stepping_s=advance.stepping_s,
        acting_s=advance.acting_s,
        learning_s=advance.learning_s,
        agent_steps=trained.agent_steps,
        turn=advance.turn,
    )


def _all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether every number is finite. The largest magnitude of a tensor is not if one of its numbers is not."""
    if not tensors:
        return True
    return bool(torch.stack(torch._foreach_norm(list(tensors), torch.inf)).isfinite().all())
