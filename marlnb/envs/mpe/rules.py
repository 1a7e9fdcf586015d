"""MPE as rules of a batched environment: a scenario's episodes. From the same state and actions, the numbers equal
mpe2's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.mpe.actions import action_spec, actor
from marlnb.envs.mpe.bodies import DTYPE, Bodies
from marlnb.envs.mpe.draws import uniform
from marlnb.envs.mpe.scenario import MPEOptions, Scenario
from marlnb.envs.mpe.world import World
from marlnb.envs.tensor.philox import Draws
from marlnb.envs.tensor.rules import TIME, ByGroup, Rules, State
from marlnb.specs import EnvSpec, GroupSpec, ObservationSpec


class MPERules(Rules):
    """One scenario.

    A state has `rows` `[env, row]`, a view of the world's memory `[row, env]`; `start_range` `[env]`; and the random
    choices of each env's episode, `[env]` int64.
    """

    writes_state = True

    def __init__(self, config: MPEOptions) -> None:
        self.config = config
        self.scenario: Scenario = config.scenario()
        layout = self.layout = self.scenario.layout()
        features = [self.scenario.features(layout, agent) for agent in range(len(self.scenario.agents))]
        self.spec = _spec(config, self.scenario, [tuple(name for name, _ in agent) for agent in features])
        self._feature_rows = [row for agent in features for _, row in agent]
        self._bodies: dict[torch.device, Bodies] = {}
        self._stages: list[tuple[Tensor, Stage]] = []

    def start(self, draw: Draws) -> State:
        stage = self._unused_stage(draw.n_envs, draw.device)
        world = stage.world
        self._begin(world, draw.seed)
        state = {"rows": world.rows.t(), "start_range": world.start_range, **world.choice}
        self._remember(state, stage)
        return state

    def step(self, state: State, action: ByGroup, draw: Draws) -> tuple[State, ByGroup]:
        stage = self.stage(state)
        world = stage.world
        for name, act in stage.acts.items():
            act(action[name])
        self.scenario.advance(world)
        world.measure()
        self.scenario.refresh(world)
        self.scenario.reward(world, stage.reward)
        return state, stage.reward_of

    def observe(self, state: State) -> ByGroup:
        return self.stage(state).observe()

    def terminated(self, state: State) -> Tensor | None:
        """Success before the time limit: mpe2 calls an end at the limit a truncation."""
        if not self.scenario.may_finish:
            return None
        return self.scenario.finished(self.world(state)).logical_and_(state[TIME] < self.config.max_cycles)

    def labels(self, state: State) -> ByGroup:
        return self.scenario.label_values(self.world(state))

    def label_state(self, state: State) -> Tensor:
        choices = [state[name].to(DTYPE)[None] for name in self.scenario.choices]
        return torch.cat((self.world(state).state_rows, *choices)).t()

    def labels_of(self, label_states: Tensor) -> ByGroup:
        world = World.empty(self._bodies_on(label_states.device), len(label_states))
        rows, *choices = label_states.t().split([len(world.state_rows), *[1] * len(self.scenario.choices)])
        world.state_rows.copy_(rows)
        world.choice = {name: value[0].long() for name, value in zip(self.scenario.choices, choices)}
        world.measure()
        self.scenario.refresh(world)
        return self.scenario.label_values(world)

    def draw_picture(self, state: State) -> np.ndarray:
        """As mpe2 draws it, `[height 700, width 700, 3]` uint8; messages have the names of actions."""
        from marlnb.envs.mpe.picture import draw

        return draw(self.to_mpe2(state), self.scenario, self.world(state), 0)

    def to_mpe2(self, state: State, index: int = 0) -> Any:
        """mpe2's raw environment (`AECEnv`) in the state of env `index`, ready for its next step."""
        from marlnb.envs.mpe.picture import to_mpe2

        return to_mpe2(self.config, self.scenario, self.world(state), index, int(state[TIME][index]))

    def world(self, state: State) -> World:
        """The world of a state."""
        return self.stage(state).world

    def stage(self, state: State) -> Stage:
        """The stage of a state: that of the last step, or a new one."""
        rows = state["rows"]
        if self._stages and self._stages[0][0] is rows:
            return self._stages[0][1]
        known = [stage for of, stage in self._stages if of is rows]
        stage = known[0] if known else Stage(self, self._world_at(state))
        self._remember(state, stage)
        return stage

    def _world_at(self, state: State) -> World:
        rows, choice = state["rows"], {name: state[name] for name in self.scenario.choices}
        return World(self._bodies_on(rows.device), rows.t().contiguous(), state["start_range"], choice)

    def _remember(self, state: State, stage: Stage) -> None:
        self._stages = [(state["rows"], stage), *self._stages[:1]]

    def _unused_stage(self, n_envs: int, device: torch.device) -> Stage:
        """That of the state before the current one, whose memory can be used again; otherwise a new one."""
        for _, stage in self._stages[1:]:
            if stage.world.n_envs == n_envs and stage.world.device == device:
                return stage
        return Stage(self, World.empty(self._bodies_on(device), n_envs))

    def _begin(self, world: World, seeds: Tensor) -> None:
        scenario, n_entities = self.scenario, world.n_agents + world.n_landmarks
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

    def _bodies_on(self, device: torch.device) -> Bodies:
        if device not in self._bodies:
            scenario = self.scenario
            bodies = Bodies(scenario.agents, scenario.landmarks, self.layout, self._feature_rows, device)
            self._bodies[device] = bodies
        return self._bodies[device]


class Stage:
    """A world with the functions and buffers that join it to groups of agents.

    Attributes:
        acts: by group, a function that writes actions `[env, agent, ...]` into the world.
        reward: `[agent, env]`.
        reward_of: by group, a view of `reward`, `[env, agent]`.
    """

    def __init__(self, rules: MPERules, world: World) -> None:
        self.world = world
        dtype, n_envs = getattr(torch, rules.config.dtype), world.n_envs
        self._feature_rows = world.bodies.feature_rows
        self._observable = world.rows[: world.bodies.layout.n_observable]
        self._rows = self._observable if dtype == DTYPE else torch.empty_like(self._observable, dtype=dtype)
        self._features = torch.empty(len(self._feature_rows), n_envs, dtype=dtype, device=world.device)
        self.reward = torch.zeros(world.n_agents, n_envs, dtype=DTYPE, device=world.device)
        self.acts, self._observation, self.reward_of = {}, {}, {}
        agent = speaker = feature = 0
        for group in rules.spec.groups:
            body, n, size = rules.scenario.agents[agent], group.n_agents, group.observation.size
            agents, speakers = slice(agent, agent + n), slice(speaker, speaker + (0 if body.silent else n))
            self.acts[group.name] = actor(world, body, agents, speakers, rules.config.continuous_actions)
            features = self._features[feature : feature + n * size]
            self._observation[group.name] = features.t().unflatten(1, (n, size))
            self.reward_of[group.name] = self.reward[agents].t()
            agent, speaker, feature = agents.stop, speakers.stop, feature + n * size

    def observe(self) -> Mapping[str, Tensor]:
        """Selects the observed rows. torch transposes them five times faster in two dimensions and one dtype."""
        if self._rows is not self._observable:
            self._rows.copy_(self._observable)
        torch.index_select(self._rows, 0, self._feature_rows, out=self._features)
        return self._observation


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
