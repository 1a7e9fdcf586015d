"""Probes: the smallest environments on which one thing can go wrong, each with the values that learning must find.

Each agent has its own reward and observes all that its return depends on, so that the answers hold for independent and
centralised learners. Every reward is the same for all living agents, unless the docstring says otherwise. `noise` in an
observation is uniform in -1..1 and has no meaning.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ENVIRONMENTS, option
from marlnb.envs.games.config import Answer, GameConfig, numbered
from marlnb.specs import ActionSpec

if TYPE_CHECKING:
    from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv

NOISES = (-0.5, 0.5)
SIGNS = tuple(itertools.product((-1.0, 1.0), repeat=2))


@dataclass(frozen=True)
class ProbeConfig(GameConfig):
    """A probe of two agents: one step of two choices, unless a subclass says otherwise.

    Attributes:
        rules: name of the class in `probe_rules`.
    """

    rules: ClassVar[str]
    agents: ClassVar[tuple[str, ...]] = numbered("agent", 2)
    action: ClassVar[ActionSpec] = ActionSpec("discrete", n=(2,))
    simultaneous: ClassVar[bool] = True

    @property
    def optimal_return(self) -> float:
        return 1.0

    def features(self) -> tuple[str, ...]:
        """Names of an agent's features."""
        return ("noise",)

    def n_steps(self) -> int:
        """Length of an episode."""
        return 1

    def build(self, n_envs: int, device: str = "cpu") -> TensorVectorEnv:
        from marlnb.envs.games import probe_rules
        from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv

        spec = self.game_spec(
            agents=self.agents, features=self.features(), action=self.action, max_steps=self.n_steps(),
            simultaneous=self.simultaneous,
        )  # fmt: skip
        rules: type[probe_rules.ProbeRules] = getattr(probe_rules, self.rules)
        return TensorVectorEnv(rules(spec), n_envs, device)


@ENVIRONMENTS.register("probe/constant")
@dataclass(frozen=True)
class ConstantConfig(ProbeConfig):
    """Every step pays 1, whatever the action. An episode has one step; or it is endless and truncated after four steps,
    so that the value is that of continuing: 1 / (1 - gamma)."""

    rules: ClassVar[str] = "Constant"

    steps_until_cut: ClassVar[int] = 4

    endless: bool = option(False, help="episodes never terminate, and are truncated after four steps")

    @property
    def optimal_return(self) -> float:
        return float(self.steps_until_cut) if self.endless else 1.0

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        value = 1 / (1 - gamma) if self.endless else 1.0
        return tuple(Answer(((noise,), (-noise,)), (value, value), (None, None), team=value) for noise in NOISES)

    def n_steps(self) -> int:
        return self.steps_until_cut if self.endless else 1


@ENVIRONMENTS.register("probe/discounting")
@dataclass(frozen=True)
class DiscountingConfig(ProbeConfig):
    """The last step pays 1, whatever the action: k steps before it the value is gamma to the power of k."""

    rules: ClassVar[str] = "Discounting"

    steps: int = option(3, help="length of an episode", unit="steps", ge=1, le=1_000_000)

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        def at(t: int) -> Answer:
            rows = tuple((*one_hot(t, self.steps), noise) for noise in NOISES)
            value = gamma ** (self.steps - 1 - t)
            return Answer(rows, (value, value), (None, None), team=value)

        return tuple(map(at, range(self.steps)))

    def features(self) -> tuple[str, ...]:
        return (*times(self.steps), "noise")

    def n_steps(self) -> int:
        return self.steps


@ENVIRONMENTS.register("probe/action")
@dataclass(frozen=True)
class ActionConfig(ProbeConfig):
    """One step: choice 1 pays its agent 1, choice 0 pays 0."""

    rules: ClassVar[str] = "Action"

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        return tuple(Answer(((noise,), (-noise,)), (1.0, 1.0), (1, 1), team=1.0) for noise in NOISES)


@ENVIRONMENTS.register("probe/credit")
@dataclass(frozen=True)
class CreditConfig(ProbeConfig):
    """Two steps: the second pays an agent 1 if its first choice was 1, else -1; its second choice has no effect."""

    rules: ClassVar[str] = "Credit"

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        start, after = (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)
        return (
            Answer((start,) * 2, (gamma, gamma), (1, 1), team=gamma),
            Answer((after,) * 2, (1.0, 1.0), (None, None), team=1.0),
        )

    def features(self) -> tuple[str, ...]:
        return ("at_start", "chose_0", "chose_1")

    def n_steps(self) -> int:
        return 2


@ENVIRONMENTS.register("probe/observation")
@dataclass(frozen=True)
class ObservationConfig(ProbeConfig):
    """One step: an agent observes -1 or 1, which is its reward, whatever the action."""

    rules: ClassVar[str] = "Observation"

    @property
    def optimal_return(self) -> float:
        return 0.0

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        return tuple(Answer(((a,), (b,)), (a, b), (None, None), team=(a + b) / 2) for a, b in SIGNS)

    def features(self) -> tuple[str, ...]:
        return ("sign",)


@ENVIRONMENTS.register("probe/match")
@dataclass(frozen=True)
class MatchConfig(ProbeConfig):
    """One step: an agent observes -1 or 1; choice 0 for -1 and 1 for 1 pays 1, the other choice pays -1."""

    rules: ClassVar[str] = "Match"

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        return tuple(Answer(((a,), (b,)), (1.0, 1.0), (int(a > 0), int(b > 0)), team=1.0) for a, b in SIGNS)

    def features(self) -> tuple[str, ...]:
        return ("sign",)


@ENVIRONMENTS.register("probe/dying")
@dataclass(frozen=True)
class DyingConfig(ProbeConfig):
    """Choice 1 pays its agent 1. agent_0 dies after its first step, agent_1 continues to the end of the episode."""

    rules: ClassVar[str] = "Dying"

    steps: int = option(3, help="length of an episode", unit="steps", ge=2, le=1_000_000)

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

    def features(self) -> tuple[str, ...]:
        return (*times(self.steps), "is_agent_0", "is_agent_1")

    def n_steps(self) -> int:
        return self.steps


@ENVIRONMENTS.register("probe/echo")
@dataclass(frozen=True)
class EchoConfig(ProbeConfig):
    """Players take turns, player_0 first: each must repeat the symbol, -1 or 1, of the previous player.

    The first symbol to repeat is random. Choice 0 says -1, choice 1 says 1. A repeated symbol pays its speaker 1 after
    the next turn, or at once in the last turn. Rewards are discounted per turn of the same player: with four turns, the
    values are 1 + gamma, 1 + gamma, 1 and 1.
    """

    rules: ClassVar[str] = "Echo"
    agents: ClassVar[tuple[str, ...]] = numbered("player", 2)
    simultaneous: ClassVar[bool] = False

    rounds: int = option(2, help="turns of each player", unit="turns", ge=1, le=1_000_000)

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

    def features(self) -> tuple[str, ...]:
        return ("symbol", *(f"round_{k}" for k in range(self.rounds)))

    def n_steps(self) -> int:
        return 2 * self.rounds


@ENVIRONMENTS.register("probe/continuous")
@dataclass(frozen=True)
class ContinuousConfig(ProbeConfig):
    """One step: an agent observes x, -1 or 1; action a in -2..2 pays 1 - (a - x)^2, so the best is a = x."""

    rules: ClassVar[str] = "Continuous"

    action: ClassVar[ActionSpec] = ActionSpec("continuous", low=(-2.0,), high=(2.0,))

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        return tuple(Answer(((a,), (b,)), (1.0, 1.0), (a, b), team=1.0) for a, b in SIGNS)

    def features(self) -> tuple[str, ...]:
        return ("sign",)


def one_hot(index: int, n: int) -> tuple[float, ...]:
    return tuple(float(k == index) for k in range(n))


def times(steps: int) -> tuple[str, ...]:
    return tuple(f"time_{t}" for t in range(steps))
