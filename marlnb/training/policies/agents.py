"""Agents: policies from elsewhere with an environment. They are played, recorded and explained like a run's."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping

from torch import Tensor

from marlnb.config import EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import CheckpointError, ConfigError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.paths import expanded
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.policies.compatibility import check_group_fit
from marlnb.training.runs.run import Origin
from marlnb.training.runs.run_folder import Which

EnvMaker = Callable[[int, str], VectorEnv]


class Agents:
    """A policy source made of policies by group and an environment.

    Attributes:
        by_group: every group's policy.
        env: a configuration, or a function `(n_envs, device) -> VectorEnv`.
        path: folder of their recordings.
        source: where they come from, in words; stored in recordings.
        n_envs: environments stepped at once by default.
        networks: by group, the number of each agent's network; all 0 (shared) if missing.
    Raises:
        ConfigError: the groups are not those of the environment, or observations or actions differ.
    """

    experiment: Experiment | None = None  # marlnb did not train them

    @closing_pools()
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
        self.by_group, self.env, self.path = dict(by_group), env, expanded(path)
        self.source, self.n_envs, self.networks = source, n_envs, dict(networks or {})
        with self.build_env(1) as built:
            self.spec: EnvSpec = built.spec
        if set(self.by_group) != set(self.spec.group_names):
            raise ConfigError(
                f"policies are for {sorted(self.by_group)}; expected the groups {list(self.spec.group_names)} of "
                f"{self.spec.name}"
            )
        for name, policy in self.by_group.items():
            check_group_fit(policy.group, self.source, self.spec.group(name), self.spec.name)

    def __repr__(self) -> str:
        groups = ", ".join(f"{group.name} ({', '.join(group.agents)})" for group in self.spec.groups)
        return f"<Agents from {self.source} in {self.spec.name}: {groups}>"

    def build_env(self, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
        maker = env or self.env
        return maker.build(n_envs, device) if isinstance(maker, EnvConfig) else maker(n_envs, device)

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        self.origin(checkpoint)
        return {name: policy.to(device).eval() for name, policy in self.by_group.items()}

    def origin(self, checkpoint: Which = "last") -> Origin:
        if str(checkpoint).partition(":")[0] not in ("last", "best", "0"):
            raise CheckpointError(f"no checkpoint {checkpoint!r}: agents from {self.source} have one set of weights")
        return Origin(0, weights_sha256(self.by_group))

    def policy_index(self, group: GroupSpec) -> list[int]:
        return self.networks.get(group.name, [0] * group.n_agents)


def weights_sha256(policies: Mapping[str, Policy]) -> str:
    """A hash of every tensor of the policies, by group and name."""
    return states_sha256({name: policy.state_dict() for name, policy in policies.items()})


def states_sha256(states: Mapping[str, Mapping[str, Tensor]]) -> str:
    """`weights_sha256` of policies with these tensors, by group."""
    digest = hashlib.sha256()
    for name, state in sorted(states.items()):
        for key, tensor in state.items():
            digest.update(f"{name}/{key} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()
