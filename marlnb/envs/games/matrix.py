"""Matrix games of two agents that share one reward: climbing, penalty and the two-step game."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ENVIRONMENTS, option
from marlnb.envs.games.config import Answer, GameConfig, Payoffs, numbered
from marlnb.specs import ActionSpec

if TYPE_CHECKING:
    from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv

AGENTS = numbered("agent", 2)
IDENTITY = ("is_agent_0", "is_agent_1")


@dataclass(frozen=True)
class OneShotConfig(GameConfig):
    """One step: agent_0 chooses the row, agent_1 the column. An agent observes only which of the two it is."""

    @property
    @abstractmethod
    def payoffs(self) -> Payoffs:
        """The reward of both agents, by agent_0's choice, then agent_1's."""

    @property
    def optimal_return(self) -> float:
        return max(max(row) for row in self.payoffs)

    @property
    def optimal_actions(self) -> tuple[tuple[int, int], ...]:
        """The joint choices that reach `optimal_return`."""
        best = self.optimal_return
        return tuple((i, j) for i, row in enumerate(self.payoffs) for j, payoff in enumerate(row) if payoff == best)

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        """The only time step; the actions are None if several joint choices are best."""
        best = self.optimal_actions
        action = best[0] if len(best) == 1 else (None, None)
        return (Answer(((1.0, 0.0), (0.0, 1.0)), (self.optimal_return,) * 2, action, team=self.optimal_return),)

    def build(self, n_envs: int, device: str = "cpu") -> TensorVectorEnv:
        from marlnb.envs.device import check_device
        from marlnb.envs.games.matrix_rules import OneShot
        from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv

        action = ActionSpec("discrete", n=(len(self.payoffs),))
        spec = self.game_spec(agents=AGENTS, features=IDENTITY, action=action, max_steps=1)
        return TensorVectorEnv(OneShot(spec, self.payoffs, check_device(device)), n_envs, device)


@ENVIRONMENTS.register("matrix/climbing")
@dataclass(frozen=True)
class ClimbingConfig(OneShotConfig):
    """The climbing game: the optimum 11 is surrounded by payoffs of -30.

    Source: Claus and Boutilier 1998, The Dynamics of Reinforcement Learning in Cooperative Multiagent Systems, sec. 4.
    """

    @property
    def payoffs(self) -> Payoffs:
        return ((11.0, -30.0, 0.0), (-30.0, 7.0, 6.0), (0.0, 0.0, 5.0))


@ENVIRONMENTS.register("matrix/penalty")
@dataclass(frozen=True)
class PenaltyConfig(OneShotConfig):
    """The penalty game: two joint choices pay 10, and k is paid if the agents aim at different ones.

    Source: Claus and Boutilier 1998, The Dynamics of Reinforcement Learning in Cooperative Multiagent Systems, sec. 4.
    """

    k: float = option(-100.0, help="payoff if the agents do not coordinate", unit="reward", le=0)

    @property
    def payoffs(self) -> Payoffs:
        return ((10.0, 0.0, self.k), (0.0, 2.0, 0.0), (self.k, 0.0, 10.0))


@ENVIRONMENTS.register("matrix/two_step")
@dataclass(frozen=True)
class TwoStepConfig(GameConfig):
    """agent_0's first choice decides which game the second step plays: a certain 7, or 8 if both agents coordinate.

    Both agents observe the game's state and which of the two they are. The best return is 8; a sum of the agents'
    values (VDN) cannot represent it, and ends at 7.

    Source: Rashid et al. 2018, QMIX, section 5 and table 1 (arXiv:1803.11485).
    """

    safe_payoffs: ClassVar[Payoffs] = ((7.0, 7.0), (7.0, 7.0))
    risky_payoffs: ClassVar[Payoffs] = ((0.0, 1.0), (1.0, 8.0))
    additive_return: ClassVar[float] = 7.0  # the best that a sum of the agents' values (VDN) can learn

    state: bool = option(True, help="provide the global state: all agents' observations, concatenated")

    @property
    def optimal_return(self) -> float:
        return 8.0

    def answers(self, gamma: float) -> tuple[Answer, ...]:
        def observations(state: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
            return ((*state, 1.0, 0.0), (*state, 0.0, 1.0))

        start = Answer(observations((1.0, 0.0, 0.0)), (8.0 * gamma,) * 2, (1, None), team=8.0 * gamma)
        return start, Answer(observations((0.0, 0.0, 1.0)), (8.0, 8.0), (1, 1), team=8.0)

    def build(self, n_envs: int, device: str = "cpu") -> TensorVectorEnv:
        from marlnb.envs.device import check_device
        from marlnb.envs.games.matrix_rules import TwoStep
        from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv

        features, action = ("at_start", "at_safe", "at_risky", *IDENTITY), ActionSpec("discrete", n=(2,))
        spec = self.game_spec(agents=AGENTS, features=features, action=action, max_steps=2)
        rules = TwoStep(spec, self.safe_payoffs, self.risky_payoffs, check_device(device))
        return TensorVectorEnv(rules, n_envs, device)
