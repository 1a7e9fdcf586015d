"""The rules of the probes."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from marlnb.envs.games.game import Game, Outcome


class _Timed(Game):
    """Episodes of `spec.max_steps` steps; subclasses define the rewards."""

    @property
    def steps(self) -> int:
        assert self.spec.max_steps is not None
        return self.spec.max_steps

    def is_last_step(self) -> Tensor:
        """`[env, agent]` bool: the next step is the episode's last."""
        return (self.clock == self.steps - 1)[:, None].expand_as(self.alive)

    def one_hot_time(self) -> Tensor:
        """The clock as one-hot `[env, steps]`, zero after the last step."""
        return (self.clock[:, None] == torch.arange(self.steps, device=self.device)).float()

    def outcome(self, reward: Tensor) -> Outcome:
        return Outcome(reward, self.is_last_step(), torch.zeros_like(self.alive))


class _Drawn(_Timed):
    """Every time step has a random number for each agent, which the agent observes.

    Memory: `<kind>` `[env, time, agent]`, also for the time step after the last.
    """

    kind: ClassVar[str]

    @property
    def n_draws(self) -> int:  # type: ignore[override]
        return (self.steps + 1) * self.group.n_agents

    def initial_memory(self) -> dict[str, Tensor]:
        return {self.kind: torch.zeros(self.n_envs, self.steps + 1, self.group.n_agents, device=self.device)}

    def begin(self, starting: Tensor, drawn: Tensor) -> None:
        values = self.convert(drawn).t().reshape(self.memory[self.kind].shape)
        self.memory[self.kind] = torch.where(starting[:, None, None], values, self.memory[self.kind])

    @abstractmethod
    def convert(self, drawn: Tensor) -> Tensor:
        """The remembered numbers, float32, of numbers that are uniform in [0, 1)."""

    def now(self) -> Tensor:
        """This time step's numbers, `[env, agent, 1]`."""
        return self.memory[self.kind][torch.arange(self.n_envs, device=self.device), self.clock][..., None]

    def observe(self) -> Tensor:
        return self.now()


class _Noisy(_Drawn):
    """Noise that means nothing, uniform in -1..1."""

    kind = "noise"

    def convert(self, drawn: Tensor) -> Tensor:
        return (2 * drawn - 1).float()


class Constant(_Noisy):
    def play(self, action: Tensor) -> Outcome:
        reward, last, never = torch.ones(self.alive.shape, device=self.device), self.is_last_step(), self.alive & False
        return Outcome(reward, never, last) if self.steps > 1 else Outcome(reward, last, never)


class Discounting(_Noisy):
    def play(self, action: Tensor) -> Outcome:
        return self.outcome(self.is_last_step().float())

    def observe(self) -> Tensor:
        return torch.cat((self.one_hot_time()[:, None].expand(-1, self.group.n_agents, -1), self.now()), -1)


class Action(_Noisy):
    def play(self, action: Tensor) -> Outcome:
        return self.outcome(action.float())


class Credit(_Timed):
    """Memory: `chosen` `[env, agent]`: the first choice."""

    def initial_memory(self) -> dict[str, Tensor]:
        return {"chosen": torch.zeros(self.alive.shape, dtype=torch.int64, device=self.device)}

    def begin(self, starting: Tensor, drawn: Tensor) -> None:
        self.memory["chosen"].masked_fill_(starting[:, None], 0)

    def play(self, action: Tensor) -> Outcome:
        last, chosen = self.is_last_step(), self.memory["chosen"]
        self.memory["chosen"] = torch.where(last, chosen, action)
        return self.outcome((2.0 * chosen - 1) * last)

    def observe(self) -> Tensor:
        later, chosen = (self.clock > 0)[:, None], self.memory["chosen"] == 1
        return torch.stack(((~later).expand_as(chosen), later & ~chosen, later & chosen), -1).float()


class Observation(_Drawn):
    """A sign, -1 or 1. The second time step's sign is observed after the step."""

    kind = "sign"

    def convert(self, drawn: Tensor) -> Tensor:
        return (drawn < 0.5).float().mul(2).sub(1)

    def play(self, action: Tensor) -> Outcome:
        return self.outcome(self.memory["sign"][:, 0])


class Match(Observation):
    def play(self, action: Tensor) -> Outcome:
        return self.outcome(self.memory["sign"][:, 0] * (2.0 * action - 1))


class Continuous(Observation):
    def play(self, action: Tensor) -> Outcome:
        bounded = action[..., 0].clamp(self.group.action.low[0], self.group.action.high[0])
        return self.outcome(1 - (bounded - self.memory["sign"][:, 0]).square())


class Dying(_Timed):
    def play(self, action: Tensor) -> Outcome:
        mortal = torch.arange(2, device=self.device) == 0
        return Outcome(action.float(), self.is_last_step() | mortal, torch.zeros_like(self.alive))

    def observe(self) -> Tensor:
        who = torch.eye(2, device=self.device).expand(self.n_envs, 2, 2)
        return torch.cat((self.one_hot_time()[:, None].expand(-1, 2, -1), who), -1)


class Echo(_Timed):
    """Turns in which each player repeats the other's symbol.

    Memory: `said` `[env]`: the symbol to repeat, 0 or 1; `owed` `[env]`: the reward of the last turn, not paid yet.
    """

    n_draws = 1

    def initial_memory(self) -> dict[str, Tensor]:
        return {"said": torch.zeros_like(self.clock), "owed": torch.zeros(self.n_envs, device=self.device)}

    def begin(self, starting: Tensor, drawn: Tensor) -> None:
        self.memory["said"] = torch.where(starting, (drawn[0] < 0.5).long(), self.memory["said"])
        self.memory["owed"].masked_fill_(starting, 0.0)

    def asked_to_act(self) -> Tensor:
        return torch.stack((self.clock % 2 == 0, self.clock % 2 == 1), 1)

    def play(self, action: Tensor) -> Outcome:
        speaks, last = self.asked_to_act(), self.is_last_step()
        spoken = torch.where(speaks[:, 0], action[:, 0], action[:, 1])
        earned = (spoken == self.memory["said"]).float()
        reward = self.memory["owed"][:, None] * ~speaks + earned[:, None] * (speaks & last)
        self.memory["said"], self.memory["owed"] = spoken, earned
        return self.outcome(reward)

    def observe(self) -> Tensor:
        symbol = (2.0 * self.memory["said"] - 1)[:, None]
        rounds = torch.arange(self.steps // 2, device=self.device)
        row = torch.cat((symbol, (self.clock[:, None] // 2 == rounds).float()), 1)
        return row[:, None].expand(-1, 2, -1)
