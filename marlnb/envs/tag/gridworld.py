"""The rules of tag from cell to cell. The reference is the Python step of WarpDrive 2.7.1."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.tag.options import TagGridWorldOptions
from marlnb.envs.tensor.philox import Draws
from marlnb.envs.tensor.picture import COLOURS, draw_discs
from marlnb.envs.tensor.rules import TIME, ByGroup, Rules, State


class TagGridWorld(Rules):
    """State, each `[env, agent]` int64: `x`, `y` in 0 to grid_length. The runner is the last agent."""

    def __init__(self, config: TagGridWorldOptions, device: str | torch.device = "cpu") -> None:
        self.config, self.spec = config, config.tag_spec()
        self.fixed_start = config.starts == "shared"
        self._n = config.num_taggers + 1
        middle = [config.grid_length // 2] * config.num_taggers + [0]
        self._shared_x = torch.tensor(config.starting_location_x or middle, device=device)
        self._shared_y = torch.tensor(config.starting_location_y or middle, device=device)

    def start(self, draw: Draws) -> State:
        length = self.config.grid_length
        if self.config.starts == "env":
            cell = draw.integers(length + 1, self._n, 2)
            return {"x": cell[..., 0], "y": cell[..., 1]}
        return {"x": self._shared_x.expand(draw.n_envs, -1), "y": self._shared_y.expand(draw.n_envs, -1)}

    def step(self, state: State, action: ByGroup, draw: Draws) -> tuple[State, ByGroup]:
        config, move = self.config, torch.cat((action["tagger"], action["runner"]), 1)
        x, y = (
            state["x"] + (move == 1).long() - (move == 2).long(),
            state["y"] + (move == 3).long() - (move == 4).long(),
        )
        state = {"x": x.clamp(0, config.grid_length), "y": y.clamp(0, config.grid_length)}
        wall = ((x != state["x"]) | (y != state["y"])) * -config.wall_hit_penalty
        tagged = self._is_tagged(state)[:, None]
        tagger = torch.where(tagged, config.tag_reward_for_tagger, -config.step_cost_for_tagger)
        runner = torch.where(tagged, -config.tag_penalty_for_runner, config.step_cost_for_tagger)
        return state, {"tagger": wall[:, :-1] + tagger, "runner": wall[:, -1:] + runner}

    def terminated(self, state: State) -> Tensor:
        """The runner is tagged, or the time, which agents observe, is over."""
        return self._is_tagged(state) | (state[TIME] >= self.config.episode_length)

    def observe(self, state: State) -> ByGroup:
        features = self._all_agents(state) if self.config.use_full_observation else self._nearest(state)
        time = (state[TIME] / self.config.episode_length)[:, None, None].expand(-1, self._n, 1)
        features = torch.cat((features, time), -1)
        return {"tagger": features[:, :-1], "runner": features[:, -1:]}

    def labels(self, state: State) -> ByGroup:
        return {"tagger_distance": self._squared_distance(state).amin(1, keepdim=True).float().sqrt()}

    def draw_picture(self, state: State) -> np.ndarray:
        cells = self.config.grid_length + 1
        positions = (torch.stack((state["x"][0], state["y"][0]), -1) + 0.5) / cells
        colours = [COLOURS[1]] * self.config.num_taggers + [COLOURS[0]]
        radius = max(0.5 / cells, 0.01)
        return draw_discs(positions.numpy(), colours, radius=[radius] * self.config.num_taggers + [0.7 * radius])

    def _all_agents(self, state: State) -> Tensor:
        """`[env, agent, 4 n]`: x, y, type and identity of all agents."""
        n, device = self._n, state["x"].device
        place = torch.cat((state["x"], state["y"]), 1) / self.config.grid_length
        is_runner = torch.arange(n, device=device) == n - 1
        alike = torch.cat((place, is_runner.expand(len(place), -1)), 1)[:, None].expand(-1, n, -1)
        return torch.cat((alike, torch.eye(n, device=device).expand(len(place), n, n)), -1)

    def _nearest(self, state: State) -> Tensor:
        """`[env, agent, 5]`: its place, that of the runner or of the nearest tagger, and its type."""
        n, place = self._n, torch.stack((state["x"], state["y"]), -1) / self.config.grid_length
        ids = torch.arange(n - 1, device=place.device)
        closest = (self._squared_distance(state) * n + ids).amin(1) % n  # the smallest id where several are nearest
        tagger = place.gather(1, closest[:, None, None].expand(-1, 1, 2))
        other = torch.cat((place[:, -1:].expand(-1, n - 1, -1), tagger), 1)
        is_runner = (torch.arange(n, device=place.device) == n - 1)[None, :, None].expand(len(place), -1, -1)
        return torch.cat((place, other, is_runner), -1)

    def _squared_distance(self, state: State) -> Tensor:
        """`[env, tagger]`, to the runner."""
        return sum((state[axis][:, :-1] - state[axis][:, -1:]).square() for axis in ("x", "y"))  # type: ignore[return-value]

    def _is_tagged(self, state: State) -> Tensor:
        return (self._squared_distance(state) == 0).any(1)
