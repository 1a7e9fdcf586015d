"""The rules of the probes."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from marlnb.envs.mpe.draws import uniform
from marlnb.envs.tensor.philox import Draws
from marlnb.envs.tensor.rules import TIME, ByGroup, Rules, State
from marlnb.specs import EnvSpec


class ProbeRules(Rules):
    """Episodes of `spec.max_steps` steps, for one group of two agents. A subclass defines rewards and observations."""

    def __init__(self, spec: EnvSpec) -> None:
        self.spec, self.group = spec, spec.groups[0]

    @property
    def steps(self) -> int:
        assert self.spec.max_steps is not None
        return self.spec.max_steps

    def start(self, draw: Draws) -> State:
        return {}

    def step(self, state: State, action: ByGroup, draw: Draws) -> tuple[State, ByGroup]:
        after, reward = self.play(state, action[self.group.name])
        return {**state, **after}, {self.group.name: reward}

    @abstractmethod
    def play(self, state: State, action: Tensor) -> tuple[State, Tensor]:
        """What changes in the state, and the rewards `[env, agent]`."""

    def observe(self, state: State) -> ByGroup:
        return {self.group.name: self.features(state)}

    @abstractmethod
    def features(self, state: State) -> Tensor:
        """Every agent's observation, `[env, agent, feature]`."""

    def terminated(self, state: State) -> Tensor | None:
        return state[TIME] == self.steps

    def is_last_step(self, state: State) -> Tensor:
        """`[env, 1]` bool: the next step is the episode's last."""
        return (state[TIME] == self.steps - 1)[:, None]

    def one_hot_time(self, state: State) -> Tensor:
        """`[env, agent, steps]`, zero after the last step."""
        time = state[TIME][:, None] == torch.arange(self.steps, device=state[TIME].device)
        return time.float()[:, None].expand(-1, 2, -1)


class _Drawn(ProbeRules):
    """Every time step has a random number for each agent, which the agent observes.

    State: `<kind>` `[env, time, agent]`, also for the time step after the last.
    """

    kind: ClassVar[str]

    def start(self, draw: Draws) -> State:
        drawn = uniform(draw.seed, (self.steps + 1) * 2)
        return {self.kind: self.convert(drawn).t().reshape(-1, self.steps + 1, 2)}

    @abstractmethod
    def convert(self, drawn: Tensor) -> Tensor:
        """The numbers of the state, float32, of numbers that are uniform in [0, 1)."""

    def now(self, state: State) -> Tensor:
        """This time step's numbers, `[env, agent, 1]`."""
        return state[self.kind].gather(1, state[TIME][:, None, None].expand(-1, 1, 2)).mT

    def features(self, state: State) -> Tensor:
        return self.now(state)


class _Noisy(_Drawn):
    """Noise that means nothing, uniform in -1..1."""

    kind = "noise"

    def convert(self, drawn: Tensor) -> Tensor:
        return (2 * drawn - 1).float()


class Constant(_Noisy):
    def play(self, state: State, action: Tensor) -> tuple[State, Tensor]:
        return {}, torch.ones_like(action, dtype=torch.float32)

    def terminated(self, state: State) -> Tensor | None:
        return super().terminated(state) if self.steps == 1 else None


class Discounting(_Noisy):
    def play(self, state: State, action: Tensor) -> tuple[State, Tensor]:
        return {}, self.is_last_step(state).float().expand(-1, 2)

    def features(self, state: State) -> Tensor:
        return torch.cat((self.one_hot_time(state), self.now(state)), -1)


class Action(_Noisy):
    def play(self, state: State, action: Tensor) -> tuple[State, Tensor]:
        return {}, action.float()


class Credit(ProbeRules):
    """State: `chosen` `[env, agent]`: the first choice."""

    def start(self, draw: Draws) -> State:
        return {"chosen": torch.zeros(draw.n_envs, 2, dtype=torch.int64, device=draw.device)}

    def play(self, state: State, action: Tensor) -> tuple[State, Tensor]:
        last, chosen = self.is_last_step(state), state["chosen"]
        return {"chosen": torch.where(last, chosen, action)}, (2.0 * chosen - 1) * last

    def features(self, state: State) -> Tensor:
        later, chosen = (state[TIME] > 0)[:, None], state["chosen"] == 1
        return torch.stack(((~later).expand_as(chosen), later & ~chosen, later & chosen), -1).float()


class Observation(_Drawn):
    """A sign, -1 or 1. The second time step's sign is observed after the step."""

    kind = "sign"

    def convert(self, drawn: Tensor) -> Tensor:
        return (drawn < 0.5).float().mul(2).sub(1)

    def play(self, state: State, action: Tensor) -> tuple[State, Tensor]:
        return {}, state["sign"][:, 0]


class Match(Observation):
    def play(self, state: State, action: Tensor) -> tuple[State, Tensor]:
        return {}, state["sign"][:, 0] * (2.0 * action - 1)


class Continuous(Observation):
    def play(self, state: State, action: Tensor) -> tuple[State, Tensor]:
        bounded = action[..., 0].clamp(self.group.action.low[0], self.group.action.high[0])
        return {}, 1 - (bounded - state["sign"][:, 0]).square()


class Dying(ProbeRules):
    def play(self, state: State, action: Tensor) -> tuple[State, Tensor]:
        return {}, action.float()

    def alive(self, state: State) -> ByGroup:
        first = state[TIME] == 0
        return {self.group.name: torch.stack((first, torch.ones_like(first)), 1)}

    def features(self, state: State) -> Tensor:
        who = torch.eye(2, device=state[TIME].device).expand(len(state[TIME]), 2, 2)
        return torch.cat((self.one_hot_time(state), who), -1)


class Echo(ProbeRules):
    """Turns in which each player repeats the other's symbol.

    State: `symbol` `[env]`: the symbol to repeat, 0 or 1; `unpaid` `[env]`: the reward of the last turn, not paid yet.
    """

    def start(self, draw: Draws) -> State:
        symbol = (uniform(draw.seed, 1)[0] < 0.5).long()
        return {"symbol": symbol, "unpaid": torch.zeros_like(symbol, dtype=torch.float32)}

    def acting(self, state: State) -> ByGroup:
        return {self.group.name: self._speaks(state)}

    def play(self, state: State, action: Tensor) -> tuple[State, Tensor]:
        speaks, last = self._speaks(state), self.is_last_step(state)
        spoken = torch.where(speaks[:, 0], action[:, 0], action[:, 1])
        earned = (spoken == state["symbol"]).float()
        reward = state["unpaid"][:, None] * ~speaks + earned[:, None] * (speaks & last)
        return {"symbol": spoken, "unpaid": earned}, reward

    def features(self, state: State) -> Tensor:
        symbol = (2.0 * state["symbol"] - 1)[:, None]
        rounds = torch.arange(self.steps // 2, device=symbol.device)
        row = torch.cat((symbol, (state[TIME][:, None] // 2 == rounds).float()), 1)
        return row[:, None].expand(-1, 2, -1)

    @staticmethod
    def _speaks(state: State) -> Tensor:
        """`[env, agent]` bool: whose turn it is."""
        return torch.stack((state[TIME] % 2 == 0, state[TIME] % 2 == 1), 1)
