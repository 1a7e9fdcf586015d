"""TensorEnv: a batched environment of your own, with its options and rules in one class.

    @mnb.environment("my/chase")
    class Chase(mnb.TensorEnv):
        def groups(self): ...                       # the groups, what agents observe and do
        def start(self, draw): ...                  # the state at an episode's start
        def step(self, state, action, draw): ...    # the next state, and the rewards
        def observe(self, state): ...               # what each agent observes

Free of torch: options are composed without it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marlnb.config import EnvConfig, option
from marlnb.envs.tensor.rules import Rules
from marlnb.specs import ActionSpec, EnvFacts, EnvSpec, GroupSpec, LabelSpec, ObservationSpec

if TYPE_CHECKING:
    from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv


@dataclass(frozen=True)
class TensorEnv(EnvConfig, Rules):
    """A batched environment of your own: its options, and the functions of `Rules`.

    Every field of the class is an option: `env.max_steps=50`. A class that overrides `acting` is turn-based.
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
        simultaneous = type(self).acting is Rules.acting
        return EnvSpec(self.name, groups, max_steps=self.max_steps, labels=labels, simultaneous=simultaneous)

    @property
    def facts(self) -> EnvFacts:
        spec = self.spec
        return EnvFacts(batched=True, max_steps=spec.max_steps, n_agents=len(spec.agents), groups=spec.group_names)

    def build(self, n_envs: int, device: str = "cpu") -> TensorVectorEnv:
        from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv

        return TensorVectorEnv(self, n_envs, device)


def agent_group(
    name: str,
    n_agents: int,
    *,
    observes: int | Sequence[str],
    acts: int | Sequence[str] | ActionSpec,
    action_mask: bool = False,
) -> GroupSpec:
    """A group of agents `<name>_0`, `<name>_1`, ....

    Args:
        name: of the group.
        n_agents: number of agents.
        observes: number of float32 features, or their names.
        acts: number of choices, or their names, or an ActionSpec.
        action_mask: whether the class's function `action_mask` returns a mask for the group.
    """
    features = () if isinstance(observes, int) else tuple(observes)
    size = observes if isinstance(observes, int) else len(features)
    if not isinstance(acts, ActionSpec):
        choices = () if isinstance(acts, int) else tuple(acts)
        acts = ActionSpec("discrete", n=(acts if isinstance(acts, int) else len(choices),), names=choices)
    agents = tuple(f"{name}_{index}" for index in range(n_agents))
    return GroupSpec(name, agents, ObservationSpec((size,), names=features), acts, action_mask)
