"""PolicySource: agents that can be played, recorded, evaluated and explained: a run, or agents from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, runtime_checkable

from marlnb.config import EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.runs.run import Origin, Run, opened_run
from marlnb.training.runs.run_folder import Which


@runtime_checkable
class PolicySource(Protocol):
    """Policies by group, an environment for them, and a folder for the results.

    Attributes:
        path: the folder; recordings are in its `recordings/`.
        spec: of the environment.
        n_envs: environments stepped at once by default.
    """

    @property
    def path(self) -> Path: ...
    @property
    def spec(self) -> EnvSpec: ...
    @property
    def n_envs(self) -> int: ...
    @property
    def experiment(self) -> Experiment | None:
        """The experiment that trained them; None if marlnb did not."""

    def build_env(self, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
        """Its environment, or another with the same groups of agents; the caller closes it."""

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        """The policy of each group, ready to act."""

    def origin(self, checkpoint: Which = "last") -> Origin:
        """Which weights `policies` returns.

        Raises:
            CheckpointError: there is no such checkpoint.
        """

    def policy_index(self, group: GroupSpec) -> list[int]:
        """For each agent of a group the number of its network, from 0; agents that share a network have the same."""


PolicySourceLike = PolicySource | str | os.PathLike[str]
"""Policies, or the path of a run's folder."""


def as_policy_source(policy_source: PolicySourceLike, *, trust: bool = False) -> PolicySource:
    """The source itself, or the run in a folder.

    Args:
        trust: allow the code that a run's folder names (`Run.trust`).
    """
    if isinstance(policy_source, (str, os.PathLike, Run)):
        return opened_run(policy_source, trust=trust)
    return policy_source
