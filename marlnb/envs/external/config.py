"""`env=external/server`: simulators in other processes that connect and ask for actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from marlnb.config import ENVIRONMENTS
from marlnb.envs.external.options import ExternalOptions

if TYPE_CHECKING:
    from marlnb.envs.external.env import ExternalEnv


@ENVIRONMENTS.register("external/server")
@dataclass(frozen=True, kw_only=True)
class ExternalConfig(ExternalOptions):
    """Simulators in other processes, which connect and ask for actions. Each of their episodes fills one env."""

    def build(self, n_envs: int, device: str = "cpu") -> ExternalEnv:
        """Slots for `n_envs` episodes at once, listening for simulators.

        Raises:
            ConfigError: the groups' file cannot be read or used.
            EnvError: the address cannot be listened at.
        """
        from marlnb.envs.external.env import ExternalEnv

        return ExternalEnv(self, n_envs, device)
