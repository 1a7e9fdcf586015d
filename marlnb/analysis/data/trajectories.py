"""Trajectories: whole episodes kept in memory, one a copy, so that rollouts with and without an edit can be compared
step by step, and the same moments shown again to policies with other edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.models.hooks import episode_context as clock
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.edits import edited
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec
from marlnb.training.collect.episodes import EpisodeTable, TimeStep, play
from marlnb.training.collect.rollout import carried
from marlnb.training.collect.seeds import derive_seed
from marlnb.training.collect.threads import torch_threads


@dataclass(frozen=True)
class Trajectories:
    """Episodes `first` to `first + copy - 1`, copy k's being the k-th. Axes are `[time, copy, ...]`.

    Attributes:
        counts: `[time, copy]` bool, False after the copy's episode.
        observation, action, logits, mask: by group; logits as `ActorOutput` has them, mask None where there is none.
        acting: by group `[time, copy, agent]` bool, False after the episode.
        labels: by name, `[time, copy]` or `[time, copy, agent]`.
        activations: by site, `[time, copy, agent, unit]`, of the sites that were asked for.
        table: the episodes' returns and lengths.
    """

    env: EnvSpec
    first: int
    in_episode: Tensor
    observation: Mapping[str, Tensor]
    action: Mapping[str, Tensor]
    logits: Mapping[str, Tensor]
    mask: Mapping[str, Tensor | None]
    acting: Mapping[str, Tensor]
    state: Tensor | None
    labels: Mapping[str, Tensor]
    activations: Mapping[str, Tensor]
    table: EpisodeTable

    @property
    def episode(self) -> Tensor:
        """`[copy]`."""
        return torch.arange(self.first, self.first + self.in_episode.shape[1])

    def moments(self, t: int) -> tuple[Tensor, Tensor]:
        """Episode and step of every copy at `t`, as the clock tells them."""
        return torch.where(self.in_episode[t], self.episode, -1), torch.full_like(self.episode, t)


@dataclass(frozen=True)
class PolicyOutputs:
    """What policies say at the moments of trajectories, by group: logits and values `[time, copy, agent(, ...)]`; None
    where a policy has no network, or no critic."""

    logits: Mapping[str, Tensor | None]
    values: Mapping[str, Tensor | None]


def roll_out(
    env: VectorEnv,
    policies: Mapping[str, Policy],
    edits: Sequence[Edit],
    *,
    seed: int,
    first: int = 0,
    explore: bool = False,
    sites: Sequence[str] = (),
    labels: bool = True,
    episodes: int | None = None,
) -> Trajectories:
    """One episode in each copy, or in the first `episodes` of them.

    Sampled actions get noise that depends on (seed, episode, step) alone: the same in every call with as many copies.
    """
    device = device_of(policies, env)
    generator = torch.Generator(device=device).manual_seed(derive_seed(seed, "actions", first))
    ledger = _Ledger(labels)
    with edited(policies, edits), ExitStack() as stack:
        if sites:
            ledger.activations = stack.enter_context(capture(policies, sites))
        table = play(
            env,
            policies,
            episodes=episodes or env.n_envs,
            seed=seed,
            first=first,
            explore=explore,
            generator=generator,
            callback=ledger,
        )
    return ledger.trajectories(env.spec, first, table)


def evaluate_on(
    policies: Mapping[str, Policy],
    seen: Trajectories,
    edits: Sequence[Edit] = (),
    *,
    values: bool = True,
    groups: Sequence[str] | None = None,
) -> PolicyOutputs:
    """What the policies, edited, say where others went: recurrent states are those that they themselves come to have.

    Args:
        groups: whose; None for all.
    """
    asked = [name for name in policies if groups is None or name in groups]
    with edited(policies, edits), torch.no_grad(), torch_threads(1):
        logits = {name: _logits(policies[name], name, seen) for name in asked}
        judged = {name: _values(policies[name], name, seen) if values else None for name in asked}
    return PolicyOutputs(logits, judged)


def device_of(policies: Mapping[str, Policy], env: VectorEnv) -> torch.device:
    tensors = (tensor for policy in policies.values() for tensor in (*policy.parameters(), *policy.buffers()))
    return next((tensor.device for tensor in tensors), env.device)


def _logits(policy: Policy, group: str, seen: Trajectories) -> Tensor | None:
    if policy.distribution is None:
        return None
    observation, mask, acting = seen.observation[group], seen.mask[group], seen.acting[group]
    state = policy.initial_recurrent(observation.shape[1], observation.device)
    found = []
    for t in range(len(observation)):
        with clock.at(*seen.moments(t)):
            output, after = policy.logits(observation[t], recurrent=state)
        found.append(output if mask is None else policy.distribution.mask(output, mask[t]))
        state = carried(state, after, None if seen.env.simultaneous else acting[t])
    return torch.stack(found)


def _values(policy: Policy, group: str, seen: Trajectories) -> Tensor | None:
    if not policy.has_critic:
        return None
    state: Tensor | None = None
    waits = not seen.env.simultaneous and not any(
        site.shared_forward for site in policy.sites() if "/critic/" in site.name
    )
    if policy.critic_recurrent_shape is not None:
        n, device = seen.in_episode.shape[1], seen.observation[group].device
        state = torch.zeros(n, policy.group.n_agents, *policy.critic_recurrent_shape, device=device)
    found = []
    for t in range(len(seen.in_episode)):
        now = {name: observation[t] for name, observation in seen.observation.items()}
        with clock.at(*seen.moments(t)):
            value, after = policy.value(now, state=None if seen.state is None else seen.state[t], recurrent=state)
        found.append(value)
        state = carried(state, after, seen.acting[group][t] if waits else None)
    return torch.stack(found)


@dataclass
class _Ledger:
    """A watcher that keeps everything."""

    keeps_labels: bool
    activations: Mapping[str, Tensor] = field(default_factory=dict)
    _kept: dict[tuple[str, str], list[Tensor]] = field(default_factory=dict)

    def before_step(self, time_step: TimeStep) -> None:
        counts = time_step.episode >= 0
        self._keep("", "counts", counts)
        for name, output in time_step.output.items():
            device = output.action.device
            self._keep("observation", name, time_step.observation[name].to(device))
            self._keep("action", name, output.action)
            self._keep("logits", name, output.logits)
            self._keep("acting", name, time_step.acting[name].to(device) & counts.to(device)[:, None])
            mask = time_step.action_mask[name]
            if mask is not None:
                self._keep("mask", name, mask.to(device))
        if time_step.state is not None:
            self._keep("", "state", time_step.state.to(device))
        if self.keeps_labels:
            for name, label in time_step.labels.items():
                self._keep("labels", name, label.cpu())
        for site, values in self.activations.items():
            self._keep("activations", site, values)

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        pass

    def trajectories(self, env: EnvSpec, first: int, table: EpisodeTable) -> Trajectories:
        stacked = {key: torch.stack(parts) for key, parts in self._kept.items()}
        by_kind: dict[str, dict[str, Tensor]] = {}
        for (kind, name), tensor in stacked.items():
            by_kind.setdefault(kind, {})[name] = tensor[:, : len(table)]
        alone = by_kind[""]
        return Trajectories(
            env=env,
            first=first,
            in_episode=alone["counts"],
            observation=by_kind["observation"],
            action=by_kind["action"],
            logits=by_kind["logits"],
            mask={name: by_kind.get("mask", {}).get(name) for name in by_kind["action"]},
            acting=by_kind["acting"],
            state=alone.get("state"),
            labels=by_kind.get("labels", {}),
            activations=by_kind.get("activations", {}),
            table=table,
        )

    def _keep(self, kind: str, name: str, tensor: Tensor) -> None:
        self._kept.setdefault((kind, name), []).append(tensor.detach().clone())
