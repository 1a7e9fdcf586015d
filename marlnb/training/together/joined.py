"""Several training runs advanced together: one batch of environments, one product for all their networks.

Each training run keeps its own Loop with its learners, random numbers and episodes, and so its own checkpoints and
metrics. Joined are the environments (`marlnb.envs.joined`, or `marlnb.envs.side_by_side` for those in processes), the
networks and the optimizers (`marlnb.algorithms.stacked`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from marlnb.algorithms.rollout import Rollout
from marlnb.algorithms.stacked.stack_learners import have_equal_shapes, stack_learners
from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment
from marlnb.models.networks.layers import fast_training
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.stacked_policy import side_by_side
from marlnb.training.collect.episode_statistics import EpisodeStatistics
from marlnb.training.collect.joined_collector import JoinedCollector, collect_joined
from marlnb.training.collect.rollout import Timing
from marlnb.training.loop import Advance, DivergedError, Loop

EQUAL_OPTIONS = ("env", "n_envs", "rollout_steps", "groups", "device", "threads")  # of one batch of environments
EQUAL_NETWORKS = ("models", "critics")  # of one batched product
ALL = slice(None)


T = TypeVar("T")
R = TypeVar("R")
Result = Advance | MarlnbError


class JoinedLoop(Loop):
    """The loop of one of several training runs that advance together; `JoinedTrainings` makes them."""

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
        """As `Loop.advance`; the first training run that asks advances all."""
        return self._joined.advance(self)

    def advance_alone(self) -> Result:
        """As `Loop.advance`, in its own environments; an error is returned."""
        try:
            return super().advance()
        except MarlnbError as error:
            return error

    def state_dict(self) -> dict[str, Any]:
        """As of a Loop, with what it has done and not returned yet."""
        self._joined.write_back(self)
        pending = self._joined.pending(self)
        return super().state_dict() | ({} if pending is None else {"pending": pending})

    def load_state_dict(self, state: Mapping[str, Any], iteration: int) -> None:
        self._joined.separate()
        super().load_state_dict(state, iteration)
        self._joined.restore_pending(self, state.get("pending"))

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

    @property
    def current_step(self) -> Step:
        """Of its own environments."""
        return self._collector.step

    def continue_from(self, step: Step, first_steps: Tensor) -> None:
        """Its next rollout in its own environments begins with this step, to which the batch came."""
        self._collector.load_state_dict({"begins": first_steps, "recurrent": {}}, step)

    def check_and_count(self, rollout: Rollout) -> EpisodeStatistics:
        """Checks and counts its part of a rollout, before anything is learned from it. Raises EnvError as `advance`."""
        self._check_rollout(rollout)
        for callback in self.on_rollout:
            callback(rollout)
        return self.episodes.add(rollout)

    def check_learning(self, learning: Mapping[str, Mapping[str, float]]) -> None:
        """Raises DivergedError as `advance`."""
        self._check_finite(learning)


class JoinedTrainings:
    """The loops of training runs that advance together: one batch of environments, and one of networks of equal shapes.

    A call of `JoinedLoop.advance` advances all, and the others receive their results when they call it. Call it for
    each loop before the first one again. A loop that is closed leaves, and the others continue without it.
    """

    def __init__(self) -> None:
        self._loops: list[JoinedLoop] = []
        self._results: dict[JoinedLoop, Result] = {}
        self._batches: list[_Batch] | None = None  # of at least two training runs; None: to be joined again

    def build_loop(self, experiment: Experiment, env: VectorEnv, device: torch.device, folder: Path) -> JoinedLoop:
        """`add`, as a `LoopBuilder`."""
        return self.add(experiment, env, device)

    def add(self, experiment: Experiment, env: VectorEnv, device: torch.device) -> JoinedLoop:
        """Adds a training run."""
        self._loops.append(JoinedLoop(experiment, env, device, self))
        return self._loops[-1]

    def advance(self, loop: JoinedLoop) -> Advance:
        """Raises as `Loop.advance`."""
        if loop not in self._results:
            if self._results:
                raise RuntimeError("a run is ahead of the others: advance each once, and close those that ended")
            if self._batches is None:
                groups = grouped(self._loops, _have_equal_envs)
                self._batches = [_Batch(group) for group in groups if len(group) > 1]
            for batch in self._batches:
                self._results |= batch.advance()
            alone = [each for each in self._loops if self._batch_of(each) is None]
            self._results |= {each: each.advance_alone() for each in alone}
        result = self._results.pop(loop)
        if isinstance(result, MarlnbError):
            raise result
        return result

    def pending(self, loop: JoinedLoop) -> dict[str, Any] | None:
        """What a training run has done and not received yet, for its state; None: nothing."""
        return result_state(self._results[loop]) if loop in self._results else None

    def restore_pending(self, loop: JoinedLoop, state: Mapping[str, Any] | None) -> None:
        """Restores what `pending` returned."""
        if state is not None:
            self._results[loop] = result_of(state)

    def episode_seeds(self, loop: JoinedLoop) -> Tensor:
        """`[env]`, of the episodes of one training run that are in progress."""
        batch = self._batch_of(loop)
        return loop.own_episode_seeds if batch is None else batch.episode_seeds(loop)

    def write_back(self, loop: JoinedLoop) -> None:
        """Sets a training's own environments to what they are in its batch."""
        batch = self._batch_of(loop)
        if batch is not None:
            batch.write_back(loop)

    def separate(self) -> None:
        """Ends the batches; the next call of `advance` joins those that are left."""
        for batch in self._batches or ():
            batch.end()
        self._batches = None

    def remove(self, loop: JoinedLoop) -> None:
        self.keep([other for other in self._loops if other is not loop])

    def keep(self, loops: Sequence[Loop]) -> None:
        """All others leave. These are joined in this order, on which sums and shared buffers depend."""
        kept = sorted((loop for loop in self._loops if loop in loops), key=loops.index)
        if kept != self._loops:
            self.separate()
            self._loops = kept
            self._results = {loop: result for loop, result in self._results.items() if loop in loops}

    def _batch_of(self, loop: JoinedLoop) -> _Batch | None:
        return next((batch for batch in self._batches or () if loop in batch.loops), None)


class _Stack:
    """The networks and learners of training runs of equal shapes as one.

    Attributes:
        loops: of the training runs.
    """

    def __init__(self, loops: Sequence[JoinedLoop]) -> None:
        self.loops = list(loops)
        self._learners = {
            group: stack_learners([loop.learners[group] for loop in loops]) for group in loops[0].learners
        }
        for learner in self._learners.values():
            learner.bind(self._learners)

    def policies(self, rows: slice = ALL) -> dict[str, Policy]:
        """By group, what acts for these training runs."""
        generators = [loop.generator for loop in self.loops]
        return {group: learner.policy(generators, rows) for group, learner in self._learners.items()}

    def update(self, rollouts: Mapping[JoinedLoop, Rollout]) -> dict[JoinedLoop, dict[str, dict[str, float]]]:
        """As `Learner.update` of each training run, by group."""
        parts = [rollouts[loop] for loop in self.loops]
        by_group = {group: learner.update(parts) for group, learner in self._learners.items()}
        return {loop: {group: metrics[k] for group, metrics in by_group.items()} for k, loop in enumerate(self.loops)}


class _Batch:
    """The environments of some training runs as one, with their networks in as few stacks as possible.

    Attributes:
        loops: of the training runs, those of equal shapes next to each other.
    """

    def __init__(self, loops: Sequence[JoinedLoop]) -> None:
        self._stacks = [_Stack(group) for group in grouped(loops, _have_equal_networks)]
        self.loops = [loop for stack in self._stacks for loop in stack.loops]
        parts = self._parts()
        self._networks = nn.ModuleList(policy for _, policies in parts for policy in policies.values())
        self._collectors = [self._collector_of(of_part, policies) for of_part, policies in parts]
        self._places = {
            loop: (collector, k)
            for (of_part, _), collector in zip(parts, self._collectors)
            for k, loop in enumerate(of_part)
        }

    def _parts(self) -> list[tuple[list[JoinedLoop], dict[str, Policy]]]:
        """Which training runs act and step as one. With several parts, some act while the processes of others step."""
        if not self.loops[0].env.steps_in_processes:
            sizes = [len(stack.loops) * self.loops[0].experiment.n_envs for stack in self._stacks]
            by_stack = [stack.policies() for stack in self._stacks]
            joined = {name: side_by_side([policies[name] for policies in by_stack], sizes) for name in by_stack[0]}
            return [(self.loops, joined)]
        if len(self._stacks) > 1:
            return [(stack.loops, stack.policies()) for stack in self._stacks]
        (stack,), half = self._stacks, len(self.loops) // 2
        return [(stack.loops[rows], stack.policies(rows)) for rows in (slice(0, half), slice(half, None))]

    def _collector_of(self, loops: Sequence[JoinedLoop], policies: Mapping[str, Policy]) -> JoinedCollector:
        envs, steps = [loop.env for loop in loops], [loop.current_step for loop in loops]
        first_steps = [loop.first_steps for loop in loops]
        return JoinedCollector(loops[0].experiment, envs, steps, first_steps, policies, loops[0].device)

    def advance(self) -> dict[JoinedLoop, Result]:
        """One rollout and update of all; errors are those of single training runs."""
        try:
            return self._advance()
        except MarlnbError as error:  # of all: what they did since their last checkpoints is not whole
            return dict.fromkeys(self.loops, error)

    def _advance(self) -> dict[JoinedLoop, Result]:
        start = time.perf_counter()
        timing = Timing()
        with fast_training(self._networks):
            parts = collect_joined(self._collectors, timing)
        counted = [_or_error(loop.check_and_count, part) for loop, part in zip(self.loops, parts)]
        learning_start = time.perf_counter()
        learned: dict[JoinedLoop, dict[str, dict[str, float]]] = {}
        for stack in self._stacks:
            learned |= stack.update(dict(zip(self.loops, parts)))
        end = time.perf_counter()
        times = timing.stepping_s, timing.acting_s, end - learning_start, end - start  # of all training runs
        results: dict[JoinedLoop, Result] = {}
        for loop, part, episodes in zip(self.loops, parts, counted):
            if isinstance(episodes, MarlnbError):
                results[loop] = episodes
                continue
            learning = learned[loop]
            try:
                loop.check_learning(learning)
            except MarlnbError as error:
                results[loop] = error
                continue
            agent_steps = sum(int(part[group, "acting"].sum()) for group in learning)
            results[loop] = Advance(episodes, learning, agent_steps, *times, joined_s=end - start)
        return results

    def episode_seeds(self, loop: JoinedLoop) -> Tensor:
        """`[env]`, of one training run."""
        collector, k = self._places[loop]
        return collector.episode_seeds(k)

    def write_back(self, loop: JoinedLoop) -> None:
        collector, k = self._places[loop]
        loop.continue_from(*collector.write_back(k))

    def end(self) -> None:
        for loop in self.loops:
            self.write_back(loop)
        for collector in self._collectors:
            collector.close()


def _or_error(function: Callable[[T], R], value: T) -> R | MarlnbError:
    try:
        return function(value)
    except MarlnbError as error:
        return error


def grouped(items: Sequence[T], belong_together: Callable[[T, T], bool]) -> list[list[T]]:
    """The items that belong together, in their order."""
    groups: list[list[T]] = []
    for item in items:
        group = next((group for group in groups if belong_together(group[0], item)), None)
        if group is None:
            groups.append([item])
        else:
            group.append(item)
    return groups


def _have_equal_envs(a: JoinedLoop, b: JoinedLoop) -> bool:
    """Whether the environments of two loops can step in one batch, with policies of the same kinds."""
    kinds = (type(a.policies[name]) is type(policy) for name, policy in b.policies.items())
    return _are_equal(a, b, EQUAL_OPTIONS) and all(kinds)


def _have_equal_networks(a: JoinedLoop, b: JoinedLoop) -> bool:
    """Whether the networks and learners of two loops can be stacked."""
    shapes = (have_equal_shapes((a.learners[name], learner)) for name, learner in b.learners.items())
    return _are_equal(a, b, EQUAL_NETWORKS) and all(shapes)


def _are_equal(a: JoinedLoop, b: JoinedLoop, names: Sequence[str]) -> bool:
    return all(getattr(a.experiment, name) == getattr(b.experiment, name) for name in names)


def result_state(result: Result) -> dict[str, Any]:
    """Tensors, numbers and strings, from which `result_of` makes the result again."""
    if isinstance(result, MarlnbError):
        return {"error": str(result)}
    state = {item.name: getattr(result, item.name) for item in fields(result) if item.name != "episodes"}
    returns = {name: _tensor(values) for name, values in result.episodes.returns.items()}
    return {**state, "returns": returns, "lengths": _tensor(result.episodes.lengths)}


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).clone(memory_format=torch.contiguous_format)  # also without any episode


def result_of(state: Mapping[str, Any]) -> Result:
    if "error" in state:
        return DivergedError(state["error"])
    others = {name: value for name, value in state.items() if name not in ("returns", "lengths")}
    returns = {name: values.numpy() for name, values in state["returns"].items()}
    return Advance(EpisodeStatistics(returns, state["lengths"].numpy()), **others)
