"""Whole episodes held in memory, one in each environment.

Rollouts with and without an edit can be compared step by step, and other policies can be evaluated on the same time
steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.models.hooks import episode_context
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.edit import Edit
from marlnb.models.policies.policy import Policy, device_of
from marlnb.specs import EnvSpec, derive_seed
from marlnb.training.collect.episodes import EpisodeTable, OverrideAction, TimeStep, play
from marlnb.training.collect.rollout import next_recurrent
from marlnb.training.collect.threads import torch_threads


@dataclass(frozen=True)
class Trajectories:
    """Episodes `first`, `first + 1`, ...: environment k plays episode `first + k`. Axes are `[time, env, ...]`.

    Attributes:
        in_episode: `[time, env]` bool, False after the environment's episode.
        observation: by group, `[time, env, agent, *shape]`.
        action: by group, `[time, env, agent(, component)]`.
        logits: by group, as in `ActorOutput`.
        mask: by group, the action mask; None where there is none.
        acting: by group, `[time, env, agent]` bool, False after the episode.
        alive: by group, `[time, env, agent]` bool, also of what the environment plays after the episode.
        state: `[time, env, *state_shape]`; None where the environment has none.
        labels: by name, `[time, env]` or `[time, env, agent]`.
        activations: by site, `[time, env, agent, unit]`, of the captured sites.
        table: returns and lengths of the episodes.
    """

    env: EnvSpec
    first: int
    in_episode: Tensor
    observation: Mapping[str, Tensor]
    action: Mapping[str, Tensor]
    logits: Mapping[str, Tensor]
    mask: Mapping[str, Tensor | None]
    acting: Mapping[str, Tensor]
    alive: Mapping[str, Tensor]
    state: Tensor | None
    labels: Mapping[str, Tensor]
    activations: Mapping[str, Tensor]
    table: EpisodeTable

    @property
    def episode(self) -> Tensor:
        """`[env]`, the episode's number."""
        return torch.arange(self.first, self.first + self.in_episode.shape[1])

    def of_envs(self, envs: Tensor | slice) -> Trajectories:
        """The episodes of some environments, `[env]` int64, which may repeat, or a slice; numbered from `first` on."""
        table, rows = self.table, envs if isinstance(envs, slice) else envs.numpy()
        names = ("observation", "action", "logits", "mask", "acting", "alive", "labels", "activations")
        tensors: dict[str, Any] = {name: _of_envs(getattr(self, name), envs) for name in names}
        returns = {group: values[rows] for group, values in table.returns.items()}
        return replace(
            self,
            in_episode=self.in_episode[:, envs],
            state=None if self.state is None else self.state[:, envs],
            table=replace(table, length=table.length[rows], seed=table.seed[rows], returns=returns),
            **tensors,
        )

    def context(self, t: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """As `episode_context.at` takes it: the episode `[env]` (-1 after its end), the step, and who is alive."""
        alive = {group: values[t] for group, values in self.alive.items()}
        return torch.where(self.in_episode[t], self.episode, -1), torch.full_like(self.episode, t), alive


@dataclass(frozen=True)
class PolicyOutputs:
    """Outputs of policies along trajectories.

    Attributes:
        logits: by group, `[time, env, agent, parameter]`; None where a policy has no network.
        values: by group, `[time, env, agent]`; None where a policy has no critic.
    """

    logits: Mapping[str, Tensor | None]
    values: Mapping[str, Tensor | None]

    def of_envs(self, envs: Tensor | slice) -> PolicyOutputs:
        """Those of some environments, `[env]` int64, which may repeat, or a slice."""
        return PolicyOutputs(_of_envs(self.logits, envs), _of_envs(self.values, envs))


def _of_envs(tensors: Mapping[str, Tensor | None], envs: Tensor | slice) -> dict[str, Tensor | None]:
    return {name: None if value is None else value[:, envs] for name, value in tensors.items()}


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
    label_functions: Mapping[str, Callable[[TimeStep], Tensor]] | None = None,
    episodes: int | None = None,
    override_action: OverrideAction | None = None,
    seeds: Tensor | None = None,
) -> Trajectories:
    """Plays one episode in each environment, or in the first `episodes` of them.

    The noise of sampled actions depends on (seed, group, episode, step) alone, whatever the other groups draw: it is
    the same in every call with as many environments. `override_action` replaces chosen actions, and `seeds` states the
    episodes' seeds, as in `play`. `label_functions` are more labels by name, as `record` takes them.
    """
    device = device_of(*policies.values(), default=env.device)
    generators = {
        group: torch.Generator(device=device).manual_seed(derive_seed(seed, "actions", group, first))
        for group in policies
    }
    recorder = _TrajectoryRecorder(labels, label_functions or {})
    with edited(policies, edits), ExitStack() as stack:
        if sites:
            recorder.activations = stack.enter_context(capture(policies, sites))
        table = play(
            env,
            policies,
            episodes=episodes or env.n_envs,
            seed=seed,
            first=first,
            explore=explore,
            generator=generators,
            callback=recorder,
            override_action=override_action,
            seeds=seeds,
        )
    return recorder.trajectories(env.spec, first, table)


def evaluate_on(
    policies: Mapping[str, Policy],
    trajectories: Trajectories,
    edits: Sequence[Edit] = (),
    *,
    values: bool = True,
    logits: bool = True,
    groups: Sequence[str] | None = None,
) -> PolicyOutputs:
    """Outputs of edited policies on trajectories that others played.

    Recurrent states are those that these policies would have had, starting from each episode's beginning.

    Args:
        values: evaluate the critics.
        logits: evaluate the actors.
        groups: groups to evaluate; None: all.
    """
    names = [name for name in policies if groups is None or name in groups]
    with edited(policies, edits), torch.no_grad(), torch_threads(1):
        logits_by_group = {name: _logits(policies[name], name, trajectories) if logits else None for name in names}
        values_by_group = {name: _values(policies[name], name, trajectories) if values else None for name in names}
    return PolicyOutputs(logits_by_group, values_by_group)


def _logits(policy: Policy, group: str, trajectories: Trajectories) -> Tensor | None:
    if policy.distribution is None:
        return None
    observation, mask, acting = trajectories.observation[group], trajectories.mask[group], trajectories.acting[group]
    state = policy.initial_recurrent(observation.shape[1], observation.device)
    logits = []
    for t in range(len(observation)):
        with episode_context.at(*trajectories.context(t)):
            parameters, next_state = policy.logits(observation[t], recurrent=state)
        logits.append(parameters if mask is None else policy.distribution.mask(parameters, mask[t]))
        state = next_recurrent(state, next_state, None if trajectories.env.simultaneous else acting[t])
    return torch.stack(logits)


def _values(policy: Policy, group: str, trajectories: Trajectories) -> Tensor | None:
    if not policy.has_critic:
        return None
    state: Tensor | None = None
    # a critic that serves all agents with one forward pass has one state, which moves at every step
    waits_for_turns = not trajectories.env.simultaneous and not any(
        site.shared_forward for site in policy.sites() if site.part == "critic"
    )
    if policy.critic_recurrent_shape is not None:
        n_envs, device = trajectories.in_episode.shape[1], trajectories.observation[group].device
        state = torch.zeros(n_envs, policy.group.n_agents, *policy.critic_recurrent_shape, device=device)
    values = []
    for t in range(len(trajectories.in_episode)):
        observations = {name: observation[t] for name, observation in trajectories.observation.items()}
        env_state = None if trajectories.state is None else trajectories.state[t]
        with episode_context.at(*trajectories.context(t)):
            value, next_state = policy.value(observations, state=env_state, recurrent=state)
        values.append(value)
        state = next_recurrent(state, next_state, trajectories.acting[group][t] if waits_for_turns else None)
    return torch.stack(values)


@dataclass
class _TrajectoryRecorder:
    """A rollout callback that keeps every time step.

    Attributes:
        with_labels: also keep the environment's labels.
        label_functions: more labels, by name.
        activations: the dict that `capture` fills.
    """

    with_labels: bool
    label_functions: Mapping[str, Callable[[TimeStep], Tensor]] = field(default_factory=dict)
    activations: Mapping[str, Tensor] = field(default_factory=dict)
    _steps: dict[tuple[str, str], list[Tensor]] = field(default_factory=dict)

    def before_step(self, time_step: TimeStep) -> None:
        in_episode = time_step.episode >= 0
        self._append("", "in_episode", in_episode)
        for name, output in time_step.output.items():
            device = output.action.device
            self._append("observation", name, time_step.observation[name].to(device))
            self._append("action", name, output.action)
            self._append("logits", name, output.logits)
            self._append("acting", name, time_step.acting[name].to(device) & in_episode.to(device)[:, None])
            self._append("alive", name, time_step.alive[name].to(device))
            mask = time_step.action_mask[name]
            if mask is not None:
                self._append("mask", name, mask.to(device))
        if time_step.state is not None:
            self._append("", "state", time_step.state.to(device))
        if self.with_labels:
            for name, label in time_step.labels.items():
                self._append("labels", name, label.cpu())
        for name, function in self.label_functions.items():
            self._append("labels", name, function(time_step).cpu())
        for site, values in self.activations.items():
            self._append("activations", site, values)

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        pass

    def trajectories(self, env: EnvSpec, first: int, table: EpisodeTable) -> Trajectories:
        by_kind: dict[str, dict[str, Tensor]] = {}
        for (kind, name), tensors in self._steps.items():
            by_kind.setdefault(kind, {})[name] = torch.stack(tensors)[:, : len(table)]
        return Trajectories(
            env=env,
            first=first,
            in_episode=by_kind[""]["in_episode"],
            observation=by_kind["observation"],
            action=by_kind["action"],
            logits=by_kind["logits"],
            mask={name: by_kind.get("mask", {}).get(name) for name in by_kind["action"]},
            acting=by_kind["acting"],
            alive=by_kind["alive"],
            state=by_kind[""].get("state"),
            labels=by_kind.get("labels", {}),
            activations=by_kind.get("activations", {}),
            table=table,
        )

    def _append(self, kind: str, name: str, tensor: Tensor) -> None:
        # the environment overwrites its buffers at the next step
        self._steps.setdefault((kind, name), []).append(tensor.detach().clone())
