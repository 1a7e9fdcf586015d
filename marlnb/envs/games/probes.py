"""Probes: the smallest environments on which one thing can go wrong, each with the values that learning must find.

Agents earn for themselves, and see all that matters to their own return, so that the answers hold for independent and
for centralised learners alike; every reward is the same for all agents that are alive, unless the docstring says
otherwise. `noise` in an observation is uniform in -1..1 and means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ENVIRONMENTS, option
from marlnb.envs.games.config import Answer, GameConfig, numbered
from marlnb.specs import ActionSpec

if TYPE_CHECKING:
    from marlnb.envs.games.game import Game

AGENTS = numbered("agent", 2)
CHOICES = ActionSpec("discrete", n=(2,))
NOISES = (-0.5, 0.5)


@dataclass(frozen=True)
class ProbeConfig(GameConfig):
    """A probe of two agents."""


@ENVIRONMENTS.register("probe/constant")
@dataclass(frozen=True)
class ConstantConfig(ProbeConfig):
    """Every step pays 1, whatever is done. One step; or endless, cut after four steps, where the value is that of
    going on: 1 / (1 - gamma)."""

    steps_until_cut: ClassVar[int] = 4

    endless: bool = option(False, help="episodes are cut after four steps, and end never")

    @property
    def optimal_return(self) -> float:
        return float(self.steps_until_cut) if self.endless else 1.0

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        value = 1 / (1 - gamma) if self.endless else 1.0
        return tuple(Answer(((noise,), (-noise,)), (value, value), (None, None), team=value) for noise in NOISES)

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.probe_rules import Constant

        steps = self.steps_until_cut if self.endless else 1
        spec = self.game_spec(agents=AGENTS, features=("noise",), action=CHOICES, max_steps=steps)
        return Constant(self, spec, n_envs, device)


@ENVIRONMENTS.register("probe/discounting")
@dataclass(frozen=True)
class DiscountingConfig(ProbeConfig):
    """The last step pays 1, whatever is done: k steps before it the value is gamma to the power of k."""

    steps: int = option(3, help="length of an episode", unit="steps", ge=1)

    @property
    def optimal_return(self) -> float:
        return 1.0

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        def at(t: int) -> Answer:
            rows = tuple((*one_hot(t, self.steps), noise) for noise in NOISES)
            value = gamma ** (self.steps - 1 - t)
            return Answer(rows, (value, value), (None, None), team=value)

        return tuple(map(at, range(self.steps)))

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.probe_rules import Discounting

        features = (*times(self.steps), "noise")
        spec = self.game_spec(agents=AGENTS, features=features, action=CHOICES, max_steps=self.steps)
        return Discounting(self, spec, n_envs, device)


@ENVIRONMENTS.register("probe/action")
@dataclass(frozen=True)
class ActionConfig(ProbeConfig):
    """One step: choice 1 pays its agent 1, choice 0 nothing."""

    @property
    def optimal_return(self) -> float:
        return 1.0

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        return tuple(Answer(((noise,), (-noise,)), (1.0, 1.0), (1, 1), team=1.0) for noise in NOISES)

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.probe_rules import Action

        spec = self.game_spec(agents=AGENTS, features=("noise",), action=CHOICES, max_steps=1)
        return Action(self, spec, n_envs, device)


@ENVIRONMENTS.register("probe/credit")
@dataclass(frozen=True)
class CreditConfig(ProbeConfig):
    """Two steps: the second pays an agent 1 if its first choice was 1, else -1; its second choice does nothing."""

    @property
    def optimal_return(self) -> float:
        return 1.0

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        start, after = (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)
        return (
            Answer((start,) * 2, (gamma, gamma), (1, 1), team=gamma),
            Answer((after,) * 2, (1.0, 1.0), (None, None), team=1.0),
        )

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.probe_rules import Credit

        features = ("at_start", "chose_0", "chose_1")
        spec = self.game_spec(agents=AGENTS, features=features, action=CHOICES, max_steps=2)
        return Credit(self, spec, n_envs, device)


@ENVIRONMENTS.register("probe/observation")
@dataclass(frozen=True)
class ObservationConfig(ProbeConfig):
    """One step: an agent sees -1 or 1, and is paid what it sees, whatever it does."""

    @property
    def optimal_return(self) -> float:
        return 0.0

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        signs = [(a, b) for a in (-1.0, 1.0) for b in (-1.0, 1.0)]
        return tuple(Answer(((a,), (b,)), (a, b), (None, None), team=(a + b) / 2) for a, b in signs)

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.probe_rules import Observation

        spec = self.game_spec(agents=AGENTS, features=("sign",), action=CHOICES, max_steps=1)
        return Observation(self, spec, n_envs, device)


@ENVIRONMENTS.register("probe/match")
@dataclass(frozen=True)
class MatchConfig(ProbeConfig):
    """One step: an agent sees -1 or 1; choosing 0 for -1 and 1 for 1 pays 1, the other choice -1."""

    @property
    def optimal_return(self) -> float:
        return 1.0

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        signs = [(a, b) for a in (-1.0, 1.0) for b in (-1.0, 1.0)]
        return tuple(Answer(((a,), (b,)), (1.0, 1.0), (int(a > 0), int(b > 0)), team=1.0) for a, b in signs)

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.probe_rules import Match

        spec = self.game_spec(agents=AGENTS, features=("sign",), action=CHOICES, max_steps=1)
        return Match(self, spec, n_envs, device)


@ENVIRONMENTS.register("probe/dying")
@dataclass(frozen=True)
class DyingConfig(ProbeConfig):
    """Choice 1 pays its agent 1. agent_0 dies after its first step, agent_1 goes on to the end of the episode."""

    steps: int = option(3, help="length of an episode", unit="steps", ge=2)

    @property
    def optimal_return(self) -> float:
        return (1 + self.steps) / 2

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        def at(t: int) -> Answer:
            value = sum(gamma**k for k in range(self.steps - t))
            lasting = (*one_hot(t, self.steps), 0.0, 1.0)
            if t == 0:
                return Answer(((*one_hot(0, self.steps), 1.0, 0.0), lasting), (1.0, value), (1, 1), team=value)
            return Answer(((0.0,) * len(lasting), lasting), (None, value), (None, 1), team=value)

        return tuple(map(at, range(self.steps)))

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.probe_rules import Dying

        features = (*times(self.steps), "is_agent_0", "is_agent_1")
        spec = self.game_spec(agents=AGENTS, features=features, action=CHOICES, max_steps=self.steps)
        return Dying(self, spec, n_envs, device)


@ENVIRONMENTS.register("probe/echo")
@dataclass(frozen=True)
class EchoConfig(ProbeConfig):
    """Players take turns, player_0 first: each must repeat the symbol, -1 or 1, that the one before has said.

    player_0's first symbol to repeat is drawn. Choice 0 says -1, choice 1 says 1. A repeated symbol earns its speaker
    1, which is paid when the next turn has been taken, the last turn's at once. A step of the discount is a turn of
    one's own: with four turns, the values are 1 + gamma, 1 + gamma, 1 and 1.
    """

    rounds: int = option(2, help="turns of each player", unit="turns", ge=1)

    @property
    def optimal_return(self) -> float:
        return float(self.rounds)

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        def at(t: int, symbol: float) -> Answer:
            player, left = t % 2, self.rounds - t // 2
            value, row = sum(gamma**k for k in range(left)), (symbol, *one_hot(t // 2, self.rounds))
            best = int(symbol > 0)
            asked = ((value, None), (best, None)) if player == 0 else ((None, value), (None, best))
            return Answer((row, row), *asked)

        return tuple(at(t, symbol) for t in range(2 * self.rounds) for symbol in (-1.0, 1.0))

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.probe_rules import Echo

        spec = self.game_spec(
            agents=numbered("player", 2),
            features=("symbol", *(f"round_{k}" for k in range(self.rounds))),
            action=CHOICES,
            max_steps=2 * self.rounds,
            simultaneous=False,
        )
        return Echo(self, spec, n_envs, device)


@ENVIRONMENTS.register("probe/continuous")
@dataclass(frozen=True)
class ContinuousConfig(ProbeConfig):
    """One step: an agent sees x, -1 or 1, and is paid 1 - (a - x)^2 for an action a in -2..2; the best is a = x."""

    bound: ClassVar[float] = 2.0

    @property
    def optimal_return(self) -> float:
        return 1.0

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        signs = [(a, b) for a in (-1.0, 1.0) for b in (-1.0, 1.0)]
        return tuple(Answer(((a,), (b,)), (1.0, 1.0), (a, b), team=1.0) for a, b in signs)

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.probe_rules import Continuous

        action = ActionSpec("continuous", low=(-self.bound,), high=(self.bound,))
        spec = self.game_spec(agents=AGENTS, features=("sign",), action=action, max_steps=1)
        return Continuous(self, spec, n_envs, device)


def one_hot(index: int, n: int) -> tuple[float, ...]:
    return tuple(float(k == index) for k in range(n))


def times(steps: int) -> tuple[str, ...]:
    return tuple(f"time_{t}" for t in range(steps))
