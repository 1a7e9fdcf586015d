"""The sides of an environment, a league's first players, and the checks before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from marlnb.errors import ConfigError, unknown
from marlnb.league_config import LeagueConfig
from marlnb.populations.league.draws import draw_match
from marlnb.populations.league.payoff import PayoffTable
from marlnb.populations.league.players import ANY_SIDE, NewPlayer, Player, Side, check_id, snapshot_id
from marlnb.populations.league.state import LeagueState
from marlnb.specs import EnvSpec

N_TRIAL_DRAWS = 32


def sides_of(spec: EnvSpec, config: LeagueConfig) -> tuple[Side, ...]:
    """The sides of every match in an environment.

    Several groups of agents: each group is a side. One group: each of its agents is a side, and since all have the same
    spaces, a player can take any of these seats.

    Raises:
        ConfigError: there is only one side, or a win threshold names none of them.
    """
    by_group = config.sides == "groups" or (config.sides == "auto" and len(spec.groups) > 1)
    if by_group:
        sides = tuple(Side(group.name, group.agents) for group in spec.groups)
    else:
        sides = tuple(Side(agent, (agent,)) for agent in spec.groups[0].agents)
    if len(sides) < 2 or (not by_group and len(spec.groups) > 1):
        groups = "; ".join(f"{group.name}: {', '.join(group.agents)}" for group in spec.groups)
        raise ConfigError(
            f"a league needs two sides or more: several groups of agents, or one group of several agents that play "
            f"against each other; {spec.name} has {groups} (league.sides={config.sides}). groups= regroups agents",
            at="league.sides",
        )
    for name in config.win_threshold:
        if name not in (names := [side.name for side in sides]):
            raise ConfigError(unknown(f"side of {spec.name} in league.win_threshold", name, names))
    if config.win_margin is not None and (config.win_threshold or len(sides) != 2):
        raise ConfigError(
            f"league.win_margin compares the returns of two sides, and is not used with league.win_threshold; "
            f"{spec.name} has {len(sides)} sides, win_threshold={dict(config.win_threshold)}",
            at="league.win_margin",
        )
    return sides


def is_symmetric(sides: Iterable[Side], spec: EnvSpec) -> bool:
    """Whether the sides are seats of one group, which any player can take."""
    return len(spec.groups) == 1 and all(len(side.agents) == 1 for side in sides)


def player_sides(sides: tuple[Side, ...], symmetric: bool) -> tuple[str, ...]:
    """The sides for which a league needs players of their own; `ANY_SIDE` alone in a symmetric game."""
    return (ANY_SIDE,) if symmetric else tuple(side.name for side in sides)


def first_players(config: LeagueConfig, sides: tuple[Side, ...], symmetric: bool) -> tuple[NewPlayer, ...]:
    """The players of `config.roster`, checked.

    Raises:
        ConfigError: none, two of the same id, an id that cannot name a folder, one for a side that does not exist, or
            more than `max_players`.
    """
    valid = player_sides(sides, symmetric)
    players = tuple(config.roster(valid))
    ids = [player.id for player in players]
    where = f"league {config.name!r}"
    if not players:
        raise ConfigError(f"{where} has no learning players")
    if duplicates := sorted({name for name in ids if ids.count(name) > 1}):
        raise ConfigError(f"{where} names two players {duplicates[0]!r}; each id must be unique")
    for player in players:
        check_id(where, player.id)
        if player.side not in valid:
            raise ConfigError(f"{where}, player {player.id!r}: {unknown('side', player.side, valid)}")
    for side in valid:
        if not any(player.side == side for player in players):
            raise ConfigError(f"{where} has no player for side {side!r}; it has {', '.join(ids)}")
    if (n_players := len(players) + sum(player.with_snapshot for player in players)) > config.max_players:
        raise ConfigError(
            f"{where} starts with {n_players} players and snapshots; at most {config.max_players} are allowed",
            at="league.max_players",
        )
    return players


def first_state(config: LeagueConfig, sides: tuple[Side, ...], players: Iterable[NewPlayer]) -> LeagueState:
    """The league before its first match: the learning players, and snapshots of those that start with one."""
    first: dict[str, Player] = {}
    for new in players:
        first[new.id] = Player(new.id, new.role, new.side, learning=not new.run, parent=new.parent)
        if new.with_snapshot:
            name = snapshot_id(new.id, 0)
            first[name] = Player(name, new.role, new.side, learning=False, parent=new.id)
    frames = {name: 0 for name, player in first.items() if player.learning}
    return LeagueState(sides, first, PayoffTable.empty(decay=config.decay), frames, dict(frames))


def check_league(
    config: LeagueConfig, spec: EnvSpec, planned_frames: int | None = None, turn_frames: int = 1
) -> LeagueState:
    """The league's first state, after some draws for each player on trial.

    Args:
        config: of the league.
        spec: of the environment.
        planned_frames: of each player, for which the config's options are checked; None: they are not.
        turn_frames: of a player's turn.
    Raises:
        ConfigError: the environment has no sides, a role has no opponents, a draw is not valid, or the league's
            config cannot do with these frames what its options say.
    """
    sides = sides_of(spec, config)
    players = first_players(config, sides, is_symmetric(sides, spec))
    league = first_state(config, sides, players)
    if planned_frames is not None:
        league = replace(league, planned_frames=planned_frames, turn_frames=turn_frames)
        config.check(league)
    check_draws(config, league)
    return league


def planned_league(config: LeagueConfig, spec: EnvSpec, frames: int, turn_frames: int = 1) -> LeagueState:
    """As `check_league`, where each player that is trained here learns from an equal part of the frames.

    Args:
        config: of the league.
        spec: of the environment.
        frames: of the whole training run.
        turn_frames: of a player's turn.
    Raises:
        ConfigError: as `check_league`, or `config.learner` is no learning player.
    """
    learning = [player.id for player in check_league(config, spec).learning]
    if config.learner and config.learner not in learning:
        raise ConfigError(unknown("player in league.learner", config.learner, learning), at="league.learner")
    return check_league(config, spec, max(1, frames // (1 if config.learner else len(learning))), turn_frames)


def check_draws(config: LeagueConfig, league: LeagueState) -> None:
    """Draws some matches for each learning player on trial.

    Raises:
        ConfigError: no player learns, one has no opponents, or a draw is not valid.
    """
    if not league.learning:
        raise ConfigError("no other player learns")
    for player in league.learning:
        for number in range(N_TRIAL_DRAWS):
            draw_match(config, league, player.id, number, seed=0)
