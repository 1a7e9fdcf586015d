"""MPE: a scenario as a VectorEnv. From the same state and actions, its numbers equal mpe2's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.device import check_device
from marlnb.envs.mpe.actions import action_spec, actor
from marlnb.envs.mpe.draws import uniform
from marlnb.envs.mpe.scenario import MPEOptions, Scenario
from marlnb.envs.mpe.world import DTYPE, World
from marlnb.envs.tensor.memory import buffer_bytes, check_memory
from marlnb.envs.vector import Step, VectorEnv, allocate_step, check_n_envs, episode_seeds, seed_bases
from marlnb.errors import EnvError
from marlnb.specs import EnvSpec, GroupSpec, ObservationSpec


class MPE(VectorEnv):
    """B envs of one scenario.

    An episode is a function of its seed alone, for any number of envs and on any device. On a CPU, unless episodes can
    end early or the envs were restored from states at different times, all run in lockstep: the clock is a number in
    Python, and a step in which no episode ends computes no start. With `restarts_by_mask` every step does, and selects.
    """

    resets_each = True
    state_axis = -1

    def __init__(self, config: MPEOptions, n_envs: int, device: str = "cpu") -> None:
        check_n_envs(config.name, n_envs)
        self.config, self.n_envs, self.device = config, n_envs, check_device(device)
        self.scenario: Scenario = config.scenario()
        layout = self.scenario.layout()
        features = [self.scenario.features(layout, agent) for agent in range(len(self.scenario.agents))]
        self.spec = _spec(config, self.scenario, [tuple(name for name, _ in agent) for agent in features])
        check_memory(config.name, layout.n_rows * DTYPE.itemsize + buffer_bytes(self.spec), n_envs, self.device)
        self.world = _world(self.scenario, n_envs, self.device)
        self._step = allocate_step(self.spec, n_envs, self.device)
        self.restarts_by_mask = self.device.type != "cpu"
        self._prepare_groups([row for agent in features for _, row in agent])
        self._seed: int | Tensor = 0
        self._episode = torch.zeros(n_envs, dtype=torch.int64, device=self.device)
        self._clock = torch.zeros(n_envs, dtype=torch.int64, device=self.device)
        self._lockstep, self._lockstep_clock = self._can_lockstep, 0
        self._started = False
        self._label_world: World | None = None  # in which labels_of restores label states

    def reset(self, seed: int) -> Step:
        return self._reset(int(seed))

    def reset_each(self, seeds: Tensor) -> Step:
        return self._reset(seed_bases(seeds, self.n_envs, self.device))

    def _reset(self, seed: int | Tensor) -> Step:
        self._seed = seed
        self._episode.zero_()
        self._clock.zero_()
        self._lockstep, self._lockstep_clock = self._can_lockstep, 0
        self._started = True
        self._clear_transition()
        self._begin()
        self._observe()
        return self._step

    @property
    def _can_lockstep(self) -> bool:
        return not (self.scenario.may_finish or self.restarts_by_mask)

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        if not self._started:
            raise EnvError(f"{self.spec.name} was stepped before its first reset(seed)")
        for name, (shape, act) in self._acts.items():
            action = actions.get(name)
            if action is None or action.shape != shape:
                shapes = {name: list(shape) for name, (shape, _) in self._acts.items()}
                got = {name: list(action.shape) for name, action in actions.items()}
                raise EnvError(f"{self.spec.name} needs actions of shapes {shapes}; got {got}")
            act(action)
        self.world.advance()
        self.world.measure()
        self.scenario.refresh(self.world)
        self.scenario.reward(self.world, self._reward)
        for group, rows in zip(self._step.groups.values(), self._reward_rows):
            group.reward.copy_(rows)
        if self._lockstep:
            self._end_all_or_none()
        else:
            self._end_some()
        self._observe()
        return self._step

    def state_dict(self) -> dict[str, Tensor]:
        """Every env's world, clock and episode number; copied tensors on this environment's device."""
        lockstep_clock = torch.full_like(self._clock, self._lockstep_clock)
        return {
            "rows": self.world.rows.clone(),
            "start_range": self.world.start_range.clone(),
            "clock": lockstep_clock if self._lockstep else self._clock.clone(),
            "episode": self._episode.clone(),
            "seed": torch.as_tensor(self._seed).clone(),
            **{f"choice_{name}": value.clone() for name, value in self.world.choice.items()},
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        if state["rows"].shape != self.world.rows.shape:
            raise EnvError(
                f"{self.spec.name}: the saved state has {tuple(state['rows'].shape)} rows and envs; "
                f"this environment has {tuple(self.world.rows.shape)}"
            )
        self.world.rows.copy_(state["rows"])
        self.world.start_range.copy_(state["start_range"])
        self.world.choice = {name: state[f"choice_{name}"].to(self.device).clone() for name in self.scenario.choices}
        self._clock.copy_(state["clock"])
        self._lockstep_clock = int(self._clock[0])
        self._lockstep = self._can_lockstep and bool((self._clock == self._clock[0]).all())
        self._episode.copy_(state["episode"])
        self._seed = state["seed"].to(self.device).clone() if state["seed"].ndim else int(state["seed"])
        self._started = True
        self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode, self.episode_stride))
        self._clear_transition()
        self.world.measure()
        self._observe()
        return self._step

    def labels(self) -> dict[str, Tensor]:
        return self.scenario.label_values(self.world)

    def label_state(self) -> Tensor:
        choices = [self.world.choice[name].to(DTYPE)[None] for name in self.scenario.choices]
        return torch.cat((self.world.state_rows, *choices)).t()

    def labels_of(self, states: Tensor) -> dict[str, Tensor]:
        world = self._label_world
        if world is None or world.n_envs != len(states):
            world = self._label_world = _world(self.scenario, len(states), self.device)
        rows, *choices = states.t().split([len(world.state_rows), *[1] * len(self.scenario.choices)])
        world.state_rows.copy_(rows)
        world.choice = {name: value[0].long() for name, value in zip(self.scenario.choices, choices)}
        world.measure()
        self.scenario.refresh(world)
        return self.scenario.label_values(world)

    def clock(self, index: int) -> int:
        """Steps that env `index` has made in its current episode."""
        return self._lockstep_clock if self._lockstep else int(self._clock[index])

    def render(self, index: int = 0) -> np.ndarray:
        """Env `index` as mpe2 draws it, `[height 700, width 700, 3]` uint8; messages have the names of actions."""
        from marlnb.envs.mpe.picture import draw

        return draw(self.to_mpe2(index), self.scenario, self.world, index)

    def to_mpe2(self, index: int) -> Any:
        """mpe2's raw environment (`AECEnv`) in the state of env `index`, ready for its next step."""
        from marlnb.envs.mpe.picture import to_mpe2

        self._check_index(index)
        return to_mpe2(self.config, self.scenario, self.world, index, self.clock(index))

    def _prepare_groups(self, rows: list[int]) -> None:
        """Per group: the slices of its agents, speakers and features, and the function that applies its actions."""
        self._feature_rows = torch.tensor(rows, device=self.device)
        dtype = getattr(torch, self.config.dtype)
        self._rows = self.world.rows if dtype == DTYPE else torch.zeros_like(self.world.rows, dtype=dtype)
        self._features = torch.zeros(len(rows), self.n_envs, dtype=dtype, device=self.device)
        self._reward = torch.zeros(len(self.scenario.agents), self.n_envs, dtype=DTYPE, device=self.device)
        self._acts, self._group_features, self._reward_rows = {}, [], []
        agent = speaker = feature = 0
        for group in self.spec.groups:
            body, n, size = self.scenario.agents[agent], group.n_agents, group.observation.size
            agents, speakers = slice(agent, agent + n), slice(speaker, speaker + (0 if body.silent else n))
            act = actor(self.world, body, agents, speakers, self.config.continuous_actions)
            self._acts[group.name] = (torch.Size((self.n_envs, n, *group.action.shape)), act)
            features = self._features[feature : feature + n * size]
            self._group_features.append(features.t())
            self._reward_rows.append(self._reward[agents].t())
            agent, speaker, feature = agents.stop, speakers.stop, feature + n * size

    def _begin(self) -> None:
        """Starts a new episode in every env."""
        seeds = episode_seeds(self._seed, self._episode, self.episode_stride)
        self._step.episode_seed.copy_(seeds)
        n_entities = self.world.n_agents + self.world.n_landmarks
        scenario, world = self.scenario, self.world
        drawn = uniform(seeds, 2 * n_entities + len(scenario.choices))
        start = drawn[: 2 * n_entities].view(2, n_entities, -1).mul_(2.0).sub_(1.0)
        start[:, world.n_agents :].mul_(scenario.landmark_range)
        choices = {
            name: drawn[2 * n_entities + k].mul(n).long() for k, (name, n) in enumerate(scenario.choices.items())
        }
        world.place(start.float().to(DTYPE), choices)
        scenario.begin(world)
        world.measure()
        scenario.refresh(world)

    def _begin_where_done(self) -> None:
        """Starts a new episode where one has ended; elsewhere the world stays as it is."""
        done, world = self._step.done, self.world
        kept = [value.clone() for value in world.state_tensors()]
        self._clock.masked_fill_(done, 0)
        self._episode += done
        self._begin()
        for value, before in zip(world.state_tensors(), kept):
            value.copy_(torch.where(done, value, before))
        world.measure()

    def _end_all_or_none(self) -> None:
        """Lockstep: the clock is a Python number, and flags are written only when they change."""
        self._lockstep_clock += 1
        if self._lockstep_clock >= self.config.max_cycles:
            self._observe(is_end=True)
            self._step.done.fill_(True)
            for group in self._step.groups.values():
                group.truncated.fill_(True)
            self._lockstep_clock = 0
            self._episode.add_(1)
            self._begin()
            self._flagged = True
        elif self._flagged:
            self._clear_flags()

    def _end_some(self) -> None:
        """Each env ends by itself: by success, or by its own clock."""
        truncated = self._clock.add_(1) >= self.config.max_cycles
        terminated = torch.zeros_like(truncated)
        if self.scenario.may_finish:
            terminated = self.scenario.finished(self.world).logical_and_(~truncated)
        torch.logical_or(truncated, terminated, out=self._step.done)
        for group in self._step.groups.values():
            group.truncated.copy_(truncated[:, None])
            group.terminated.copy_(terminated[:, None])
        if self.restarts_by_mask or bool(self._step.done.any()):
            self._observe(is_end=True)
            self._begin_where_done()

    def _observe(self, *, is_end: bool = False) -> None:
        """Writes the current observations and state, or those of the episodes that end now."""
        self._gather()
        for group, features in zip(self._step.groups.values(), self._group_features):
            (group.final_observation if is_end else group.observation).view(features.shape).copy_(features)
        state = self._step.final_state if is_end else self._step.state
        if state is not None:
            state.copy_(self._features.t())

    def _gather(self) -> None:
        """Selects the observed rows. torch transposes them five times faster in two dimensions and one dtype."""
        if self._rows is not self.world.rows:
            self._rows.copy_(self.world.rows)
        torch.index_select(self._rows, 0, self._feature_rows, out=self._features)

    def _clear_transition(self) -> None:
        self._flagged = False
        self._step.clear_transition()
        for group in self._step.groups.values():
            group.final_observation.zero_()
        if self._step.final_state is not None:
            self._step.final_state.zero_()

    def _clear_flags(self) -> None:
        self._flagged = False
        self._step.done.zero_()
        for group in self._step.groups.values():
            group.truncated.zero_()


def _world(scenario: Scenario, n_envs: int, device: torch.device) -> World:
    return World(scenario.agents, scenario.landmarks, scenario.layout(), n_envs, device)


def _spec(config: MPEOptions, scenario: Scenario, features: list[tuple[str, ...]]) -> EnvSpec:
    groups, agent = [], 0
    for name, members in scenario.groups.items():
        names = features[agent]
        assert all(other == names for other in features[agent : agent + len(members)]), name
        observation = ObservationSpec((len(names),), config.dtype, names)
        action = action_spec(scenario.agents[agent], scenario.n_words, config.continuous_actions)
        groups.append(GroupSpec(name, members, observation, action))
        agent += len(members)
    return EnvSpec(
        name=config.name,
        groups=tuple(groups),
        state_shape=(sum(len(names) for names in features),) if config.state else None,
        max_steps=config.max_cycles,
        labels=scenario.label_specs(),
    )
