"""TransformedPolicySource: policies that pass through a function before they act, or recordings in another folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from marlnb.errors import ConfigError, unknown
from marlnb.models.policies.policy import Policy
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.run import Origin
from marlnb.training.runs.run_folder import Which

Transform = Callable[[Policy], Policy]


class TransformedPolicySource:
    """`policy_source` with transformed policies. Environment and experiment are those of `policy_source`.

    Args:
        policy_source: whose policies are transformed.
        transforms: by group, a function from its policy to the one that acts, for example one that adds a site.
        description: of the transforms, in words or as a hash. It enters the hash of the weights, so that a recording of
            the transformed agents is not taken for one of the originals. Without transforms the hash stays the same.
        folder: of its recordings; None: the folder of `policy_source`.
    Raises:
        ConfigError: a group that `policy_source` does not have.
    """

    def __init__(
        self,
        policy_source: PolicySource,
        transforms: Mapping[str, Transform],
        description: str,
        *,
        folder: Path | None = None,
    ) -> None:
        for group in transforms:
            if group not in policy_source.spec.group_names:
                raise ConfigError(unknown(f"group of {policy_source.spec.name}", group, policy_source.spec.group_names))
        self.policy_source, self.transforms, self.description = policy_source, dict(transforms), description
        self.path = folder or policy_source.path
        self.spec, self.n_envs, self.experiment = policy_source.spec, policy_source.n_envs, policy_source.experiment
        self.build_env, self.policy_index = policy_source.build_env, policy_source.policy_index
        self.source = f"{getattr(policy_source, 'source', 'marlnb')}; {description}"

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        policies = self.policy_source.policies(checkpoint, device=device)
        transformed = {name: transform(policies[name]) for name, transform in self.transforms.items()}
        return policies | {name: policy.to(device).eval() for name, policy in transformed.items()}

    def origin(self, checkpoint: Which = "last") -> Origin:
        iteration, sha256 = self.policy_source.origin(checkpoint)
        if not self.transforms:
            return Origin(iteration, sha256)
        return Origin(iteration, hashlib.sha256(f"{sha256} {self.description}".encode()).hexdigest())
