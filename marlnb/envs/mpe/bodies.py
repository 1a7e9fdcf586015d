"""The constants of a scenario's bodies: sizes, which of them collide, how fast they may be."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from marlnb.envs.mpe.layout import Body, Layout

DTYPE = torch.float64
_NO_CONTACT = -1e30  # contact distance of a body with itself

Numbers = Sequence[float] | Sequence[Sequence[float]]


class Bodies:
    """Constants on one device, shared by all worlds of a scenario.

    Attributes:
        layout: of the rows of a world.
        self_mask: `[agent, entity, 1]`, 1 where both are the same body, else 0.
        contact_distance: `[agent, entity, 1]`, the distance below which two bodies overlap.
        can_move: whether any agent moves.
        n_colliding: number of entities that collide; they come first.
        pairs: `[pair]`, the rows of `World.distance` that hold each pair of colliding bodies once.
        pair_of: `[agent * colliding entity]`, the number of the pair.
        pair_contact_distance: `[pair, 1]`.
        max_speed: `[agent, 1]`; None: no agent has a limit.
        feature_rows: `[feature]`, the rows that agents observe.
    """

    def __init__(
        self,
        agents: Sequence[Body],
        landmarks: Sequence[Body],
        layout: Layout,
        feature_rows: Sequence[int],
        device: torch.device,
    ) -> None:
        self.layout, self.device = layout, device
        self.n_agents, self.n_landmarks = len(agents), len(landmarks)
        self._tensors: dict[str, Tensor] = {}
        self.feature_rows = torch.tensor(feature_rows, dtype=torch.int64, device=device)
        entities = [*agents, *landmarks]
        self.constants = self.tensor(layout.constants)[:, None]
        self.self_mask = torch.eye(len(agents), len(entities), dtype=DTYPE, device=device)[:, :, None]
        sizes = [[a.size + e.size if a is not e else _NO_CONTACT for e in entities] for a in agents]
        self.contact_distance = self.tensor(sizes)[:, :, None]
        self.can_move = any(agent.movable for agent in agents)
        self.n_colliding = sum(entity.collide for entity in entities) if agents[0].collide else 0
        # a slice then selects the colliding entities: they come first
        assert all(entity.collide == (i < self.n_colliding) for i, entity in enumerate(entities))
        limited = any(agent.max_speed < float("inf") for agent in agents)
        self.max_speed = self.tensor([agent.max_speed for agent in agents])[:, None] if limited else None
        self._prepare_pairs()

    def tensor(self, values: Numbers) -> Tensor:
        """A constant, which is copied to the device once; not to be written to."""
        key = str(values)
        if key not in self._tensors:
            self._tensors[key] = torch.tensor(values, dtype=DTYPE, device=self.device)
        return self._tensors[key]

    def _prepare_pairs(self) -> None:
        """The distance of i and j is that of j and i, so each pair's overlap can be computed once."""
        n_entities = self.n_agents + self.n_landmarks
        each = [(i, j) for i in range(self.n_agents) for j in range(self.n_colliding)]
        pairs = sorted({(min(pair), max(pair)) for pair in each if pair[0] != pair[1]})
        numbers = {pair: number for number, pair in enumerate(pairs)}
        self.pairs = torch.tensor([i * n_entities + j for i, j in pairs], dtype=torch.int64, device=self.device)
        # a body and itself: any pair, since their delta is zero
        numbers_of = [numbers.get((min(pair), max(pair)), 0) for pair in each]
        self.pair_of = torch.tensor(numbers_of, dtype=torch.int64, device=self.device)
        self.pair_contact_distance = self.contact_distance.flatten(0, 1)[self.pairs]
