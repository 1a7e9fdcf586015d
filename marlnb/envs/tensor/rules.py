"""The rules of a batched environment: a few pure functions on tensors. Free of torch: options load without it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from marlnb.errors import EnvBuildError, EnvError
from marlnb.specs import EnvSpec

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from marlnb.envs.tensor.philox import Draws

State = Mapping[str, "Tensor"]
ByGroup = Mapping[str, "Tensor"]
TIME = "time"


class Rules(ABC):
    """A game as pure functions. Each works on all envs at once, returns new tensors and never writes to its arguments.

    A state is a mapping of names to tensors `[env, ...]`, whose shapes and dtypes never change. `state["time"]` `[env]`
    int64, the steps made in the current episode, is added to it and counted by `TensorVectorEnv`.

    For a GPU: no Python branch on a tensor's value, no `.item()`, no boolean index; `torch.where` instead.
    `check_vector_env` reports the lines that would wait for the device.

    Attributes:
        spec: groups, spaces, labels, time limit.
        fixed_start: whether `start` returns the same state for every seed.
        writes_state: whether `step` writes the next state into the tensors of the state that it gets.
    """

    spec: EnvSpec
    fixed_start: bool = False
    writes_state: bool = False

    @abstractmethod
    def start(self, draw: Draws) -> State:
        """The state at the start of an episode, of every env."""

    @abstractmethod
    def step(self, state: State, action: ByGroup, draw: Draws) -> tuple[State, ByGroup]:
        """The next state, and per group the rewards `[env, agent]` of this step.

        Args:
            state: `state["time"]` does not count this step yet.
            action: per group, as its ActionSpec states; 0 for agents that do not act.
            draw: random numbers of this step.
        """

    @abstractmethod
    def observe(self, state: State) -> ByGroup:
        """Per group `[env, agent, *shape]`; rows of agents that are not alive are ignored."""

    def terminated(self, state: State) -> Tensor | None:
        """`[env]` bool: the rules end the episode in this state. None: only the time limit ends it."""
        return None

    def alive(self, state: State) -> ByGroup:
        """Per group `[env, agent]` bool; groups left out are always alive. The dead stay dead until the episode ends;
        it also ends when none is left."""
        return {}

    def acting(self, state: State) -> ByGroup:
        """Per group `[env, agent]` bool, the agents that act next, if alive; groups left out act at every step."""
        return {}

    def action_mask(self, state: State) -> ByGroup:
        """Per group `[env, agent, n_logits]` bool, for groups whose spec has an action mask."""
        return {}

    def labels(self, state: State) -> ByGroup:
        """The labels of the spec: `[env]`, or `[env, agent]` for a label of one group."""
        return {}

    def label_state(self, state: State) -> Tensor | None:
        """`[env, value]`: everything that `labels_of` needs to compute the labels later; None: only `labels` does."""
        return None

    def labels_of(self, label_states: Tensor) -> ByGroup:
        """The labels in many label states `[row, value]`: `[row]`, or `[row, agent]`."""
        raise EnvError(f"{self.spec.name} computes labels for the current time step only; use labels()")

    def draw_picture(self, state: State) -> np.ndarray:
        """The only env of `state` as an image `[height, width, 3]` uint8.

        Args:
            state: of one env, on the CPU.
        """
        raise EnvBuildError(f"{self.spec.name} cannot be rendered: {type(self).__name__} has no draw_picture")
