"""The rules of an MPE scenario, for many episodes at once.

From the same state and actions, the numbers equal mpe2's.
"""

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
        # of the last two states, by number of envs and device
        self._recent: dict[tuple[int, torch.device], list[GroupedWorld]] = {}

    def start(self, draw: Draws) -> State:
        grouped = self._unused(draw.n_envs, draw.device)
        world = grouped.world
        self._begin(world, draw.seed)
        grouped.rows = world.rows.t()
        self._use(grouped)
        return {"rows": grouped.rows, "start_range": world.start_range, **world.choice}

    def step(self, state: State, action: ByGroup, draw: Draws) -> tuple[State, ByGroup]:
        grouped = self._grouped(state)
        world = grouped.world
        for name, act in grouped.acts.items():
            act(action[name])
        self.scenario.advance(world)
        world.measure()
        self.scenario.refresh(world)
        self.scenario.reward(world, grouped.reward)
        after = state if grouped.rows is state["rows"] else {**state, "rows": grouped.rows}
        return after, grouped.reward_of

    def observe(self, state: State) -> ByGroup:
        return self._grouped(state).observe()

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
        from marlnb.envs.mpe.mpe2_reference import draw

        return draw(self.to_mpe2(state), self.scenario, self.world(state), 0)

    def to_mpe2(self, state: State, index: int = 0) -> Any:
        """mpe2's raw environment (`AECEnv`) in the state of env `index`, ready for its next step."""
        from marlnb.envs.mpe.mpe2_reference import to_mpe2

        return to_mpe2(self.config, self.scenario, self.world(state), index, int(state[TIME][index]))

    def world(self, state: State) -> World:
        """The world of a state."""
        return self._grouped(state).world

    def _grouped(self, state: State) -> GroupedWorld:
        """That of one of the last two states, or a new one; the current state is the last that was used."""
        rows = state["rows"]
        recent = self._recent.get((len(rows), rows.device), [])
        if recent and recent[0].rows is rows:
            return recent[0]
        known = [grouped for grouped in recent if grouped.rows is rows]
        return self._use(known[0] if known else self._new(state))

    def _use(self, grouped: GroupedWorld) -> GroupedWorld:
        """Makes it the first of the last two of its size and device. A captured step keeps writing to both of them."""
        key = grouped.world.n_envs, grouped.world.device
        self._recent[key] = [grouped, *(other for other in self._recent.get(key, ()) if other is not grouped)][:2]
        return grouped

    def _new(self, state: State) -> GroupedWorld:
        """In the memory of the state where that is `[row, env]`, otherwise in a copy."""
        memory, choice = state["rows"].t(), {name: state[name] for name in self.scenario.choices}
        is_copied = not memory.is_contiguous()
        world = World(self._bodies_on(memory.device), memory.contiguous(), state["start_range"], choice)
        return GroupedWorld(self, world, world.rows.t() if is_copied else state["rows"])

    def _unused(self, n_envs: int, device: torch.device) -> GroupedWorld:
        """That of the state before the current one, whose memory can be used again; otherwise a new one."""
        recent = self._recent.get((n_envs, device), [])
        if len(recent) > 1:
            return recent[1]
        world = World.empty(self._bodies_on(device), n_envs)
        return GroupedWorld(self, world, world.rows.t())

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


class GroupedWorld:
    """A world with the functions and buffers that join it to groups of agents.

    Attributes:
        rows: `[env, row]`, of the state that the world is in.
        acts: by group, a function that writes actions `[env, agent, ...]` into the world.
        reward: `[agent, env]`.
        reward_of: by group, a view of `reward`, `[env, agent]`.
    """

    def __init__(self, rules: MPERules, world: World, rows: Tensor) -> None:
        self.world, self.rows = world, rows
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
