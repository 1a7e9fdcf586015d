"""VectorEnv: B environments stepped at once. The one interface that training run, recording and tests use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from marlnb.display.array_summary import FieldsSummary
from marlnb.display.formatting import count
from marlnb.display.notebook_html import note_html
from marlnb.display.spec_text import spec_html
from marlnb.envs.workers.memory import Arrays, allocate_arrays
from marlnb.errors import EnvBuildError, EnvError
from marlnb.specs import SEED_SPAN, EnvSpec


@dataclass(slots=True, repr=False)
class GroupStep(FieldsSummary):
    """One group's buffers: allocated once, overwritten by the next `step` or `reset`.

    The first four describe the current time step, before the next action. After an episode's end that is the first
    time step of the next episode. The others describe the transition just made; they are all zero after `reset`.

    Attributes:
        observation: `[env, agent, *shape]`; zero for agents that are not alive.
        alive: `[env, agent]` bool.
        acting: `[env, agent]` bool: the agent needs an action now. Acting implies alive.
        action_mask: `[env, agent, n_logits]` bool, True where allowed; None if the group has no mask.
        reward: `[env, agent]` float32.
        terminated: `[env, agent]` bool, True on the one step at which that agent's episode ends by the rules.
        truncated: `[env, agent]` bool, True on the one step at which that agent's episode is cut off.
        final_observation: `[env, agent, *shape]`, the agent's last observation; valid where terminated or truncated.
        final_action_mask: `[env, agent, n_logits]` bool, the choices that the agent would have had at its last
            observation; valid where truncated, and all True there if it would have waited. None if `action_mask` is.
    """

    observation: Tensor
    alive: Tensor
    acting: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_observation: Tensor
    action_mask: Tensor | None = None
    final_action_mask: Tensor | None = None


@dataclass(slots=True, repr=False)
class Step(FieldsSummary):
    """What `reset` and `step` return.

    Attributes:
        groups: the buffers of each group.
        done: `[env]` bool: the environment's episode has just ended, and the environment is already reset.
        episode_seed: `[env]` int64: the seed of the episode that the observations belong to.
        state: `[env, *state_shape]`, the global state now; None if the environment has none.
        final_state: `[env, *state_shape]`, the global state at the episode's end; valid where done.
    """

    groups: dict[str, GroupStep]
    done: Tensor
    episode_seed: Tensor
    state: Tensor | None = None
    final_state: Tensor | None = None

    def clear_transition(self) -> None:
        """Zeroes what describes the last transition: rewards and ends."""
        self.clear_ends()
        for group in self.groups.values():
            group.reward.zero_()

    def clear_ends(self) -> None:
        """Zeroes the flags of ends."""
        self.done.zero_()
        for group in self.groups.values():
            group.terminated.zero_()
            group.truncated.zero_()


class VectorEnv(ABC):
    """B environments of one kind, with tensors per group. Each resets itself when its episode ends.

    Episode k of environment b has the seed `(seed + k * n_envs + b) mod 2**31`. The seeds of all environments and
    episodes differ, and the whole rollout is a function of `seed` and the actions.

    Attributes:
        spec: groups, spaces and labels.
        n_envs: B.
        device: where the step's tensors are.
        resets_each: whether `reset_each` works.
        state_axis: axis of the environments in the tensors of `state_dict`, so that the states of several can be joined
            to one (`marlnb.envs.joined`); None: they cannot.
        restarts_by_mask: whether each step computes the start of an episode for all envs, and selects with
            `torch.where` those that start. If true, a step never waits for a value from the device and can be captured
            as a CUDA graph: its tensors keep their places. None: the environment does not step on tensors alone.
        steps_in_processes: whether other processes step between `start_step` and `finish_step`.
        episode_stride: difference between the seeds of an environment's successive episodes; None: n_envs.
    """

    spec: EnvSpec
    n_envs: int
    device: torch.device
    resets_each: bool = False
    state_axis: int | None = None
    steps_in_processes: bool = False
    episode_stride: int | None = None
    restarts_by_mask: bool | None = None
    _actions_of_step: Mapping[str, Tensor]  # between `start_step` and `finish_step`
    _end_pictures: dict[int, np.ndarray] | None = None  # by environment; None: they are not drawn

    def __repr__(self) -> str:
        groups = ", ".join(f"{group.name} ({group.n_agents})" for group in self.spec.groups)
        return f"<{count(self.n_envs, 'env')} of {self.spec.name} on {self.device}: {groups}>"

    def _repr_html_(self) -> str:
        return note_html(f"{count(self.n_envs, 'env')} on {self.device}") + spec_html(self.spec)

    @abstractmethod
    def reset(self, seed: int) -> Step:
        """Starts a new episode in every environment; episode numbers start at zero."""

    def reset_each(self, seeds: Tensor) -> Step:
        """As `reset`, but environment b starts with the episode of `seeds[b]`, `[env]` int64 in `[0, 2**31)`; its k-th
        episode has the seed `seeds[b] + k * n_envs`.

        Several environments can then play one episode, each with another edit, or any single episode can be repeated.

        Raises:
            EnvError: this environment cannot.
        """
        raise EnvError(f"{self.spec.name} cannot start with chosen seeds in each of its environments; use reset(seed)")

    @abstractmethod
    def step(self, actions: Mapping[str, Tensor]) -> Step:
        """Steps every environment.

        Args:
            actions: per group, in the form that `ActionSpec` states. Values of agents that are not acting are ignored.
                The tensors belong to the caller and are never written to.
        """

    def start_step(self, actions: Mapping[str, Tensor]) -> None:
        """Begins a step, which `finish_step` returns; in between, environments in other processes step already."""
        self._actions_of_step = actions

    def finish_step(self) -> Step:
        """The step that `start_step` began."""
        return self.step(self._actions_of_step)

    def state_dict(self) -> dict[str, Tensor] | None:
        """Everything that `load_state_dict` needs to continue with the same bits; None if the env cannot be saved."""
        return None

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        """Continues from a saved state; returns the step whose observations are current."""
        raise EnvError(f"{self.spec.name} cannot be restored from a saved state; reset it with a known seed instead")

    def labels(self) -> dict[str, Tensor]:
        """The labels of `spec.labels` now: `[env]`, or `[env, agent]` for a label of one group."""
        return {}

    def label_state(self) -> Tensor | None:
        """`[env, value]`: everything that `labels_of` needs to compute the current labels later; valid until the next
        step. None if this environment computes labels only with `labels()`."""
        return None

    def labels_of(self, states: Tensor) -> dict[str, Tensor]:
        """The labels of `spec.labels` in many label states `[row, value]`: `[row]`, or `[row, agent]`."""
        raise EnvError(f"{self.spec.name} computes labels for the current time step only; use labels()")

    def render(self, index: int = 0) -> np.ndarray:
        """Environment `index` as an image `[height, width, 3]` uint8.

        Raises:
            EnvError: there is no such environment, or it cannot be drawn.
        """
        raise EnvBuildError(f"{self.spec.name} cannot be rendered")

    def draw_ends(self) -> None:
        """From now on, an environment is drawn after each episode's last step, before its next one starts.

        Environments in other processes are not.
        """
        self._end_pictures = {}

    def end_picture(self, index: int = 0) -> np.ndarray | None:
        """Environment `index` after the last step of its previous episode, as `render` draws it; None: not drawn."""
        return None if self._end_pictures is None else self._end_pictures.get(index)

    def close(self) -> None:
        """Frees processes and memory. Calling it twice is allowed."""

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_index(self, index: int) -> None:
        """Raises EnvError if there is no environment `index`."""
        if not 0 <= index < self.n_envs:
            raise EnvError(f"{self.spec.name} has environments 0 to {self.n_envs - 1}; got {index}")


def check_n_envs(name: str, n_envs: int) -> None:
    """Raises EnvBuildError unless it is a whole number and at least 1."""
    if isinstance(n_envs, bool) or not isinstance(n_envs, Integral):
        raise EnvBuildError(f"{name} needs a whole number of envs; got n_envs={n_envs!r}")
    if n_envs < 1:
        raise EnvBuildError(f"{name} needs at least one env; got n_envs={n_envs}")


def allocate_step(spec: EnvSpec, n_envs: int, device: torch.device | str) -> Step:
    """Zeroed buffers for `spec`, with all agents alive and acting."""
    step = step_of(allocate_arrays(replace(spec, labels=()), n_envs))
    for group in step.groups.values():
        for flags in (group.alive, group.acting, group.action_mask):
            if flags is not None:
                flags.fill_(True)
    if torch.device(device).type == "cpu":
        return step

    def moved(part: GroupStep | Step) -> dict[str, Tensor]:
        return {name: x.to(device) for name in part.__slots__ if isinstance(x := getattr(part, name), Tensor)}

    return Step({name: GroupStep(**moved(group)) for name, group in step.groups.items()}, **moved(step))  # type: ignore[arg-type]


def step_of(arrays: Arrays) -> Step:
    """Tensors that share the arrays' memory."""

    def tensor(array: np.ndarray | None) -> Tensor | None:
        return None if array is None else torch.from_numpy(array)

    groups = {
        name: GroupStep(**{field.name: tensor(getattr(group, field.name)) for field in fields(GroupStep)})  # type: ignore[arg-type]
        for name, group in arrays.groups.items()
    }
    shared = {name: tensor(getattr(arrays, name)) for name in ("done", "episode_seed", "state", "final_state")}
    return Step(groups, **shared)  # type: ignore[arg-type]


def seed_bases(seeds: Tensor, n_envs: int, device: torch.device) -> Tensor:
    """What `episode_seeds` needs as its `seed` so that environment b starts with `seeds[b]`, `[env]` int64.

    Raises:
        EnvError: not one seed for each environment.
    """
    if tuple(seeds.shape) != (n_envs,):
        raise EnvError(f"reset_each needs one seed for each of {n_envs} environments; got the shape {[*seeds.shape]}")
    return seeds.to(device) - torch.arange(n_envs, device=device)


def episode_seeds(seed: int | Tensor, episode: Tensor, stride: int | None = None) -> Tensor:
    """The seed of episode number `episode[b]` of each environment b, `[env]` int64.

    Args:
        seed: that of `VectorEnv.reset`, or `seed_bases`.
        stride: between the seeds of an environment's successive episodes; None: the number of environments.
    """
    env_index = torch.arange(episode.numel(), device=episode.device)
    return (seed + episode * (stride or episode.numel()) + env_index) % SEED_SPAN
