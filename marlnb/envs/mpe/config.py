"""The base class of the registered MPE configs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from marlnb.envs.mpe.scenario import MPEOptions

if TYPE_CHECKING:
    from marlnb.envs.mpe.env import MPE


@dataclass(frozen=True)
class MPEConfig(MPEOptions):
    """The options of one scenario, registered as `mpe/<scenario>`."""

    def build(self, n_envs: int, device: str = "cpu") -> MPE:
        from marlnb.envs.mpe.env import MPE

        return MPE(self, n_envs, device)
