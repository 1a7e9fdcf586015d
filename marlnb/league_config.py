"""LeagueConfig: the options of a league, and the three decisions in which one kind of league differs from another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from marlnb.config import option
from marlnb.plugins.registry import Registry
from marlnb.plugins.unloaded import Unloaded
from marlnb.trust import loaded
from marlnb.values import validate

if TYPE_CHECKING:
    import numpy as np

    from marlnb.populations.league.players import NewPlayer, Player
    from marlnb.populations.league.state import Decision, Draw, LeagueState

LEAGUES: Registry[type[LeagueConfig]] = Registry("league", "marlnb.populations")

league = LEAGUES.register


@dataclass(frozen=True)
class LeagueConfig(ABC):
    """The options of one kind of league; registered under its name, such as `alphastar`.

    In a league, players learn by playing against each other and against snapshots of themselves. `roster` says which
    players exist, `draw` who meets whom, `review` what follows from the results. All three are pure functions: they
    read nothing but their arguments, and take random numbers from `rng` alone. So every process draws the same match,
    in any order and after any resume.
    """

    registry: ClassVar[Registry[type[LeagueConfig]]] = LEAGUES
    unloaded: ClassVar[type[UnloadedLeague]]
    name: ClassVar[str]

    sides: Literal["auto", "groups", "seats"] = option(
        "auto",
        help="the sides of a match: groups of agents, or the agents of the only group, whose seats any player takes; "
        "auto: groups if there are several",
        choices=("auto", "groups", "seats"),
    )
    win_threshold: Mapping[str, float] = option(
        {}, help="by side, the return above which it wins; none: the side with the highest return wins"
    )
    win_margin: float | None = option(
        None,
        help="the lead in returns that counts as a whole win; smaller leads count in proportion, from a draw upwards. "
        "For games with unequal payoffs, such as poker; none: any lead is a win",
        unit="reward",
        gt=0,
        le=1e12,
    )
    max_players: int = option(
        1000,
        help="maximum number of players and snapshots; at this number no more are added",
        unit="players",
        ge=2,
        le=10_000,
    )
    decay: float = option(
        0.99, help="weight of a result for each newer game of the same pair, in win rates", gt=0, le=1
    )
    min_games: int = option(
        8,
        help="games of a pair before its win rate counts; until then it is 1/2 for matchmaking, and opens no gate",
        unit="games",
        ge=1,
        le=100_000,
    )
    evaluation_share: float = option(
        0.0,
        help="share of matches from which no player learns, each between the two players or snapshots that met "
        "least often. 0: win rates come from training matches alone",
        ge=0,
        lt=1,
    )
    learner: str = option(
        "",
        help="the only player that this run trains. Runs in neighbouring folders train the others, at their "
        "own pace, and meet it through files. none: one training run trains all players, in turns",
    )
    round_turns: int = option(
        1,
        help="updates of each learning player in a round; win rates and players change between rounds",
        ge=1,
        le=10**6,
    )

    def __post_init__(self) -> None:
        validate(self)

    @abstractmethod
    def roster(self, sides: tuple[str, ...]) -> tuple[NewPlayer, ...]:
        """The learning players of the beginning.

        Args:
            sides: those that need players of their own; in a symmetric game one, `""`, as any player takes any seat.
        """

    def check(self, league: LeagueState) -> None:
        """Looks for options that can never have an effect, before anything is trained.

        Args:
            league: before its first match.
        Raises:
            ConfigError: there is one, as a gate that needs more games than the training has.
        """

    @abstractmethod
    def draw(self, rng: np.random.Generator, player: Player, league: LeagueState) -> Draw:
        """Whom a learning player meets in one episode. Its own seat in a symmetric game is drawn elsewhere.

        Args:
            rng: of this episode alone.
            player: learns from the episode.
            league: at the beginning of the round.
        Raises:
            ConfigError: there is no opponent.
        """

    def review(self, rng: np.random.Generator, player: Player, league: LeagueState) -> tuple[Decision, ...]:
        """What happens to a learning player at the end of a round, in order; empty: nothing changes.

        A decision that an earlier one of the round has made impossible is dropped, with those after it in its review.

        Args:
            rng: of this player and round alone.
            player: a learning player.
            league: with the results of the round, before the first decision; the same for all players.
        """
        return ()


@dataclass(frozen=True, kw_only=True, repr=False)
class UnloadedLeague(Unloaded, LeagueConfig):  # type: ignore[misc]  # `name` is of the instance here
    """A league whose code has not been imported."""

    def __post_init__(self) -> None:
        for item in fields(LeagueConfig):
            if item.name in self.options:
                object.__setattr__(self, item.name, self.options[item.name])

    def roster(self, sides: tuple[str, ...]) -> tuple[NewPlayer, ...]:
        """Raises TrustError: the user does not trust the code."""
        return loaded(cast(LeagueConfig, self), "league").roster(sides)

    def draw(self, rng: np.random.Generator, player: Player, league: LeagueState) -> Draw:
        """Raises TrustError: the user does not trust the code."""
        return loaded(cast(LeagueConfig, self), "league").draw(rng, player, league)


LeagueConfig.unloaded = UnloadedLeague
