"""MPE: a scenario's copies as a VectorEnv, equal to mpe2 number for number from the same state and actions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.mpe.actions import action_spec, actor
from marlnb.envs.mpe.draws import uniform
from marlnb.envs.mpe.labels import label_specs, read_labels
from marlnb.envs.mpe.scenario import MPEConfig, Scenario
from marlnb.envs.mpe.world import DTYPE, World
from marlnb.envs.vector import Step, VectorEnv, allocate_step, episode_seeds
from marlnb.errors import EnvBuildError, EnvError
from marlnb.specs import EnvSpec, GroupSpec, ObservationSpec


class MPE(VectorEnv):
    """B copies of one scenario.

    An episode is a function of its seed alone, whatever the number of copies and the device. Without early endings
    all copies run in lockstep, so that an ordinary step asks the device nothing.
    """

    def __init__(self, config: MPEConfig, n_envs: int, device: str = "cpu") -> None:
        if n_envs < 1:
            raise EnvBuildError(f"{config.name} needs at least one copy; asked for n_envs={n_envs}")
        self.config, self.n_envs, self.device = config, n_envs, torch.device(device)
        self.scenario: Scenario = config.scenario()
        layout = self.scenario.layout()
        self.world = _world(self.scenario, n_envs, self.device)
        features = [self.scenario.features(layout, agent) for agent in range(len(self.scenario.agents))]
        self.spec = _spec(config, self.scenario, [tuple(name for name, _ in seen) for seen in features])
        self._step = allocate_step(self.spec, n_envs, self.device)
        self._prepare_groups([row for seen in features for _, row in seen])
        self._seed = 0
        self._episode = torch.zeros(n_envs, dtype=torch.int64, device=self.device)
        self._clock = torch.zeros(n_envs, dtype=torch.int64, device=self.device)
        self._ticks = 0
        self._started = False
        self._recalled: World | None = None  # where labels_of puts its moments

    def reset(self, seed: int) -> Step:
        self._seed = int(seed)
        self._episode.zero_()
        self._clock.zero_()
        self._ticks = 0
        self._started = True
        self._clear_transition()
        self._begin(None)
        self._observe_now()
        return self._step

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        if not self._started:
            raise EnvError(f"{self.spec.name} was stepped before its first reset(seed)")
        for name, (shape, act) in self._acts.items():
            action = actions.get(name)
            if action is None or action.shape != shape:
                raise self._refuse(actions)
            act(action)
        self.world.advance()
        self.world.measure()
        self.scenario.refresh(self.world)
        self.scenario.reward(self.world, self._reward)
        for group, rows in zip(self._step.groups.values(), self._reward_rows):
            group.reward.copy_(rows)
        if self.scenario.may_finish:
            self._end_some()
        else:
            self._end_all_or_none()
        self._observe_now()
        return self._step

    def state_dict(self) -> dict[str, Tensor]:
        """Every copy's world, clock and episode number; tensors of this environment's device, copied."""
        return {
            "rows": self.world.rows.clone(),
            "start_range": self.world.start_range.clone(),
            "clock": self._clock.clone() if self.scenario.may_finish else torch.full_like(self._clock, self._ticks),
            "episode": self._episode.clone(),
            "seed": torch.tensor(self._seed),
            **{f"choice_{name}": value.clone() for name, value in self.world.choice.items()},
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        if state["rows"].shape != self.world.rows.shape:
            raise EnvError(
                f"{self.spec.name}: the saved state is of {tuple(state['rows'].shape)} rows and copies, "
                f"this environment has {tuple(self.world.rows.shape)}"
            )
        self.world.rows.copy_(state["rows"])
        self.world.start_range.copy_(state["start_range"])
        self.world.choice = {name: state[f"choice_{name}"].to(self.device).clone() for name in self.scenario.choices}
        self._clock.copy_(state["clock"])
        self._ticks = int(self._clock[0])
        self._episode.copy_(state["episode"])
        self._seed = int(state["seed"])
        self._started = True
        self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode))
        self._clear_transition()
        self.world.measure()
        self._observe_now()
        return self._step

    def labels(self) -> dict[str, Tensor]:
        return read_labels(self.scenario, self.world)

    def label_moment(self) -> Tensor:
        own = self.world.own_rows
        drawn = [self.world.choice[name].to(DTYPE)[None] for name in self.scenario.choices]
        return (torch.cat((own, *drawn)) if drawn else own).t()

    def labels_of(self, moments: Tensor) -> dict[str, Tensor]:
        world = self._recalled
        if world is None or world.n_envs != len(moments):
            world = self._recalled = _world(self.scenario, len(moments), self.device)
        own, *drawn = moments.t().split([len(world.own_rows), *[1] * len(self.scenario.choices)])
        world.own_rows.copy_(own)
        world.choice = {name: value[0].long() for name, value in zip(self.scenario.choices, drawn)}
        world.measure()
        self.scenario.refresh(world)
        return read_labels(self.scenario, world)

    def clock(self, index: int) -> int:
        """Steps that copy `index` has made in its present episode."""
        return int(self._clock[index]) if self.scenario.may_finish else self._ticks

    def render(self, index: int = 0) -> np.ndarray:
        """Copy `index` as mpe2 draws it, `[height 700, width 700, 3]` uint8."""
        from marlnb.envs.mpe.picture import draw

        if not 0 <= index < self.n_envs:
            raise EnvError(f"{self.spec.name} has copies 0..{self.n_envs - 1}; asked to draw number {index}")
        return draw(self, index)

    def _prepare_groups(self, rows: list[int]) -> None:
        """Per group: where its agents, speakers and features lie, and the function that applies its actions."""
        self._row_of_feature = torch.tensor(rows, device=self.device)
        dtype = getattr(torch, self.config.dtype)
        self._rows = self.world.rows if dtype == DTYPE else torch.zeros_like(self.world.rows, dtype=dtype)
        self._seen = torch.zeros(len(rows), self.n_envs, dtype=dtype, device=self.device)
        self._reward = torch.zeros(len(self.scenario.agents), self.n_envs, dtype=DTYPE, device=self.device)
        self._acts, self._seen_rows, self._reward_rows = {}, [], []
        agent = speaker = feature = 0
        for group in self.spec.groups:
            body, n, size = self.scenario.agents[agent], group.n_agents, group.observation.size
            agents, speakers = slice(agent, agent + n), slice(speaker, speaker + (0 if body.silent else n))
            act = actor(self.world, body, agents, speakers, self.config.continuous_actions)
            self._acts[group.name] = (torch.Size((self.n_envs, n, *group.action.shape)), act)
            seen = self._seen[feature : feature + n * size]
            self._seen_rows.append(seen.t())
            self._reward_rows.append(self._reward[agents].t())
            agent, speaker, feature = agents.stop, speakers.stop, feature + n * size

    def _refuse(self, actions: Mapping[str, Tensor]) -> EnvError:
        needed = {name: list(shape) for name, (shape, _) in self._acts.items()}
        found = {name: list(action.shape) for name, action in actions.items()}
        return EnvError(f"{self.spec.name} needs actions of shapes {needed}; got {found}")

    def _begin(self, copies: Tensor | None) -> None:
        """New episodes in the copies of these numbers `[copy]`, or in all."""
        seeds = episode_seeds(self._seed, self._episode)
        self._step.episode_seed.copy_(seeds)
        n_entities = self.world.n_agents + self.world.n_landmarks
        scenario, world = self.scenario, self.world
        drawn = uniform(seeds if copies is None else seeds[copies], 2 * n_entities + len(scenario.choices))
        start = drawn[: 2 * n_entities].view(2, n_entities, -1).mul_(2.0).sub_(1.0)
        start[:, world.n_agents :].mul_(scenario.landmark_range)
        chosen = {name: drawn[2 * n_entities + k].mul(n).long() for k, (name, n) in enumerate(scenario.choices.items())}
        where = slice(None) if copies is None else copies
        world.place(start.float().to(DTYPE), chosen, where)
        scenario.begin(world)
        world.measure()
        scenario.refresh(world)

    def _end_all_or_none(self) -> None:
        """Lockstep: the clock is a plain number, and flags are written only when they change."""
        self._ticks += 1
        if self._ticks >= self.config.max_cycles:
            self._observe_end()
            self._step.done.fill_(True)
            for group in self._step.groups.values():
                group.truncated.fill_(True)
            self._ticks = 0
            self._episode.add_(1)
            self._begin(None)
            self._flagged = True
        elif self._flagged:
            self._clear_flags()

    def _end_some(self) -> None:
        """Copies end by themselves: by success, else by their own clock."""
        truncated = self._clock.add_(1) >= self.config.max_cycles
        terminated = self.scenario.finished(self.world).logical_and_(~truncated)
        torch.logical_or(truncated, terminated, out=self._step.done)
        for group in self._step.groups.values():
            group.truncated.copy_(truncated[:, None])
            group.terminated.copy_(terminated[:, None])
        copies = self._step.done.nonzero()[:, 0]
        if copies.numel():
            self._observe_end()
            self._clock[copies] = 0
            self._episode[copies] += 1
            self._begin(copies)

    def _observe_now(self) -> None:
        self._gather()
        for group, seen in zip(self._step.groups.values(), self._seen_rows):
            group.observation.view(seen.shape).copy_(seen)
        if self._step.state is not None:
            self._step.state.copy_(self._seen.t())

    def _observe_end(self) -> None:
        self._gather()
        for group, seen in zip(self._step.groups.values(), self._seen_rows):
            group.final_observation.view(seen.shape).copy_(seen)
        if self._step.final_state is not None:
            self._step.final_state.copy_(self._seen.t())

    def _gather(self) -> None:
        """Picks the observed rows; in two dimensions and one dtype, torch transposes them five times faster."""
        if self._rows is not self.world.rows:
            self._rows.copy_(self.world.rows)
        torch.index_select(self._rows, 0, self._row_of_feature, out=self._seen)

    def _clear_transition(self) -> None:
        self._clear_flags()
        for group in self._step.groups.values():
            group.reward.zero_()
            group.final_observation.zero_()
        if self._step.final_state is not None:
            self._step.final_state.zero_()

    def _clear_flags(self) -> None:
        self._flagged = False
        self._step.done.zero_()
        for group in self._step.groups.values():
            group.truncated.zero_()
            group.terminated.zero_()


def _world(scenario: Scenario, n_envs: int, device: torch.device) -> World:
    return World(scenario.agents, scenario.landmarks, scenario.layout(), n_envs, device)


def _spec(config: MPEConfig, scenario: Scenario, seen: list[tuple[str, ...]]) -> EnvSpec:
    groups, agent = [], 0
    for name, members in scenario.groups.items():
        names = seen[agent]
        assert all(other == names for other in seen[agent : agent + len(members)]), f"{name}: one name a feature"
        observation = ObservationSpec((len(names),), config.dtype, names)
        action = action_spec(scenario.agents[agent], scenario.n_words, config.continuous_actions)
        groups.append(GroupSpec(name, members, observation, action))
        agent += len(members)
    return EnvSpec(
        name=config.name,
        groups=tuple(groups),
        state_shape=(sum(len(names) for names in seen),) if config.state else None,
        max_steps=config.max_cycles,
        labels=label_specs(scenario),
    )
