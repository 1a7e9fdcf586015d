"""The rules of a batched environment: a few pure functions on tensors. `TensorEnv` is what a user writes.

    @mnb.environment("my/chase")
    class Chase(mnb.TensorEnv):
        def groups(self): ...                       # who there is, what each observes and does
        def start(self, draw): ...                  # the state at an episode's start
        def step(self, state, action, draw): ...    # the next state, and the rewards
        def observe(self, state): ...               # what each agent observes

Free of torch: options are composed without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marlnb.config import EnvConfig, option
from marlnb.errors import EnvError
from marlnb.specs import ActionSpec, EnvFacts, EnvSpec, GroupSpec, LabelSpec, ObservationSpec

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from marlnb.envs.tensor.env import TensorVectorEnv
    from marlnb.envs.tensor.philox import Draws

State = Mapping[str, "Tensor"]
ByGroup = Mapping[str, "Tensor"]
TIME = "time"


class Rules(ABC):
    """A game as pure functions. Each works on all envs at once, returns new tensors and never writes to its arguments.

    A state is a mapping of names to tensors `[env, ...]`, whose shapes and dtypes never change. `state["time"]` `[env]`
    int64, the steps made in the current episode, is added to it and counted by `TensorVectorEnv`.

    For a GPU: no Python branch on a tensor's value, no `.item()`, no boolean index; `torch.where` instead.
    `check_vector_env` points to the lines that would wait for the device.

    Attributes:
        spec: groups, spaces, labels, time limit.
        fixed_start: whether `start` returns the same state for every seed.
    """

    spec: EnvSpec
    fixed_start: bool = False

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

    def draw_picture(self, state: State) -> np.ndarray:
        """The only env of `state` as an image `[height, width, 3]` uint8.

        Args:
            state: of one env, on the CPU.
        """
        raise EnvError(f"{self.spec.name} cannot be rendered: {type(self).__name__} has no draw_picture")


@dataclass(frozen=True)
class TensorEnv(EnvConfig, Rules):
    """A batched environment of one's own: its options, and the functions of `Rules`.

    Every field of the class is an option: `env.max_steps=50`.
    """

    max_steps: int = option(100, help="length of an episode", unit="steps", ge=1)

    @abstractmethod
    def groups(self) -> Sequence[GroupSpec]:
        """The groups of agents, as `agent_group` makes them."""

    def label_specs(self) -> Sequence[LabelSpec]:
        """The labels that `labels` computes."""
        return ()

    @property
    def spec(self) -> EnvSpec:  # type: ignore[override]
        groups, labels = tuple(self.groups()), tuple(self.label_specs())
        return EnvSpec(self.name, groups, max_steps=self.max_steps, labels=labels)

    @property
    def facts(self) -> EnvFacts:
        return facts_of(self.spec)

    def build(self, n_envs: int, device: str = "cpu") -> TensorVectorEnv:
        from marlnb.envs.tensor.env import TensorVectorEnv

        return TensorVectorEnv(self, n_envs, device)


def facts_of(spec: EnvSpec) -> EnvFacts:
    """What is known about a batched environment with this spec."""
    return EnvFacts(batched=True, max_steps=spec.max_steps, n_agents=len(spec.agents), groups=spec.group_names)


def agent_group(
    name: str, n_agents: int, *, observes: int | Sequence[str], acts: int | Sequence[str] | ActionSpec
) -> GroupSpec:
    """A group of agents `<name>_0`, `<name>_1`, ....

    Args:
        name: of the group.
        n_agents: number of agents.
        observes: number of float32 features, or their names.
        acts: number of choices, or their names, or an ActionSpec.
    """
    features = () if isinstance(observes, int) else tuple(observes)
    size = observes if isinstance(observes, int) else len(features)
    if not isinstance(acts, ActionSpec):
        choices = () if isinstance(acts, int) else tuple(acts)
        acts = ActionSpec("discrete", n=(acts if isinstance(acts, int) else len(choices),), names=choices)
    agents = tuple(f"{name}_{index}" for index in range(n_agents))
    return GroupSpec(name, agents, ObservationSpec((size,), names=features), acts)
