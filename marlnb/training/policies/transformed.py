"""Changed: a subject whose policies are taken through a function before they act, as one that adds a site to them, or
whose recordings are kept elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from marlnb.config import EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.errors import ConfigError, unknown
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.run import Origin
from marlnb.training.runs.run_folder import Which

Change = Callable[[Policy], Policy]


class TransformedPolicySource:
    """`subject` with changed policies; environment, folder and experiment are its own.

    Args:
        changes: by group, from its policy to the one that acts.
        told: what the changes are, in words or as a hash: enters the hash of the weights, so that a recording of the
            changed agents is not taken for one of the others. Without changes the weights are what they were.
        folder: where its recordings are kept; None: in the subject's own.
    Raises:
        ConfigError: a group that the subject does not have.
    """

    def __init__(
        self, subject: PolicySource, changes: Mapping[str, Change], told: str, *, folder: Path | None = None
    ) -> None:
        for group in changes:
            if group not in subject.spec.group_names:
                raise ConfigError(unknown(f"group of {subject.spec.name}", group, subject.spec.group_names))
        self.subject, self.changes, self.told, self.folder = subject, dict(changes), told, folder

    @property
    def path(self) -> Path:
        return self.folder or self.subject.path

    @property
    def spec(self) -> EnvSpec:
        return self.subject.spec

    @property
    def n_envs(self) -> int:
        return self.subject.n_envs

    @property
    def experiment(self) -> Experiment | None:
        return self.subject.experiment

    @property
    def source(self) -> str:
        return f"{getattr(self.subject, 'source', 'marlnb')}; {self.told}"

    def build_env(self, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
        return self.subject.build_env(n_envs, device=device, env=env)

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        found = self.subject.policies(checkpoint, device=device)
        return found | {group: change(found[group]).to(device).eval() for group, change in self.changes.items()}

    def origin(self, checkpoint: Which = "last") -> Origin:
        iteration, sha256 = self.subject.origin(checkpoint)
        if not self.changes:
            return Origin(iteration, sha256)
        return Origin(iteration, hashlib.sha256(f"{sha256} {self.told}".encode()).hexdigest())

    def policy_index(self, group: GroupSpec) -> list[int]:
        return self.subject.policy_index(group)
