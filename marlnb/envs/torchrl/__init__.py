"""torchrl both ways: any EnvBase as a VectorEnv, any VectorEnv as an EnvBase. Importing this registers names only."""

from __future__ import annotations

from marlnb.envs.torchrl.config import torchrl_vector_env as torchrl_vector_env
