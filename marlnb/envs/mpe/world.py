"""The physics of MPE for all envs at once: particles on a plane, pushed by their own force and by soft contacts.

Follows `mpe2._mpe_utils.core.World`. Every number that an observation can contain is a row of one tensor `[row, env]`.
The envs are the last axis, so each operation runs over contiguous memory. The physics is always float64: contacts are
stiff enough to turn a rounding error of 1e-7 into more than 1e-4 within an episode, and double precision costs little.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from marlnb.envs.mpe.bodies import DTYPE, Bodies, Numbers

DT = 0.1
DAMPING = 0.25
CONTACT_FORCE = 1e2
CONTACT_MARGIN = 1e-3
BY_PAIR_FROM_ENVS = 256  # on a CPU; with fewer, the additional calls cost more than half of the softplus saves


class World:
    """The state of B envs, the views of it that scenarios read, and its physics, which writes into it.

    Attributes:
        rows: `[row, env]`, the memory behind all blocks of the layout.
        state_rows: `[row, env]`, position, velocity and message: together with `choice`, the whole state.
        position: `[axis, entity, env]`, agents first, then landmarks.
        velocity: `[axis, agent, env]`.
        message: `[speaker, word, env]`.
        control: `[axis, agent, env]`, what a step adds to the velocity.
        delta: `[axis, agent, entity, env]`, the entity's position minus the agent's.
        distance: `[agent, entity, env]`; 1 from an agent to itself.
        choice: the episode's random choices: name -> `[env]` int64.
        start_range: `[env]`, the largest coordinate at the episode's start.
    """

    def __init__(self, bodies: Bodies, rows: Tensor, start_range: Tensor, choice: Mapping[str, Tensor]) -> None:
        """
        Args:
            rows: `[row, env]`, contiguous; the world keeps its state there.
        """
        self.bodies, self.rows, self.start_range, self.choice = bodies, rows, start_range, choice
        self.n_agents, self.n_landmarks, self.device = bodies.n_agents, bodies.n_landmarks, bodies.device
        self.n_envs = rows.shape[1]
        self.state_rows = rows[: bodies.layout.starts["delta"]]
        self.position, self.velocity, self.message = self["position"], self["velocity"], self["message"]
        self.delta = self["delta"]
        self.control = torch.zeros_like(self.velocity)
        self._velocity_x, self._velocity_y = self.velocity
        self._speed = torch.empty_like(self._velocity_x)
        self._prepare_distances()
        self._prepare_contacts()

    @classmethod
    def empty(cls, bodies: Bodies, n_envs: int) -> World:
        """All entities at the origin, at rest and silent."""
        rows = torch.zeros(bodies.layout.n_rows, n_envs, dtype=DTYPE, device=bodies.device)
        world = cls(bodies, rows, torch.ones(n_envs, dtype=DTYPE, device=bodies.device), {})
        world["constant"].copy_(bodies.constants)
        return world

    def __getitem__(self, block: str) -> Tensor:
        """A view of one block, `[*shape, env]`."""
        layout = self.bodies.layout
        start, shape = layout.starts[block], layout.shapes[block]
        return self.rows[start : start + prod(shape)].view(*shape, self.n_envs)

    def tensor(self, values: Numbers) -> Tensor:
        """As `Bodies.tensor`."""
        return self.bodies.tensor(values)

    def place(self, start: Tensor, choices: Mapping[str, Tensor]) -> None:
        """Puts the entities at `start` `[axis, entity, env]`, at rest and silent."""
        self.position.copy_(start)
        self.velocity.zero_()
        self.message.zero_()
        torch.amax(start.abs(), (0, 1), out=self.start_range)
        self.choice = dict(choices)

    def advance(self) -> None:
        """One step of `DT` seconds.

        mpe2 moves bodies with the velocity from before the step, so the position is updated first.
        """
        if not self.bodies.can_move:
            return
        if self.bodies.n_colliding:
            self._find_contact_forces()
        self._moving_position.add_(self.velocity, alpha=DT)
        torch.add(self.control, self.velocity, alpha=1 - DAMPING, out=self.velocity)
        if self.bodies.n_colliding:
            self.velocity.add_(self._force, alpha=-CONTACT_FORCE * DT)
        if self.bodies.max_speed is not None:
            self._limit_speeds(self.bodies.max_speed)

    def measure(self) -> None:
        """Recomputes delta and distance from position: distance = sqrt(dx² + dy² + self_mask)."""
        torch.sub(self._entity_position, self._agent_position, out=self.delta)
        torch.addcmul(self.bodies.self_mask, self._delta_x, self._delta_x, out=self.distance)
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
        return self.distance[agents, entities] < self.bodies.contact_distance[agents, entities]

    def touching_agents(self) -> Tensor:
        """`[agent, agent, env]` bool: the agents overlap; False for an agent and itself."""
        return self.agent_distance < self._agent_contact_distance

    def count_touching_agents(self, out: Tensor) -> None:
        """Writes how many other agents each agent overlaps into `out` `[agent, env]`."""
        torch.lt(self.agent_distance, self._agent_contact_distance, out=self._touching)
        torch.sum(self._touching, 1, out=out)

    def _prepare_distances(self) -> None:
        n = self.n_agents
        self._moving_position = self.position[:, :n]
        self._entity_position, self._agent_position = self.position[:, None], self._moving_position[:, :, None]
        self._delta_x, self._delta_y = self.delta
        self.distance = self["distance"]
        self.agent_distance, self.landmark_distance = self.distance[:, :n], self.distance[:, n:]
        self.landmark_delta = self.delta[:, :, n:]
        self._landmark_distance_of = self.landmark_distance.unbind()
        self._touching = torch.empty_like(self.agent_distance)
        self._agent_contact_distance = self.bodies.contact_distance[:, :n]

    def _prepare_contacts(self) -> None:
        """With many envs each pair's overlap is computed once."""
        n, bodies = self.bodies.n_colliding, self.bodies
        self._by_pair = len(bodies.pairs) > 0 and self.n_envs >= BY_PAIR_FROM_ENVS and self.device.type == "cpu"
        self._collider_delta = self.delta[:, :, :n]
        self._push, self._force = torch.empty_like(self._collider_delta), torch.empty_like(self.velocity)
        self._strength = torch.empty_like(self._push[0])
        self._collider_distance = self.distance[:, :n]
        self._collider_contact_distance = bodies.contact_distance[:, :n]
        self._overlap = self._strength
        if self._by_pair:
            self._distance_rows, self._strength_rows = self.distance.flatten(0, 1), self._strength.flatten(0, 1)
            self._collider_contact_distance = bodies.pair_contact_distance
            self._collider_distance = self.rows.new_empty(len(bodies.pairs), self.n_envs)
            self._overlap = torch.empty_like(self._collider_distance)

    def _find_contact_forces(self) -> None:
        """`[axis, agent, env]`: the sum over bodies j of softplus(overlap_ij) * delta_ij / distance_ij.

        softplus has the sharpness 1 / CONTACT_MARGIN. `advance` multiplies by -CONTACT_FORCE: contacts push apart.
        """
        if self._by_pair:
            torch.index_select(self._distance_rows, 0, self.bodies.pairs, out=self._collider_distance)
        torch.sub(self._collider_contact_distance, self._collider_distance, out=self._overlap)
        # the private function, because torch.nn.functional.softplus has no `out=`
        torch._C._nn.softplus(self._overlap, 1 / CONTACT_MARGIN, 40.0, out=self._overlap)  # type: ignore[call-arg]
        self._overlap.div_(self._collider_distance)
        if self._by_pair:
            torch.index_select(self._overlap, 0, self.bodies.pair_of, out=self._strength_rows)
        torch.mul(self._collider_delta, self._strength, out=self._push)
        torch.sum(self._push, 2, out=self._force)

    def _limit_speeds(self, max_speed: Tensor) -> None:
        torch.mul(self._velocity_x, self._velocity_x, out=self._speed)
        self._speed.addcmul_(self._velocity_y, self._velocity_y).sqrt_()
        torch.div(max_speed, self._speed, out=self._speed)
        self.velocity.mul_(self._speed.clamp_(max=1.0))
