"""MatchEnv: an environment whose episodes are a player's matches. It draws each one, and keeps the record of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.populations.league.draws import Pairing
from marlnb.populations.league.matches import EVALUATION, Match, from_row, outcomes_of, to_row
from marlnb.populations.league.players import Side
from marlnb.populations.training.league.stacked_opponents import HOME


@dataclass(frozen=True)
class MatchStart:
    """What is known about a match when it begins.

    Attributes:
        number: of the player's matches.
        pairing: kind, and player of each side.
        versions: of each side's player, the frames that its weights had learned from.
        round: of the league.
    """

    number: int
    pairing: Pairing
    versions: tuple[int, ...]
    round: int


class GroupMatches:
    """Who acts in one group of agents.

    Attributes:
        players: `[env, agent]` of str, HOME where the home player acts.
        changed: whether a match has begun since `take_started`.
    """

    def __init__(self, n_envs: int, n_agents: int) -> None:
        self.players = np.full((n_envs, n_agents), HOME, dtype=object)
        self.changed = True
        self._started: list[int] = []

    def begin(self, env_index: int, players: Sequence[str]) -> None:
        self.players[env_index] = players
        self._started.append(env_index)
        self.changed = True

    def take_started(self) -> list[int]:
        """The environments in which a match has begun since the last call."""
        started, self._started, self.changed = self._started, [], False
        return started


class MatchEnv(VectorEnv):
    """`env`, in which environment b plays the matches b, b + n_envs, b + 2 n_envs, ... of one player.

    Args:
        env: the environment.
        home: the player's id.
        sides: of every match.
        draw: the start of match number n; a pure function of n during a round.
        win_threshold: by side, as in `outcomes_of`.
        win_margin: as in `outcomes_of`.

    Attributes:
        matches: by group, who acts in it now.
        finished: the matches that ended since `take_finished`.
    """

    def __init__(
        self,
        env: VectorEnv,
        home: str,
        sides: Sequence[Side],
        draw: Callable[[int], MatchStart],
        win_threshold: Mapping[str, float] | None = None,
        win_margin: float | None = None,
    ) -> None:
        self.env, self.spec, self.n_envs, self.device = env, env.spec, env.n_envs, env.device
        self.home, self.sides, self._draw = home, tuple(sides), draw
        self._win_threshold, self._win_margin = win_threshold, win_margin
        self.matches = {group.name: GroupMatches(env.n_envs, group.n_agents) for group in env.spec.groups}
        self.finished: list[Match] = []
        side_of = {agent: side.name for side in sides for agent in side.agents}
        self._side_of = {group.name: [side_of[agent] for agent in group.agents] for group in env.spec.groups}
        self._columns = {
            side.name: [
                (group.name, k) for group in env.spec.groups for k, a in enumerate(group.agents) if a in side.agents
            ]
            for side in sides
        }
        self._returns = {
            group.name: torch.zeros(env.n_envs, group.n_agents, dtype=torch.float64, device=env.device)
            for group in env.spec.groups
        }
        self._steps = np.zeros(env.n_envs, dtype=np.int64)
        self._next = np.arange(env.n_envs)  # number of each environment's next match
        self._current: dict[int, MatchStart] = {}  # by environment
        self._seeds = np.zeros(env.n_envs, dtype=np.int64)
        self._step: Step | None = None

    def reset(self, seed: int) -> Step:
        """Begins new matches everywhere. The unfinished ones have no result, and their numbers are not used again."""
        self._step = step = self.env.reset(seed)
        self._begin(range(self.n_envs), step)
        return step

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        self._step = step = self.env.step(actions)
        for name, returns in self._returns.items():
            returns += step.groups[name].reward
        self._steps += 1
        if bool(step.done.any()):
            ended = step.done.nonzero().flatten().tolist()
            self._end(ended)
            self._begin(ended, step)
        return step

    def acting(self, group: str) -> Tensor | None:
        """`[env, agent]`, who acts now; None if all agents act at every step."""
        assert self._step is not None
        return None if self.spec.simultaneous else self._step.groups[group].acting

    def take_finished(self) -> list[Match]:
        """The matches that ended since the last call, in the order in which they ended."""
        finished, self.finished = self.finished, []
        return finished

    def state_dict(self) -> dict[str, Tensor] | None:
        return self.env.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        self._step = self.env.load_state_dict(state)
        return self._step

    def match_state(self) -> dict[str, Any]:
        """The matches that are being played, for `load_match_state`."""
        return {
            "next": self._next.tolist(),
            "current": [to_row(self._record(start, self._seeds[index])) for index, start in self._current.items()],
            "steps": self._steps.tolist(),
            "returns": {name: returns.clone() for name, returns in self._returns.items()},
        }

    def load_match_state(self, state: Mapping[str, Any]) -> None:
        """After `reset` or `load_state_dict`: continues the saved matches."""
        self._next, self._steps = np.array(state["next"]), np.array(state["steps"])
        rows = [from_row(row) for row in state["current"]]
        self._current = {index: _start_of(row) for index, row in enumerate(rows)}
        self._seeds = np.array([row.seed for row in rows])
        for name, returns in self._returns.items():
            returns.copy_(state["returns"][name])
        for index, start in self._current.items():
            self._seat(index, start.pairing)

    def labels(self) -> dict[str, Tensor]:
        return self.env.labels()

    def render(self, index: int = 0) -> np.ndarray:
        return self.env.render(index)

    def close(self) -> None:
        self.env.close()

    def _begin(self, envs: Sequence[int], step: Step) -> None:
        """Draws and seats a match in each of these environments."""
        for returns in self._returns.values():
            returns[list(envs)] = 0
        seeds = step.episode_seed.tolist()
        for index in envs:
            self._current[index] = start = self._draw(int(self._next[index]))
            self._next[index] += self.n_envs
            self._steps[index], self._seeds[index] = 0, seeds[index]
            self._seat(index, start.pairing)

    def _seat(self, index: int, pairing: Pairing) -> None:
        home = None if pairing.kind == EVALUATION else self.home  # an evaluation teaches no player
        for name, matches in self.matches.items():
            players = [pairing.players[side] for side in self._side_of[name]]
            matches.begin(index, [HOME if player == home else player for player in players])

    def _end(self, envs: Sequence[int]) -> None:
        """Adds the matches that have ended in these environments to `finished`."""
        sums = {name: returns[list(envs)].tolist() for name, returns in self._returns.items()}  # [env][agent]
        sides = [side.name for side in self.sides]
        for position, index in enumerate(envs):
            returns = tuple(
                sum(sums[group][position][k] for group, k in columns) / len(columns)
                for columns in self._columns.values()
            )
            outcomes = outcomes_of(sides, returns, self._win_threshold, self._win_margin)
            start, steps = self._current[index], int(self._steps[index])
            self.finished.append(self._record(start, self._seeds[index], returns, outcomes, steps))

    def _record(
        self,
        start: MatchStart,
        seed: int,
        returns: tuple[float, ...] = (),
        outcomes: tuple[float, ...] = (),
        steps: int = 0,
    ) -> Match:
        unknown = (0.0,) * len(self.sides)
        return Match(
            number=start.number,
            learner=self.home,
            kind=start.pairing.kind,
            players=start.pairing.players,
            returns=returns or unknown,
            outcomes=outcomes or unknown,
            steps=steps,
            versions=start.versions,
            round=start.round,
            seed=int(seed),
        )


def _start_of(match: Match) -> MatchStart:
    return MatchStart(match.number, Pairing(match.kind, dict(match.players)), match.versions, match.round)
