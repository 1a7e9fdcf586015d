"""A config class for each of VMAS's scenarios, registered as `vmas/<name>`."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.config import ENVIRONMENTS
from marlnb.envs.vmas.scenarios import VmasOptions, scenario_files
from marlnb.specs import EnvFacts

if TYPE_CHECKING:
    from marlnb.envs.vmas.env import VmasVectorEnv


@dataclass(frozen=True, kw_only=True)
class VmasConfig(VmasOptions):
    """One VMAS scenario."""

    tuned = Path(__file__).with_name("tuned.yaml")

    @property
    def facts(self) -> EnvFacts:
        n_agents = self.kwargs.get("n_agents")
        return EnvFacts(
            batched=True,
            max_steps=self.max_steps,
            n_agents=n_agents if isinstance(n_agents, int) else None,
            groups=tuple(self.groups),
        )

    def build(self, n_envs: int, device: str = "cpu") -> VmasVectorEnv:
        """B = `n_envs` envs on `device`, not yet reset.

        Raises:
            EnvError: VMAS is missing or rejects the arguments, or agents in one group have different spaces.
        """
        from marlnb.envs.vmas.env import VmasVectorEnv

        return VmasVectorEnv(self, n_envs, device)


def register_installed() -> None:
    """Registers a config class for each scenario."""
    for name in scenario_files():
        kind = make_dataclass(
            f"{name.title().replace('_', '')}Config",
            (),
            bases=(VmasConfig,),
            namespace={"__doc__": f"VMAS's {name}.", "__module__": __name__, "scenario": name},
            frozen=True,
            kw_only=True,
        )
        globals()[kind.__name__] = ENVIRONMENTS.register(f"vmas/{name}")(kind)


register_installed()
