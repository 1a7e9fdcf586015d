"""RolloutRows: the rows of a recording that a training's rollout contains, and what the policies compute from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from marlnb.algorithms.rollout import Rollout
from marlnb.errors import RecordingError
from marlnb.models.hooks.capture import all_sites
from marlnb.models.hooks.sites import match_sites
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.config import ActivationOptions
from marlnb.recording.capture.recompute import in_critic, recompute
from marlnb.recording.capture.sources import field_of_rows, recurrent_site
from marlnb.recording.file.layout import Field
from marlnb.specs import EnvSpec, GroupSpec

STORED = ("observation", "action", "log_prob", "alive", "acting")
OUTCOMES = ("reward", "terminated", "truncated")


class RolloutRows:
    """Reads some envs out of rollouts. It works on the rollout's device and never waits for it.

    Args:
        spec: the environment's.
        policies: by group, those that collect.
        envs: `[env]` int64, numbers of the envs, on the rollouts' device.
        options: which sites, and how they are stored.
    Attributes:
        sites: the recorded sites.
    Raises:
        SiteError: a pattern matches no site.
        RecordingError: a site of a recurrent critic, whose states rollouts do not hold.
    """

    def __init__(self, spec: EnvSpec, policies: Mapping[str, Policy], envs: Tensor, options: ActivationOptions) -> None:
        self.spec, self.policies, self.envs, self.options = spec, policies, envs, options
        self.sites = match_sites(all_sites(policies), options.sites) if options.sites else []
        for site in self.sites:
            if in_critic(site.name) and policies[site.group].critic_recurrent_shape is not None:
                raise RecordingError(
                    f"{site.name}: the critic is recurrent, and rollouts do not hold its states; record sites of the "
                    "actor here, and those of the critic with marlnb.record"
                )

    @torch.no_grad()
    def read(self, rollout: Rollout) -> dict[str, Tensor]:
        """Every field but the numbers of steps and episodes, by path, `[env, time, ...]`.

        Activations, logits and values are those of the current weights: call it before they change.
        """
        shape = (len(self.envs), rollout.batch_size[1])
        rows = {path: value for group in self.spec.groups for path, value in self._stored(rollout, group)}
        observations = {name: rows[f"steps/{name}/observation"].flatten(0, 1) for name in self.spec.group_names}
        state = None
        if self.spec.state_shape is not None:
            rows["steps/state"] = self._take(rollout, "state")
            state = rows["steps/state"].flatten(0, 1)
        for group in self.spec.groups:
            for path, value in self._computed(group, rows, observations, state):
                rows[path] = value.unflatten(0, shape)
        return rows

    def fields(self, rows: Mapping[str, Tensor]) -> list[Field]:
        """The datasets of rows as `read` returns them."""
        dtype = self.options.dtype
        return [
            field_of_rows(path, tuple(value.shape[2:]), _name(value), self.spec, self.sites, dtype)
            for path, value in rows.items()
        ]

    def _take(self, rollout: Rollout, *key: str) -> Tensor:
        value: Tensor = rollout[key]
        return value.index_select(0, self.envs)

    def _stored(self, rollout: Rollout, group: GroupSpec) -> Iterator[tuple[str, Tensor]]:
        name, policy = group.name, self.policies[group.name]
        for item in (*STORED, *(("action_mask",) if group.has_action_mask else ())):
            yield f"steps/{name}/{item}", self._take(rollout, name, item)
        for item in OUTCOMES:
            yield f"steps/{name}/{item}", self._take(rollout, "next", name, item).squeeze(-1)
        if policy.recurrent_shape is not None:
            yield f"recurrent/{name}/{recurrent_site(policy, 'actor')}", self._take(rollout, name, "recurrent")

    def _computed(
        self, group: GroupSpec, rows: Mapping[str, Tensor], observations: Mapping[str, Tensor], state: Tensor | None
    ) -> Iterator[tuple[str, Tensor]]:
        """Logits, values and activations, `[row, ...]`."""
        name, policy = group.name, self.policies[group.name]
        recurrent = None
        if policy.recurrent_shape is not None:
            recurrent = rows[f"recurrent/{name}/{recurrent_site(policy, 'actor')}"].flatten(0, 1)
        if policy.distribution is not None:
            mask = rows.get(f"steps/{name}/action_mask")
            logits = policy.logits(observations[name], recurrent=recurrent)[0]
            yield f"steps/{name}/logits", policy.distribution.mask(logits, None if mask is None else mask.flatten(0, 1))
        if self.options.values and policy.has_critic and policy.critic_recurrent_shape is None:
            yield f"steps/{name}/value", policy.value(observations, state=state)[0]
        sites = [site.name for site in self.sites if site.name.startswith(f"{name}/")]
        if sites:
            activations = recompute(policy, sites, observations, recurrent=recurrent, state=state)
            yield from ((f"activations/{site}", value) for site, value in activations.items())


def _name(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
