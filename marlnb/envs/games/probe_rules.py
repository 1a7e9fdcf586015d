"""The rules of the probes."""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.envs.games.game import Game, Outcome
from marlnb.envs.games.probes import ContinuousConfig


class _Timed(Game):
    """Episodes of `spec.max_steps` steps; subclasses pay."""

    @property
    def steps(self) -> int:
        assert self.spec.max_steps is not None
        return self.spec.max_steps

    def at_last(self) -> Tensor:
        """`[env, agent]` bool: the step to be made is the episode's last."""
        return (self.clock == self.steps - 1)[:, None].expand_as(self.alive)

    def time(self) -> Tensor:
        """The clock as one-hot `[env, steps]`, zero after the last step."""
        return (self.clock[:, None] == torch.arange(self.steps, device=self.device)).float()

    def ends(self, reward: Tensor) -> Outcome:
        return Outcome(reward, self.at_last(), torch.zeros_like(self.alive))


class _Noisy(_Timed):
    """Remembers noise in -1..1 for every agent and moment, `[env, moment, agent]`."""

    @property
    def n_draws(self) -> int:  # type: ignore[override]
        return (self.steps + 1) * self.group.n_agents

    def remember(self) -> dict[str, Tensor]:
        return {"noise": torch.zeros(self.n_envs, self.steps + 1, self.group.n_agents, device=self.device)}

    def begin(self, copies: Tensor, drawn: Tensor) -> None:
        noise = (2 * drawn - 1).float().t().reshape(self.memory["noise"].shape)
        self.memory["noise"] = torch.where(copies[:, None, None], noise, self.memory["noise"])

    def noise(self) -> Tensor:
        """`[env, agent, 1]`."""
        return self.memory["noise"][torch.arange(self.n_envs, device=self.device), self.clock][..., None]

    def look(self) -> Tensor:
        return self.noise()


class Constant(_Noisy):
    def play(self, action: Tensor) -> Outcome:
        reward, last, never = torch.ones(self.alive.shape, device=self.device), self.at_last(), self.alive & False
        return Outcome(reward, never, last) if self.steps > 1 else Outcome(reward, last, never)


class Discounting(_Noisy):
    def play(self, action: Tensor) -> Outcome:
        return self.ends(self.at_last().float())

    def look(self) -> Tensor:
        return torch.cat((self.time()[:, None].expand(-1, self.group.n_agents, -1), self.noise()), -1)


class Action(_Noisy):
    def play(self, action: Tensor) -> Outcome:
        return self.ends(action.float())


class Credit(_Timed):
    """`chosen` `[env, agent]`: the first choice."""

    def remember(self) -> dict[str, Tensor]:
        return {"chosen": torch.zeros(self.alive.shape, dtype=torch.int64, device=self.device)}

    def begin(self, copies: Tensor, drawn: Tensor) -> None:
        self.memory["chosen"].masked_fill_(copies[:, None], 0)

    def play(self, action: Tensor) -> Outcome:
        last, chosen = self.at_last(), self.memory["chosen"]
        self.memory["chosen"] = torch.where(last, chosen, action)
        return self.ends((2.0 * chosen - 1) * last)

    def look(self) -> Tensor:
        later, chosen = (self.clock > 0)[:, None], self.memory["chosen"] == 1
        return torch.stack(((~later).expand_as(chosen), later & ~chosen, later & chosen), -1).float()


class Observation(_Timed):
    """`sign` `[env, moment, agent]`: -1 or 1; the second moment's is seen after the step."""

    @property
    def n_draws(self) -> int:  # type: ignore[override]
        return 2 * self.group.n_agents

    def remember(self) -> dict[str, Tensor]:
        return {"sign": torch.ones(self.n_envs, 2, self.group.n_agents, device=self.device)}

    def begin(self, copies: Tensor, drawn: Tensor) -> None:
        sign = (drawn < 0.5).float().mul(2).sub(1).t().reshape(self.memory["sign"].shape)
        self.memory["sign"] = torch.where(copies[:, None, None], sign, self.memory["sign"])

    def play(self, action: Tensor) -> Outcome:
        return self.ends(self.memory["sign"][:, 0])

    def look(self) -> Tensor:
        return self.memory["sign"][torch.arange(self.n_envs, device=self.device), self.clock][..., None]


class Match(Observation):
    def play(self, action: Tensor) -> Outcome:
        return self.ends(self.memory["sign"][:, 0] * (2.0 * action - 1))


class Continuous(Observation):
    def play(self, action: Tensor) -> Outcome:
        bounded = action[..., 0].clamp(-ContinuousConfig.bound, ContinuousConfig.bound)
        return self.ends(1 - (bounded - self.memory["sign"][:, 0]).square())


class Dying(_Timed):
    def remember(self) -> dict[str, Tensor]:
        return {}

    def begin(self, copies: Tensor, drawn: Tensor) -> None:
        pass

    def play(self, action: Tensor) -> Outcome:
        mortal = torch.tensor([True, False], device=self.device)
        return Outcome(action.float(), self.at_last() | mortal, torch.zeros_like(self.alive))

    def look(self) -> Tensor:
        who = torch.eye(2, device=self.device).expand(self.n_envs, 2, 2)
        return torch.cat((self.time()[:, None].expand(-1, 2, -1), who), -1)


class Echo(_Timed):
    """`said` `[env]`: the symbol to repeat, 0 or 1; `owed` `[env]`: what the last turn earned."""

    n_draws = 1

    def remember(self) -> dict[str, Tensor]:
        return {"said": torch.zeros_like(self.clock), "owed": torch.zeros(self.n_envs, device=self.device)}

    def begin(self, copies: Tensor, drawn: Tensor) -> None:
        self.memory["said"] = torch.where(copies, (drawn[0] < 0.5).long(), self.memory["said"])
        self.memory["owed"].masked_fill_(copies, 0.0)

    def asked(self) -> Tensor:
        return torch.stack((self.clock % 2 == 0, self.clock % 2 == 1), 1)

    def play(self, action: Tensor) -> Outcome:
        speaks, last = self.asked(), self.at_last()
        spoken = torch.where(speaks[:, 0], action[:, 0], action[:, 1])
        earned = (spoken == self.memory["said"]).float()
        reward = self.memory["owed"][:, None] * ~speaks + earned[:, None] * (speaks & last)
        self.memory["said"], self.memory["owed"] = spoken, earned
        return self.ends(reward)

    def look(self) -> Tensor:
        symbol = (2.0 * self.memory["said"] - 1)[:, None]
        rounds = torch.arange(self.steps // 2, device=self.device)
        row = torch.cat((symbol, (self.clock[:, None] // 2 == rounds).float()), 1)
        return row[:, None].expand(-1, 2, -1)
