"""Small games of two players whose states are all listed, so that policies can be evaluated exactly."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marlnb.config import ENVIRONMENTS, EnvConfig, option
from marlnb.envs.games.tree_tables import GameTree, matrix_tree, openspiel_tree

if TYPE_CHECKING:
    from marlnb.envs.games.game import Game


@dataclass(frozen=True)
class TreeConfig(EnvConfig):
    """A game whose states are listed in a table."""

    @property
    @abstractmethod
    def tree(self) -> GameTree:
        """All states. Raises EnvBuildError: they cannot be listed."""

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.tree_rules import TreeGame

        return TreeGame(self, self.tree, n_envs, device)


@ENVIRONMENTS.register("tree/biased_rps")
@dataclass(frozen=True)
class BiasedRPSConfig(TreeConfig):
    """Rock, paper, scissors with unequal payoffs; in equilibrium both play 1/16, 10/16, 5/16.

    Source: `matrix_brps` of OpenSpiel.
    """

    @property
    def tree(self) -> GameTree:
        return matrix_tree(((0, -25, 50), (25, 0, -5), (-50, 5, 0)))


@ENVIRONMENTS.register("tree/kuhn_poker")
@dataclass(frozen=True)
class KuhnPokerConfig(TreeConfig):
    """Kuhn poker: three cards, one round of bets. The value for the first player is -1/18."""

    @property
    def tree(self) -> GameTree:
        return openspiel_tree("kuhn_poker")


@ENVIRONMENTS.register("tree/leduc_poker")
@dataclass(frozen=True)
class LeducPokerConfig(TreeConfig):
    """Leduc poker: six cards, two rounds of bets, a card on the table."""

    @property
    def tree(self) -> GameTree:
        return openspiel_tree("leduc_poker")


@ENVIRONMENTS.register("tree/openspiel")
@dataclass(frozen=True)
class OpenSpielTreeConfig(TreeConfig):
    """Any small turn-based game of OpenSpiel, such as `env.game=liars_dice(numdice=1,dice_sides=4)`."""

    game: str = option("kuhn_poker", help="OpenSpiel's name of the game, with its parameters in parentheses")

    @property
    def tree(self) -> GameTree:
        return openspiel_tree(self.game)
