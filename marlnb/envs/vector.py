"""VectorEnv: B copies of an environment stepped at once. The one protocol that training, recording and tests know."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.workers.memory import Arrays, allocated
from marlnb.errors import EnvBuildError, EnvError
from marlnb.specs import EnvSpec

SEED_SPAN = 2**31


@dataclass(slots=True)
class GroupStep:
    """One group's buffers, allocated once and overwritten by the next `step` or `reset`.

    The moment before the next action (after an episode's end: the first moment of the new episode):
        observation `[env, agent, *shape]`; alive, acting `[env, agent]` bool (acting: asked for an action now; acting
        implies alive); action_mask `[env, agent, n_logits]` bool, True where allowed, None where there is none.
        Rows of agents that are not alive are zero in observation.
    The transition just made (all zero after `reset`):
        reward `[env, agent]` float32; terminated, truncated `[env, agent]` bool, True on the one step at which that
        agent's episode ends; final_observation `[env, agent, *shape]`, what the agent saw at that end, valid where
        terminated or truncated.
    """

    observation: Tensor
    alive: Tensor
    acting: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_observation: Tensor
    action_mask: Tensor | None = None


@dataclass(slots=True)
class Step:
    """What `reset` and `step` return: buffers per group, and what is common to a copy.

    done `[env]` bool: the copy's episode has just ended and it has been reset already.
    episode_seed `[env]` int64: the seed of the episode that the observations belong to.
    state, final_state `[env, *state_shape]`: as observation and final_observation, None where there is no state.
    memory `[byte]` uint8: where all of these lie together on the CPU, so that a step can be kept with one copy; None
    where they do not.
    """

    groups: dict[str, GroupStep]
    done: Tensor
    episode_seed: Tensor
    state: Tensor | None = None
    final_state: Tensor | None = None
    memory: np.ndarray | None = None


class VectorEnv(ABC):
    """B copies of one environment, per-group tensors, reset by themselves at an episode's end.

    The k-th episode of copy b runs under the seed `(seed + k * n_envs + b) mod 2**31`: distinct for every copy and
    episode, and the whole rollout is a function of `seed` and the actions.
    """

    spec: EnvSpec
    n_envs: int
    device: torch.device

    @abstractmethod
    def reset(self, seed: int) -> Step:
        """Starts every copy anew; episode numbers start at zero."""

    @abstractmethod
    def step(self, actions: Mapping[str, Tensor]) -> Step:
        """Steps every copy.

        Args:
            actions: per group, as `ActionSpec` says; the values for agents that are not acting are ignored. They are
                the caller's: never written to.
        """

    def state_dict(self) -> dict[str, Tensor] | None:
        """Everything that `load_state_dict` needs to go on bit for bit; None where it cannot be saved."""
        return None

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        """Goes on from a saved state; returns the step whose observations are current."""
        raise EnvError(f"{self.spec.name} cannot be restored from a saved state; reset it with a known seed instead")

    def labels(self) -> dict[str, Tensor]:
        """The concepts of `spec.labels` at the current moment: `[env]` or `[env, agent of the group]`."""
        return {}

    def label_moment(self) -> Tensor | None:
        """The current moment as `labels_of` takes it, `[env, value]`, for an environment that can tell labels later and
        of many moments at once; valid until the next step. None: its labels are asked for at each."""
        return None

    def labels_of(self, moments: Tensor) -> dict[str, Tensor]:
        """The concepts of `spec.labels` in moments `[moment, value]`: `[moment]` or `[moment, agent of the group]`."""
        raise EnvError(f"{self.spec.name} tells its labels at each moment only; ask labels()")

    def render(self, index: int = 0) -> np.ndarray:
        """Copy `index` as an image `[height, width, 3]` uint8.

        Raises:
            EnvError: it has no picture, or was built without one.
        """
        raise EnvBuildError(f"{self.spec.name} has no picture to render")

    def announce(self, folder: Path) -> None:
        """Leaves in a run's folder what other processes need to find this environment; most have nothing to tell."""

    def hurry(self) -> None:
        """An end is asked for: one that waits for somebody outside waits no more; safe from a signal handler."""

    def close(self) -> None:
        """Frees processes and memory; safe to call twice."""

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def allocate_step(spec: EnvSpec, n_envs: int, device: torch.device | str) -> Step:
    """Zeroed buffers for `spec`, all agents alive and acting."""
    step = step_of(allocated(spec, n_envs))
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
    """Tensors over the arrays' own memory."""

    def tensor(array: np.ndarray | None) -> Tensor | None:
        return None if array is None else torch.from_numpy(array)

    groups = {
        name: GroupStep(**{field.name: tensor(getattr(group, field.name)) for field in fields(GroupStep)})  # type: ignore[arg-type]
        for name, group in arrays.groups.items()
    }
    common = {name: tensor(getattr(arrays, name)) for name in ("done", "episode_seed", "state", "final_state")}
    return Step(groups, **common, memory=arrays.memory)  # type: ignore[arg-type]


def episode_seeds(seed: int, episode: Tensor) -> Tensor:
    """The seed of episode number `episode[b]` of each copy b, `[env]` int64."""
    copies = torch.arange(episode.numel(), device=episode.device)
    return (seed + episode * episode.numel() + copies) % SEED_SPAN
