"""The rules of tag on a square. The reference is the Python step of WarpDrive 2.7.1, not its kernels: they lose
a reward when one tagger tags two runners in one step."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.tag.neighbours import nearest
from marlnb.envs.tag.neighbours_torch import distance
from marlnb.envs.tag.options import TagContinuousOptions
from marlnb.envs.tensor.philox import Draws
from marlnb.envs.tensor.picture import COLOURS, GONE, draw_discs
from marlnb.envs.tensor.rules import TIME, ByGroup, Rules, State


class TagContinuous(Rules):
    """State, each `[env, agent]`: `x`, `y`, `speed`, `direction` (rad), `acceleration` float32; `in_game` bool;
    `observed_in_game` bool, from before the step's tags: what observations show.

    The agent axis has taggers first, unless `is_tagger` says otherwise.
    """

    def __init__(
        self,
        config: TagContinuousOptions,
        *,
        is_tagger: Sequence[bool] | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        """
        Args:
            config: the options.
            is_tagger: of each agent on the agent axis, in any order.
            device: where the constants are.
        """
        self.config, self.spec = config, config.tag_spec()
        self.fixed_start = config.starts == "shared"
        flags = torch.arange(config.n_agents) < config.num_taggers if is_tagger is None else torch.tensor(is_tagger)
        self.taggers, self.runners = _ids(flags, device), _ids(~flags, device)
        self._in_order = is_tagger is None
        self._axis_order = torch.cat((flags.nonzero()[:, 0], (~flags).nonzero()[:, 0])).argsort().to(device)
        self._is_tagger = flags.to(device)
        self._type = flags.float().to(device)
        skill = torch.where(flags, config.skill_level_tagger, config.skill_level_runner).float()
        self._top_speed = (skill * config.max_speed).to(device)
        step_reward = torch.where(flags, config.step_penalty_for_tagger, config.step_reward_for_runner)
        self._step_reward = step_reward.float().to(device)
        self._accelerations = _levels(
            config.min_acceleration, config.max_acceleration, config.num_acceleration_levels, device
        )
        self._turns = _levels(config.min_turn, config.max_turn, config.num_turn_levels, device)
        ids = torch.arange(config.n_agents)
        self._others = torch.stack([torch.cat((ids[:i], ids[i + 1 :])) for i in ids]).to(device)
        start = (config.starting_location_x, config.starting_location_y, config.starting_directions)
        self._given_start = [torch.tensor(values, device=device) if values else None for values in start]

    def start(self, draw: Draws) -> State:
        n = self.config.n_agents
        if self.fixed_start:
            draw = Draws(torch.full_like(draw.seed, self.config.start_seed))
        place, quarter = draw.uniform(n, 2) * self.config.grid_length, draw.integers(4, n)
        drawn = (place[..., 0], place[..., 1], quarter * (pi / 2))
        x, y, direction = (
            values if given is None else given.expand_as(values) for values, given in zip(drawn, self._given_start)
        )
        zero, true = torch.zeros_like(x), torch.ones_like(quarter, dtype=torch.bool)
        return {
            "x": x, "y": y, "speed": zero, "direction": direction.float(), "acceleration": zero,
            "in_game": true, "observed_in_game": true,
        }  # fmt: skip

    def step(self, state: State, action: ByGroup, draw: Draws) -> tuple[State, ByGroup]:
        was_in_game = state["in_game"]
        moved, hits_edge = self._move(state, self._join(action["tagger"], action["runner"]))
        reward = (hits_edge * self.config.edge_hit_penalty + self._step_reward) * was_in_game
        is_tagged, n_tags = self._tags(moved["x"], moved["y"], was_in_game)
        tagger_reward = reward[:, self.taggers] + n_tags * self.config.tag_reward_for_tagger
        runner_reward = reward[:, self.runners] + is_tagged * self.config.tag_penalty_for_runner
        left = was_in_game[:, self.runners]
        if self.config.runner_exits_game_after_tagged:
            left = left & ~is_tagged
        is_last = (state[TIME] + 1 == self.config.episode_length)[:, None]
        runner_reward = runner_reward + (is_last & left) * self.config.end_of_game_reward_for_runner
        in_game = self._join(was_in_game[:, self.taggers], left)
        state = {**moved, "in_game": in_game, "observed_in_game": was_in_game}
        return state, {"tagger": tagger_reward, "runner": runner_reward}

    def terminated(self, state: State) -> Tensor:
        """No runner is left, or the time, which agents observe, is over."""
        return ~state["in_game"][:, self.runners].any(1) | (state[TIME] >= self.config.episode_length)

    def alive(self, state: State) -> ByGroup:
        if not self.config.runner_exits_game_after_tagged:
            return {}
        return {"runner": state["in_game"][:, self.runners]}

    def observe(self, state: State) -> ByGroup:
        features = self.features(state)
        return {"tagger": features[:, self.taggers], "runner": features[:, self.runners]}

    def features(self, state: State) -> Tensor:
        """`[env, agent, feature]`: relative x, y, speed, acceleration and direction, type, and whether it is in the
        game, each of all observed agents; then the time.

        An agent out of the game observes zeros; with full observation it still observes types and who is in the game.
        """
        in_game, full = state["observed_in_game"], self.config.use_full_observation
        if full:
            who = self._others.expand(len(in_game), -1, -1)
            shown = in_game[..., None]
        else:
            neighbours = nearest(state["x"], state["y"], in_game, self.config.num_other_agents_observed)
            who, shown = neighbours.clamp(min=0), (neighbours >= 0) & in_game[..., None]
        speed_scale = 1 / (self.config.max_speed + 1e-10)
        length_scale = 1 / (self.config.grid_length * sqrt(2))
        scales = {
            "x": length_scale, "y": length_scale, "speed": speed_scale, "acceleration": speed_scale,
            "direction": 1 / (2 * pi),
        }  # fmt: skip
        flat = who.flatten(1)
        rows = []
        for name, scale in scales.items():
            value = state[name]
            rows.append((value.gather(1, flat).view(who.shape) - value[..., None]) * shown * scale)
        kept = torch.ones_like(shown) if full else shown
        rows.append(self._type[who] * kept)
        rows.append(in_game.float().gather(1, flat).view(who.shape) * kept)
        time = (state[TIME] / self.config.episode_length)[:, None] * in_game
        return torch.cat((*rows, time[..., None]), -1)

    def labels(self, state: State) -> ByGroup:
        in_game, gap = state["in_game"], self._distance(state["x"], state["y"])
        runners = in_game[:, self.runners]
        return {
            "tagged": (~runners).long(),
            "tagger_distance": gap.amin(2),
            "runner_distance": torch.where(runners[..., None], gap, self.config.grid_length * sqrt(2)).amin(1),
            "runners_left": runners.sum(1).float(),
        }

    def draw_picture(self, state: State) -> np.ndarray:
        positions = (torch.stack((state["x"][0], state["y"][0]), -1) / self.config.grid_length).numpy()
        is_tagger, in_game = self._is_tagger.tolist(), state["in_game"][0].tolist()
        colours = [COLOURS[1] if t else COLOURS[0] if here else GONE for t, here in zip(is_tagger, in_game)]
        order = sorted(range(len(colours)), key=lambda i: (in_game[i], is_tagger[i]))  # taggers are drawn last
        radius = [max(self.config.tagging_distance, 0.012) if is_tagger[i] else 0.01 for i in order]
        return draw_discs(positions[order], [colours[i] for i in order], radius=radius)

    def _move(self, state: State, action: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """The agents' next motion, and `[env, agent]` bool: those that ran into the edge."""
        in_game, length = state["in_game"], self.config.grid_length
        direction = torch.remainder(state["direction"] + self._turns[action[..., 1]], 2 * pi) * in_game
        acceleration = state["acceleration"] + self._accelerations[action[..., 0]]
        speed = torch.minimum((state["speed"] + acceleration).clamp(min=0), self._top_speed) * in_game
        acceleration = acceleration * (speed > 0) * (speed < self._top_speed)
        x, y = state["x"] + speed * direction.cos(), state["y"] + speed * direction.sin()
        hits_edge = (x < 0) | (x > length) | (y < 0) | (y > length)
        motion = {"x": x.clamp(0, length), "y": y.clamp(0, length), "speed": speed}
        return {**motion, "direction": direction, "acceleration": acceleration}, hits_edge

    def _tags(self, x: Tensor, y: Tensor, in_game: Tensor) -> tuple[Tensor, Tensor]:
        """`[env, runner]` bool: who is tagged; `[env, tagger]`: how many runners each tagger tags.

        A sum over runners for each tagger: no result depends on the order of a GPU's threads.
        """
        closest, by = self._distance(x, y).min(2)
        is_tagged = (closest < self.config.tagging_distance * self.config.grid_length) & in_game[:, self.runners]
        tagger = torch.arange(self.config.num_taggers, device=x.device)
        return is_tagged, ((by[..., None] == tagger) & is_tagged[..., None]).sum(1)

    def _distance(self, x: Tensor, y: Tensor) -> Tensor:
        """`[env, runner, tagger]`."""
        runner, tagger = self.runners, self.taggers
        return distance(x[:, runner, None], y[:, runner, None], x[:, None, tagger], y[:, None, tagger])

    def _join(self, taggers: Tensor, runners: Tensor) -> Tensor:
        """`[env, agent, …]` of both groups, in the order of the agent axis."""
        joined = torch.cat((taggers, runners), 1)
        return joined if self._in_order else joined[:, self._axis_order]


def _ids(flags: Tensor, device: str | torch.device) -> slice | Tensor:
    """Where the flags are set; a slice if they are adjacent, which selects without a copy."""
    ids = flags.nonzero()[:, 0]
    first, n = int(ids[0]), len(ids)
    return slice(first, first + n) if int(ids[-1]) == first + n - 1 else ids.to(device)


def _levels(low: float, high: float, n: int, device: str | torch.device) -> Tensor:
    """No change, then n values from low to high; computed in float32, as WarpDrive does, to equal its last bit."""
    values = np.linspace(np.float32(low), np.float32(high), n, dtype=np.float32)
    return torch.from_numpy(np.insert(values, 0, 0)).to(device)
