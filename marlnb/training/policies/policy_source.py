"""Subject: whose agents are played, recorded, evaluated and explained. A run is one; so are agents from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, runtime_checkable

from marlnb.config import EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.runs.run import Origin, Run
from marlnb.training.runs.run_folder import Which


@runtime_checkable
class PolicySource(Protocol):
    """Policies by group, with an environment in which they act and a folder for what is learnt about them.

    Attributes:
        path: the folder; recordings lie in its `recordings/`.
        n_envs: copies stepped at once, as its maker had it.
    """

    @property
    def path(self) -> Path: ...
    @property
    def spec(self) -> EnvSpec: ...
    @property
    def n_envs(self) -> int: ...
    @property
    def experiment(self) -> Experiment | None:
        """What trained them; None where marlnb did not."""

    def build_env(self, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
        """Copies of its environment, or of another whose agents are grouped alike; the caller closes them."""

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        """The policy of each group, ready to act."""

    def origin(self, checkpoint: Which = "last") -> Origin:
        """Which weights `policies` gives.

        Raises:
            CheckpointError: there is no such checkpoint.
        """

    def policy_index(self, group: GroupSpec) -> list[int]:
        """For each agent of a group the number of its network, counted from 0: the same where they share one."""


def as_policy_source(subject: PolicySource | str | os.PathLike[str]) -> PolicySource:
    """A subject as it is, or the run in a folder."""
    return Run.open(subject) if isinstance(subject, (str, os.PathLike)) else subject
