"""The physics of MPE for all envs at once: particles on a plane, pushed by their own force and by soft contacts.

Follows `mpe2._mpe_utils.core.World`. Every number that an observation can contain is a row of one tensor `[row, env]`.
The envs are the last axis, so each operation runs over contiguous memory. The physics is always float64: contacts are
stiff enough to turn a rounding error of 1e-7 into more than 1e-4 within an episode, and double precision costs little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from marlnb.envs.mpe.layout import Body, Layout

DT = 0.1
DAMPING = 0.25
CONTACT_FORCE = 1e2
CONTACT_MARGIN = 1e-3
BY_PAIR_FROM_ENVS = 256  # on a CPU; with fewer, the additional calls cost more than half of the softplus saves
DTYPE = torch.float64
_NO_CONTACT = -1e30  # contact distance of a body with itself


class World:
    """The state of B envs, and the views of it that scenarios read.

    Attributes:
        rows: `[row, env]`, the memory behind all blocks of the layout.
        state_rows: `[row, env]`, position, velocity and message: together with `choice`, the whole state.
        position: `[axis, entity, env]`, agents first, then landmarks.
        velocity: `[axis, agent, env]`.
        message: `[speaker, word, env]`.
        control: `[axis, agent, env]`, what a step adds to the velocity.
        delta: `[axis, agent, entity, env]`, the entity's position minus the agent's.
        distance: `[agent, entity, env]`; 1 from an agent to itself.
        contact_distance: `[agent, entity, 1]`, the distance below which two bodies overlap.
        self_mask: `[agent, entity, 1]`, 1 where both are the same body, else 0.
        choice: the episode's random choices: name -> `[env]` int64.
        start_range: `[env]`, the largest coordinate at the episode's start.
    """

    def __init__(
        self, agents: Sequence[Body], landmarks: Sequence[Body], layout: Layout, n_envs: int, device: torch.device
    ) -> None:
        self.layout, self.n_envs, self.device = layout, n_envs, device
        self._constants: dict[str, Tensor] = {}
        self.n_agents, self.n_landmarks = len(agents), len(landmarks)
        self.rows = torch.zeros(layout.n_rows, n_envs, dtype=DTYPE, device=device)
        self["constant"].copy_(self.tensor(layout.constants)[:, None].expand(-1, n_envs))
        self.state_rows = self.rows[: layout.starts["delta"]]
        self.position, self.velocity, self.message = self["position"], self["velocity"], self["message"]
        self.delta = self["delta"]
        self.control = torch.zeros_like(self.velocity)
        self.choice: dict[str, Tensor] = {}
        self.start_range = torch.ones(n_envs, dtype=DTYPE, device=device)
        self._prepare_distances(agents, landmarks)
        self._prepare_contacts(agents, landmarks)
        self._prepare_speeds(agents)

    def __getitem__(self, block: str) -> Tensor:
        """A view of one block, `[*shape, env]`."""
        start, shape = self.layout.starts[block], self.layout.shapes[block]
        return self.rows[start : start + torch.Size(shape).numel()].view(*shape, self.n_envs)

    def tensor(self, values: Sequence[float] | Sequence[Sequence[float]]) -> Tensor:
        """A constant on the world's device, which is copied there once; not to be written to."""
        key = str(values)
        if key not in self._constants:
            self._constants[key] = torch.tensor(values, dtype=DTYPE, device=self.device)
        return self._constants[key]

    def place(self, start: Tensor, choices: Mapping[str, Tensor]) -> None:
        """Puts the entities at `start` `[axis, entity, env]`, at rest and silent."""
        self.position.copy_(start)
        self.velocity.zero_()
        self.message.zero_()
        self.start_range.copy_(start.abs().amax((0, 1)))
        for name, value in choices.items():
            if name not in self.choice:
                self.choice[name] = torch.zeros_like(value)
            self.choice[name].copy_(value)

    def state_tensors(self) -> list[Tensor]:
        """Everything that one env's episode has, each `[..., env]`; distances follow from it by `measure`."""
        return [self.rows, self.start_range, *self.choice.values()]

    def advance(self) -> None:
        """One step of `DT` seconds.

        mpe2 moves bodies with the velocity from before the step, so the position is updated first.
        """
        if not self.can_move:
            return
        if self.n_colliding:
            self._find_contact_forces()
        self._moving_position.add_(self.velocity, alpha=DT)
        torch.add(self.control, self.velocity, alpha=1 - DAMPING, out=self.velocity)
        if self.n_colliding:
            self.velocity.add_(self._force, alpha=-CONTACT_FORCE * DT)
        if self._max_speed is not None:
            self._limit_speeds(self._max_speed)

    def measure(self) -> None:
        """Recomputes delta and distance from position: distance = sqrt(dx² + dy² + self_mask)."""
        torch.sub(self._entity_position, self._agent_position, out=self.delta)
        torch.addcmul(self.self_mask, self._delta_x, self._delta_x, out=self.distance)
        self.distance.addcmul_(self._delta_y, self._delta_y).sqrt_()

    def distance_to(self, landmark: Tensor) -> Tensor:
        """Every agent's distance to one landmark per env (`landmark` `[env]`, its number): `[agent, env]`."""
        index = landmark.expand(self.n_agents, 1, -1)
        return self.landmark_distance.gather(1, index)[:, 0]

    def distance_of(self, agent: int, landmark: Tensor) -> Tensor:
        """One agent's distance to one landmark per env (`landmark` `[env]`, its number): `[env]`."""
        return self._landmark_distance_of[agent].gather(0, landmark[None])[0]

    def delta_to(self, landmark: Tensor) -> Tensor:
        """One landmark per env (`landmark` `[env]`, its number) minus every agent: `[axis, agent, env]`."""
        index = landmark.expand(2, self.n_agents, 1, -1)
        return self.landmark_delta.gather(2, index)[:, :, 0]

    def touching(self, agents: slice, entities: slice) -> Tensor:
        """`[agent, entity, env]` bool: the agent overlaps the entity; False for an agent and itself."""
        return self.distance[agents, entities] < self.contact_distance[agents, entities]

    def touching_agents(self) -> Tensor:
        """`[agent, agent, env]` bool: the agents overlap; False for an agent and itself."""
        return self.agent_distance < self._agent_contact_distance

    def count_touching_agents(self, out: Tensor) -> None:
        """Writes how many other agents each agent overlaps into `out` `[agent, env]`."""
        torch.lt(self.agent_distance, self._agent_contact_distance, out=self._touching)
        torch.sum(self._touching, 1, out=out)

    def _prepare_distances(self, agents: Sequence[Body], landmarks: Sequence[Body]) -> None:
        n, entities = self.n_agents, [*agents, *landmarks]
        self._moving_position = self.position[:, :n]
        self._entity_position, self._agent_position = self.position[:, None], self._moving_position[:, :, None]
        self._delta_x, self._delta_y = self.delta
        self.self_mask = torch.eye(n, len(entities), dtype=DTYPE, device=self.device)[:, :, None]
        self.distance = torch.ones(n, len(entities), self.n_envs, dtype=DTYPE, device=self.device)
        sizes = [[a.size + e.size if a is not e else _NO_CONTACT for e in entities] for a in agents]
        self.contact_distance = self.tensor(sizes)[:, :, None]
        self.agent_distance, self.landmark_distance = self.distance[:, :n], self.distance[:, n:]
        self.landmark_delta = self.delta[:, :, n:]
        self._landmark_distance_of = self.landmark_distance.unbind()
        self._touching = torch.zeros_like(self.agent_distance)
        self._agent_contact_distance = self.contact_distance[:, :n]

    def _prepare_contacts(self, agents: Sequence[Body], landmarks: Sequence[Body]) -> None:
        entities = [*agents, *landmarks]
        self.can_move = any(agent.movable for agent in agents)
        self.n_colliding = sum(entity.collide for entity in entities) if agents[0].collide else 0
        # a slice then selects the colliding entities: they come first
        assert all(entity.collide == (i < self.n_colliding) for i, entity in enumerate(entities))
        shape = (self.n_agents, self.n_colliding, self.n_envs)
        self._push = torch.zeros(2, *shape, dtype=DTYPE, device=self.device)
        self._force = torch.zeros_like(self.velocity)
        self._collider_distance = self.distance[:, : self.n_colliding]
        self._collider_delta = self.delta[:, :, : self.n_colliding]
        self._collider_contact_distance = self.contact_distance[:, : self.n_colliding]
        self._overlap = torch.zeros(shape, dtype=DTYPE, device=self.device)
        self._strength = torch.zeros_like(self._overlap)
        self._prepare_pairs(len(entities))

    def _prepare_pairs(self, n_entities: int) -> None:
        """The distance of i and j is that of j and i, so with many envs each pair's overlap is computed once."""
        each = [(i, j) for i in range(self.n_agents) for j in range(self.n_colliding)]
        pairs = sorted({(min(pair), max(pair)) for pair in each if pair[0] != pair[1]})
        self._by_pair = bool(pairs) and self.n_envs >= BY_PAIR_FROM_ENVS and self.device.type == "cpu"
        if not self._by_pair:
            return
        numbers = {pair: number for number, pair in enumerate(pairs)}
        self._pairs = torch.tensor([i * n_entities + j for i, j in pairs])
        # a body and itself: any pair, since their delta is zero
        self._pair_of = torch.tensor([numbers.get((min(pair), max(pair)), 0) for pair in each])
        self._distance_rows, self._strength_rows = self.distance.flatten(0, 1), self._strength.flatten(0, 1)
        self._collider_contact_distance = self.contact_distance.flatten(0, 1)[self._pairs]
        self._collider_distance = torch.zeros(len(pairs), self.n_envs, dtype=DTYPE)
        self._overlap = torch.zeros_like(self._collider_distance)

    def _prepare_speeds(self, agents: Sequence[Body]) -> None:
        self._velocity_x, self._velocity_y = self.velocity
        limited = any(agent.max_speed < float("inf") for agent in agents)
        self._max_speed = self.tensor([agent.max_speed for agent in agents])[:, None] if limited else None
        self._speed = torch.zeros(self.n_agents, self.n_envs, dtype=DTYPE, device=self.device)

    def _find_contact_forces(self) -> None:
        """`[axis, agent, env]`: the sum over bodies j of softplus(overlap_ij) * delta_ij / distance_ij.

        softplus has the sharpness 1 / CONTACT_MARGIN. `advance` multiplies by -CONTACT_FORCE: contacts push apart.
        """
        if self._by_pair:
            torch.index_select(self._distance_rows, 0, self._pairs, out=self._collider_distance)
        torch.sub(self._collider_contact_distance, self._collider_distance, out=self._overlap)
        # the private function, because torch.nn.functional.softplus has no `out=`
        torch._C._nn.softplus(self._overlap, 1 / CONTACT_MARGIN, 40.0, out=self._overlap)  # type: ignore[call-arg]
        strength = self._overlap.div_(self._collider_distance)
        if self._by_pair:
            torch.index_select(strength, 0, self._pair_of, out=self._strength_rows)
            strength = self._strength
        torch.mul(self._collider_delta, strength, out=self._push)
        torch.sum(self._push, 2, out=self._force)

    def _limit_speeds(self, max_speed: Tensor) -> None:
        torch.mul(self._velocity_x, self._velocity_x, out=self._speed)
        self._speed.addcmul_(self._velocity_y, self._velocity_y).sqrt_()
        torch.div(max_speed, self._speed, out=self._speed)
        self.velocity.mul_(self._speed.clamp_(max=1.0))
