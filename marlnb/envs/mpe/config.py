"""The base class of the registered MPE configs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.envs.mpe.scenario import MPEOptions
from marlnb.specs import EnvFacts

if TYPE_CHECKING:
    from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv


@dataclass(frozen=True)
class MPEConfig(MPEOptions):
    """The options of one scenario, registered as `mpe/<scenario>`."""

    tuned = Path(__file__).with_name("tuned.yaml")

    @property
    def facts(self) -> EnvFacts:
        scenario = self.scenario()
        return EnvFacts(
            batched=True,
            max_steps=self.max_cycles,
            n_agents=len(scenario.agents),
            groups=tuple(scenario.groups),
            rewards_groups_differently=scenario.rewards_groups_differently,
        )

    def build(self, n_envs: int, device: str = "cpu") -> TensorVectorEnv:
        from marlnb.envs.mpe.rules import MPERules
        from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv

        return TensorVectorEnv(MPERules(self), n_envs, device)
