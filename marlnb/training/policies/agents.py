"""Agents: policies that no run of marlnb's made, with an environment: played, recorded and explained as a run's are."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from marlnb.config import EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, ConfigError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.policies.compatibility import check_group_fit
from marlnb.training.runs.run import Origin
from marlnb.training.runs.run_folder import Which

EnvMaker = Callable[[int, str], VectorEnv]


class Agents:
    """A subject made of policies by group and an environment.

    Attributes:
        by_group: every group's policy.
        env: what to build copies from: a configuration, or a function `(n_envs, device) -> VectorEnv`.
        path: folder of the recordings made of them.
        source: where they come from, in words; recordings keep it.
        networks: by group, the number of each agent's network; all 0 (shared) where not given.
    Raises:
        ConfigError: the groups are not the environment's, or a policy's observations or actions are others.
    """

    def __init__(
        self,
        by_group: Mapping[str, Policy],
        env: EnvConfig | EnvMaker,
        path: str | os.PathLike[str],
        *,
        source: str = "elsewhere",
        n_envs: int = 32,
        networks: Mapping[str, list[int]] | None = None,
    ) -> None:
        self.by_group, self.env, self.path = dict(by_group), env, Path(path).expanduser()
        self.source, self.n_envs, self.networks = source, n_envs, dict(networks or {})
        with self.build_env(1) as one:
            self._spec = one.spec
        if set(self.by_group) != set(self._spec.group_names):
            raise ConfigError(
                f"policies are for {sorted(self.by_group)}; the groups of {self._spec.name} are "
                f"{list(self._spec.group_names)}"
            )
        for name, policy in self.by_group.items():
            check_group_fit(policy.group, self.source, self._spec.group(name), self._spec.name)

    @property
    def spec(self) -> EnvSpec:
        return self._spec

    @property
    def experiment(self) -> Experiment | None:
        return None

    def build_env(self, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
        made = env or self.env
        return made.build(n_envs, device) if isinstance(made, EnvConfig) else made(n_envs, device)

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        self.origin(checkpoint)
        return {name: policy.to(device).eval() for name, policy in self.by_group.items()}

    def origin(self, checkpoint: Which = "last") -> Origin:
        if checkpoint not in ("last", "best", 0, "0"):
            raise CheckpointError(f"these agents come from {self.source}, with one set of weights; got {checkpoint!r}")
        return Origin(0, weights_sha256(self.by_group))

    def policy_index(self, group: GroupSpec) -> list[int]:
        return self.networks.get(group.name, [0] * group.n_agents)


def weights_sha256(policies: Mapping[str, Policy]) -> str:
    """A hash of every tensor of the policies, by group and name."""
    digest = hashlib.sha256()
    for name, policy in sorted(policies.items()):
        for key, tensor in policy.state_dict().items():
            digest.update(f"{name}/{key} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()
