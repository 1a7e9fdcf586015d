"""AlphaStar's league: main agents, main exploiters and league exploiters.

    main agents        35% self-play, 50% PFSP against all past players, 15% PFSP against past mains that it can no
                       longer beat and past main exploiters (else self-play); a snapshot after 2e9 steps; never reset
    league exploiters  PFSP against all past players; a snapshot once they beat all of them in more than 70% of the
                       games, or after 2e9 steps; then reset with a probability of 25%
    main exploiters    against the current mains; in half of the matches, and if they win less than 20%, PFSP with
                       f_var over snapshots of the mains; a snapshot once they beat all mains in more than 70%, or
                       after 4e9 steps; then always reset

Source: Vinyals et al. 2019 (10.1038/s41586-019-1724-z), Methods, "Multi-agent learning". The numbers are the paper's,
not those of its pseudocode. 2e9 steps are a hundredth of what an agent learned from (44 days at 50,000 steps/s), so
here it is a hundredth of a player's frames. A hundredth of a short training run is less than an update, from which an
exploiter learns nothing; so exploiters have at least `min_updates`. A reset returns to fresh weights, as there are no
supervised ones. A win rate counts after `min_games`, and until then as 1/2: after one won game f(1) = 0 would end all
meetings of a pair. So a gate needs `min_games` against each opponent, and stays closed right after a snapshot
(`gate_after`). The paper names no win rate below which a main cannot beat a player: `forgotten_below`. It mentions
f_var for struggling main agents; the pseudocode has 0.3 for that: `struggling_below`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from marlnb.config import option, resolve_config
from marlnb.errors import ConfigError, unknown
from marlnb.league_config import LEAGUES, LeagueConfig
from marlnb.populations.builders.history import MAIN, frames_between, new_players
from marlnb.populations.league.draws import choose
from marlnb.populations.league.payoff import UNKNOWN
from marlnb.populations.league.pfsp import Weighting, pfsp_weights
from marlnb.populations.league.players import NewPlayer, Player
from marlnb.populations.league.state import Decision, Draw, LeagueState
from marlnb.values import validate

MAIN_EXPLOITER, LEAGUE_EXPLOITER = "main_exploiter", "league_exploiter"
COUNT = "learning players of this role for each side"
OF_A_ROLE = ("count", "names")  # the other options of a role can differ between its players
NAMES = "names of these players, one for each; none: the role and a number, as main_0"
GATE = "a snapshot is due once the player beats all its opponents in a larger share of games; none: never"
RESET = "probability of fresh weights after a snapshot"


@dataclass(frozen=True)
class RoleOptions:
    """What main agents and exploiters have in common.

    Attributes:
        snapshot_share: of a player's training, after which a snapshot is due where no number of frames is given.
        min_updates: that a player makes before, where no number of frames is given.
    """

    snapshot_share: ClassVar[float] = 0.01
    min_updates: ClassVar[int] = 0

    count: int = option(1, help=COUNT, unit="players", ge=0, le=1000)
    names: tuple[str, ...] = option((), help=NAMES)
    gate: float | None = option(None, help=GATE, ge=0)
    gate_after: float = option(
        0.1, help="share of the frames between two snapshots in which the gate stays closed", ge=0, le=1
    )
    snapshot_frames: int | None = option(
        None,
        help="frames after which a snapshot is due in any case; none: a hundredth of what the player learns from, and "
        "at least 10 updates of a league exploiter; a fiftieth and at least 20 updates of a main exploiter",
        unit="frames",
        ge=1,
    )
    reset: float = option(0.0, help=RESET, ge=0, le=1)
    p: float = option(2.0, help="exponent of PFSP's (1-x)^p", gt=0, le=100)

    def __post_init__(self) -> None:
        validate(self)
        if self.gate is not None and self.gate >= 1:
            raise ConfigError(
                f"gate={self.gate:g} can never be reached, as no share of games is larger than 1; use a number below "
                "1, or none for snapshots after snapshot_frames alone"
            )

    def due_frames(self, league: LeagueState) -> int:
        """After which a snapshot is due in any case."""
        frames = frames_between(self.snapshot_frames, league, self.snapshot_share)
        return max(frames, self.min_updates * league.turn_frames) if self.snapshot_frames is None else frames


@dataclass(frozen=True)
class MainOptions(RoleOptions):
    """Main agents: they play themselves, the past, and what they forgot."""

    self_play: float = option(0.35, help="share of self-play", ge=0, le=1)
    forgotten: float = option(
        0.15,
        help="share of PFSP against past mains and main exploiters that it cannot beat; the rest: all past players",
        ge=0,
        le=1,
    )
    forgotten_below: float = option(0.5, help="win rate below which it cannot beat a player", ge=0, le=1)
    struggling_below: float = option(
        0.3,
        help="win rate against another current main below which it meets that one's snapshots, by f_var",
        ge=0,
        le=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.self_play + self.forgotten > 1:
            shares = f"self_play={self.self_play:g} and forgotten={self.forgotten:g}"
            raise ConfigError(f"the shares of a main agent's matches are at most 1 together; got {shares}")


@dataclass(frozen=True)
class MainExploiterOptions(RoleOptions):
    """Main exploiters: they find weaknesses of the current mains."""

    snapshot_share: ClassVar[float] = 0.02
    min_updates: ClassVar[int] = 20

    gate: float | None = option(0.7, help=GATE, ge=0)
    reset: float = option(1.0, help=RESET, ge=0, le=1)
    curriculum: float = option(0.5, help="share of the matches against snapshots of the mains, by f_var", ge=0, le=1)
    curriculum_below: float = option(
        0.2, help="win rate against a main below which all matches are against snapshots of the mains", ge=0, le=1
    )


@dataclass(frozen=True)
class LeagueExploiterOptions(RoleOptions):
    """League exploiters: they find weaknesses of the whole league."""

    min_updates: ClassVar[int] = 10

    count: int = option(2, help=COUNT, unit="players", ge=0, le=1000)
    gate: float | None = option(0.7, help=GATE, ge=0)
    reset: float = option(0.25, help=RESET, ge=0, le=1)


@LEAGUES.register("alphastar")
@dataclass(frozen=True)
class AlphaStarConfig(LeagueConfig):
    """AlphaStar's league: main agents, main exploiters and league exploiters, with the paper's shares and gates."""

    main: MainOptions = option(MainOptions(), help="main agents")
    main_exploiter: MainExploiterOptions = option(MainExploiterOptions(), help="main exploiters")
    league_exploiter: LeagueExploiterOptions = option(LeagueExploiterOptions(), help="league exploiters")
    players: Mapping[str, Mapping[str, Any]] = option(
        {}, help="options of single players that differ from their role's, such as league.players.main_1.self_play=0.5"
    )

    def roster(self, sides: tuple[str, ...]) -> tuple[NewPlayer, ...]:
        players = (
            *new_players(MAIN, self.main.count, sides, self.main.names, with_snapshot=True),
            *new_players(MAIN_EXPLOITER, self.main_exploiter.count, sides, self.main_exploiter.names),
            *new_players(LEAGUE_EXPLOITER, self.league_exploiter.count, sides, self.league_exploiter.names),
        )
        roles = {player.id: player.role for player in players}
        for name in self.players:
            if name not in roles:
                raise ConfigError(unknown("player in league.players", name, roles), at=f"league.players.{name}")
            self._check_options(name, roles[name])
        return players

    def _check_options(self, player: str, role: str) -> None:
        """Raises ConfigError if an option of one player is unknown, out of range, or one of its whole role."""
        at = f"league.players.{player}"
        valid = [item.name for item in fields(getattr(self, role)) if item.name not in OF_A_ROLE]
        for name in self.players[player]:
            if name in OF_A_ROLE:
                raise ConfigError(f"{at}: {name!r} is an option of the whole role; use league.{role}.{name}", at=at)
            if name not in valid:
                raise ConfigError(unknown(f"option in {at}", name, valid), at=at)
        try:
            self._options(player, role)
        except ConfigError as error:
            raise ConfigError(f"{at}: {error}", at=at) from error

    def check(self, league: LeagueState) -> None:
        """Raises ConfigError if a gate can never open: too few games, at one per frame, or none against the mains."""
        for player in league.learning:
            options = self._options(player.id, player.role)
            if options.gate is None:
                continue
            why = _never_meets_mains(options) if not self.evaluation_share else ""
            if why := why or self._too_few_games(player, options, league):
                raise ConfigError(
                    f"league {self.name!r}: the gate of {player.id!r} can never be reached: {why}, or "
                    f"league.{player.role}.gate=null",
                    at=f"league.{player.role}.gate",
                )

    def _too_few_games(self, player: Player, options: RoleOptions, league: LeagueState) -> str:
        """Why a player cannot have `min_games` against each opponent; empty if it can. Reviews are between rounds."""
        turns = league.turn_frames * self.round_turns
        frames, until = -(-league.planned_frames // turns) * turns, "in this run"
        between = -(-options.due_frames(league) // turns) * turns
        if options.reset == 1 and between < frames:
            frames, until = between, "between two resets (snapshot_frames)"
        games = frames * len(league.other_sides(player))
        if self.evaluation_share:
            games *= len(league.learning)  # evaluation matches take place among the episodes of all
        n_opponents = len(self._to_beat(player, league))
        if self.min_games * n_opponents <= games:
            return ""
        whom = "its opponent" if n_opponents == 1 else f"each of {n_opponents} opponents"
        return (
            f"it needs min_games={self.min_games:,} games against {whom}, but has at most {games:,} {until}. "
            "Use fewer min_games, more frames"
        )

    def draw(self, rng: np.random.Generator, player: Player, league: LeagueState) -> Draw:
        options = self._options(player.id, player.role)
        if isinstance(options, MainOptions):
            return self._draw_for_main(rng, player, league, options)
        if isinstance(options, MainExploiterOptions):
            return self._draw_for_main_exploiter(rng, player, league, options)
        return self._pfsp("pfsp", rng, player, league, _past(player, league), p=options.p)

    def review(self, rng: np.random.Generator, player: Player, league: LeagueState) -> tuple[Decision, ...]:
        options = self._options(player.id, player.role)
        frames = league.frames_since_snapshot(player)
        due_frames = options.due_frames(league)
        is_due = frames >= due_frames
        beat_all = frames >= options.gate_after * due_frames and self._beats_all(player, league, options.gate)
        if not is_due and not beat_all:
            return ()
        snapshot = Decision("snapshot", reason="beat all" if beat_all else "due")
        return (snapshot, Decision("reset")) if rng.random() < options.reset else (snapshot,)

    def _options(self, player: str, role: str) -> RoleOptions:
        of_its_role: RoleOptions = getattr(self, role)
        different = self.players.get(player)
        return resolve_config(type(of_its_role), of_its_role, different) if different else of_its_role

    def _draw_for_main(
        self, rng: np.random.Generator, player: Player, league: LeagueState, options: MainOptions
    ) -> Draw:
        share = rng.random()
        if share >= options.self_play + options.forgotten:
            return self._pfsp("pfsp", rng, player, league, _past(player, league), p=options.p)
        if share >= options.self_play:
            forgotten = league.cached(("forgotten", player.id), lambda: self._forgotten(player, league, options))
            if all(forgotten):
                return self._pfsp("forgotten", rng, player, league, forgotten, p=options.p)
        return self._self_play(rng, player, league, options)

    def _draw_for_main_exploiter(
        self, rng: np.random.Generator, player: Player, league: LeagueState, options: MainExploiterOptions
    ) -> Draw:
        mains = tuple(choose(rng, pool) for pool in _mains(player, league))
        is_losing = league.payoff.rates(player.id, mains, self.min_games).min() < options.curriculum_below
        if rng.random() < options.curriculum or is_losing:
            return self._pfsp("curriculum", rng, player, league, _past(player, league, MAIN), weighting="var")
        return Draw("main", mains)

    def _self_play(self, rng: np.random.Generator, player: Player, league: LeagueState, options: MainOptions) -> Draw:
        """Against current mains, itself among them in a symmetric game, or snapshots of those that beat it."""
        mains = tuple(choose(rng, pool) for pool in _mains(player, league))
        others = [main for main in mains if main != player.id]
        if others and league.payoff.rates(player.id, others, self.min_games).min() < options.struggling_below:
            pools = [tuple(past for past in league.past if past.parent == main) for main in mains]
            if all(pools):
                return self._pfsp("struggling", rng, player, league, pools, weighting="var", key=mains)
        return Draw("self_play", mains)

    def _pfsp(
        self,
        kind: str,
        rng: np.random.Generator,
        player: Player,
        league: LeagueState,
        pools: Pools,
        *,
        weighting: Weighting = "hard",
        p: float = 2.0,
        key: Hashable = None,
    ) -> Draw:
        """An opponent of each pool, by prioritised fictitious self-play. Kind, player and key tell the pools."""

        def weights() -> list[np.ndarray]:
            rates = (league.payoff.rates(player.id, [other.id for other in pool], self.min_games) for pool in pools)
            return [pfsp_weights(rate, weighting, p) for rate in rates]

        weights_of_pools = league.cached((kind, player.id, key), weights)
        return Draw(kind, tuple(choose(rng, pool, weight) for pool, weight in zip(pools, weights_of_pools)))

    def _forgotten(self, player: Player, league: LeagueState, options: MainOptions) -> Pools:
        """Past mains and main exploiters that the player met often enough to know that it cannot beat them."""
        pools = []
        for pool in _past(player, league, MAIN, MAIN_EXPLOITER):
            ids = [other.id for other in pool]
            known = league.payoff.has_met(player.id, ids, self.min_games)
            lost = known & (league.payoff.rates(player.id, ids) < options.forgotten_below)
            pools.append(tuple(other for other, is_lost in zip(pool, lost) if is_lost))
        return pools

    def _beats_all(self, player: Player, league: LeagueState, gate: float | None) -> bool:
        """Whether the player beats all current mains (a main exploiter), or all past players."""
        if gate is None:
            return False
        ids = self._to_beat(player, league)
        met = league.payoff.has_met(player.id, ids, self.min_games)
        return bool(ids) and bool((met & (league.payoff.rates(player.id, ids) > gate)).all())

    def _to_beat(self, player: Player, league: LeagueState) -> list[str]:
        """All current mains for a main exploiter, else all past players."""
        pools = _mains(player, league) if player.role == MAIN_EXPLOITER else _past(player, league)
        return list(dict.fromkeys(other.id for pool in pools for other in pool if other.id != player.id))


Pools = Sequence[tuple[Player, ...]]  # candidates for each other side


def _never_meets_mains(options: RoleOptions) -> str:
    """Why a main exploiter always meets snapshots, not the mains that its gate asks for; empty if it does meet them."""
    if not isinstance(options, MainExploiterOptions):
        return ""
    if options.curriculum == 1:
        return "with curriculum=1 it meets snapshots alone, never the current mains. Use a smaller curriculum"
    if options.curriculum_below > UNKNOWN:
        return (
            f"with curriculum_below={options.curriculum_below:g} it meets snapshots alone, never the current mains: "
            f"a win rate counts as {UNKNOWN:g} before the first game. Use {UNKNOWN:g} or less"
        )
    return ""


def _mains(player: Player, league: LeagueState) -> Pools:
    return [league.learning_of(side, MAIN) for side in league.other_sides(player)]


def _past(player: Player, league: LeagueState, *roles: str) -> Pools:
    return [league.past_of(side, *roles) for side in league.other_sides(player)]
