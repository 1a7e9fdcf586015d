"""Matrix games of two agents who share one reward: climbing, penalty and the two-step game."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ENVIRONMENTS, option
from marlnb.envs.games.config import Answer, GameConfig, numbered
from marlnb.specs import ActionSpec

if TYPE_CHECKING:
    from marlnb.envs.games.game import Game

Payoffs = tuple[tuple[float, ...], ...]
AGENTS = numbered("agent", 2)
WHO = ("is_agent_0", "is_agent_1")


@dataclass(frozen=True)
class OneShotConfig(GameConfig):
    """One step: row agent_0, column agent_1. All that an agent sees is which of the two it is."""

    @property
    @abstractmethod
    def payoffs(self) -> Payoffs:
        """What both agents earn, by agent_0's choice, then agent_1's."""

    @property
    def optimal_return(self) -> float:
        return max(max(row) for row in self.payoffs)

    @property
    def optimal_actions(self) -> tuple[tuple[int, int], ...]:
        """The joint choices that earn `optimal_return`."""
        best = self.optimal_return
        return tuple((i, j) for i, row in enumerate(self.payoffs) for j, paid in enumerate(row) if paid == best)

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        """The start; the actions are None where several joint choices are best."""
        best = self.optimal_actions
        action = best[0] if len(best) == 1 else (None, None)
        return (Answer(((1.0, 0.0), (0.0, 1.0)), (self.optimal_return,) * 2, action, team=self.optimal_return),)

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.matrix_rules import OneShot

        action = ActionSpec("discrete", n=(len(self.payoffs),))
        return OneShot(self, self.game_spec(agents=AGENTS, features=WHO, action=action, max_steps=1), n_envs, device)


@ENVIRONMENTS.register("matrix/climbing")
@dataclass(frozen=True)
class ClimbingConfig(OneShotConfig):
    """The climbing game: the way up to 11 leads past -30.

    Source: Claus and Boutilier 1998, The Dynamics of Reinforcement Learning in Cooperative Multiagent Systems, sec. 4.
    """

    @property
    def payoffs(self) -> Payoffs:
        return ((11.0, -30.0, 0.0), (-30.0, 7.0, 6.0), (0.0, 0.0, 5.0))


@ENVIRONMENTS.register("matrix/penalty")
@dataclass(frozen=True)
class PenaltyConfig(OneShotConfig):
    """The penalty game: two ways to 10, and k where the agents choose different ones.

    Source: Claus and Boutilier 1998, The Dynamics of Reinforcement Learning in Cooperative Multiagent Systems, sec. 4.
    """

    k: float = option(-100.0, help="payoff where the agents miss each other", unit="reward", le=0)

    @property
    def payoffs(self) -> Payoffs:
        return ((10.0, 0.0, self.k), (0.0, 2.0, 0.0), (self.k, 0.0, 10.0))


@ENVIRONMENTS.register("matrix/two_step")
@dataclass(frozen=True)
class TwoStepConfig(GameConfig):
    """agent_0's first choice decides which game the second step plays: 7 for certain, or 8 for those who coordinate.

    Both agents see where the game stands and which of the two they are. The best return is 8; a sum of the agents'
    values (VDN) cannot tell it, and ends at 7.
    Source: Rashid et al. 2018, QMIX, section 5 and table 1 (arXiv:1803.11485).
    """

    safe_payoffs: ClassVar[Payoffs] = ((7.0, 7.0), (7.0, 7.0))
    risky_payoffs: ClassVar[Payoffs] = ((0.0, 1.0), (1.0, 8.0))
    additive_return: ClassVar[float] = 7.0  # what a sum of the agents' own values, as VDN's, can learn

    state: bool = option(True, help="also give the global state: all agents' observations in a row")

    @property
    def optimal_return(self) -> float:
        return 8.0

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        def seen(place: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
            return ((*place, 1.0, 0.0), (*place, 0.0, 1.0))

        start = Answer(seen((1.0, 0.0, 0.0)), (8.0 * gamma,) * 2, (1, None), team=8.0 * gamma)
        return start, Answer(seen((0.0, 0.0, 1.0)), (8.0, 8.0), (1, 1), team=8.0)

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.matrix_rules import TwoStep

        spec = self.game_spec(
            agents=AGENTS,
            features=("at_start", "at_safe", "at_risky", *WHO),
            action=ActionSpec("discrete", n=(2,)),
            max_steps=2,
        )
        return TwoStep(self, spec, n_envs, device)
