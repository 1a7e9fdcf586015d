"""What one player of a league learns with: the experiment's algorithm and networks for it, its role and its groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from marlnb.config import AlgorithmConfig, ModelConfig
from marlnb.errors import ConfigError, unknown
from marlnb.experiment import Experiment
from marlnb.populations.league.players import ANY_SIDE, Player, Side
from marlnb.populations.league.roster import check_league
from marlnb.specs import EnvSpec, derive_seed

Part = TypeVar("Part")


def player_experiment(experiment: Experiment, spec: EnvSpec, player: Player, n_resets: int = 0) -> Experiment:
    """The experiment of one player, without league and CUDA graphs, whose tables have groups and agents only.

    `algorithms`, `models` and `critics` may name a player, a role, a group of agents, and networks also an agent; the
    first of these that is named counts. The seed, and so the first weights, depend on the player and on its resets.
    """
    names = (player.id, player.parent.partition("@")[0] if not player.learning else "", player.role)
    seed = derive_seed(experiment.seed, "player", player.id, n_resets)

    def by_group(table: Mapping[str, Part]) -> dict[str, Part]:
        groups = {group: named for group in spec.group_names if (named := _first(table, (*names, group))) is not None}
        return groups | {agent: table[agent] for agent in spec.agents if agent in table and agent not in groups}

    return replace(
        experiment,
        league=None,
        cuda_graphs=False,
        algorithms=by_group(experiment.algorithms),
        models=by_group(experiment.models),
        critics=by_group(experiment.critics),
        seed=seed,
        target_group=None,
        target_return=None,
    )


def algorithm_names(
    experiment: Experiment, players: Iterable[Player], sides: Iterable[Side], spec: EnvSpec
) -> tuple[str, ...]:
    """The names by which `algorithms` has the algorithms of these players: of a player, a role, or else a group."""
    names = [
        next((name for name in (player.id, player.role) if name in experiment.algorithms), group)
        for player in players
        for group in played_groups(player, sides, spec)
    ]
    return tuple(dict.fromkeys(names))


def played_groups(player: Player, sides: Iterable[Side], spec: EnvSpec) -> list[str]:
    """The groups in which a player may act."""
    agents = {agent for side in sides if player.takes(side.name) for agent in side.agents}
    return [group.name for group in spec.groups if agents & set(group.agents)]


def check_names(experiment: Experiment, spec: EnvSpec, players: Iterable[Player]) -> None:
    """Raises ConfigError if a table of the experiment names no player, role, group or agent."""
    league = [name for player in players if not player.is_snapshot for name in (player.id, player.role)]
    for part, table, agents in (
        ("algorithms", experiment.algorithms, ()),
        ("models", experiment.models, spec.agents),
        ("critics", experiment.critics, spec.agents),
    ):
        valid = tuple(dict.fromkeys((*league, *spec.group_names, *agents)))
        for name in table:
            if name not in valid:
                raise ConfigError(unknown(f"player, role or group of {spec.name} in {part}", name, valid), at=part)


def representatives(players: Iterable[Player], sides: Iterable[Side], spec: EnvSpec) -> dict[str, Player]:
    """By group, the first player that acts for it. A league's checkpoints and evaluations show these."""
    agents_of = {side.name: side.agents for side in sides}
    first: dict[str, Player] = {}
    for player in players:
        for group in spec.groups:
            if player.side == ANY_SIDE or set(agents_of[player.side]) & set(group.agents):
                first.setdefault(group.name, player)
    return first


def league_experiment(experiment: Experiment, spec: EnvSpec) -> Experiment:
    """The experiment without league whose learners are those that a checkpoint of the league has by group."""
    assert experiment.league is not None
    state = check_league(experiment.league, spec)
    algorithms: dict[str, AlgorithmConfig] = {}
    models: dict[str, ModelConfig] = {}
    critics: dict[str, ModelConfig] = {}
    for group, player in representatives(state.players.values(), state.sides, spec).items():
        own = player_experiment(experiment, spec, player)
        algorithms |= {name: value for name, value in own.algorithms.items() if name == group}
        models |= {name: value for name, value in own.models.items() if name in (group, *spec.group(group).agents)}
        critics |= {name: value for name, value in own.critics.items() if name in (group, *spec.group(group).agents)}
    return replace(experiment, league=None, algorithms=algorithms, models=models, critics=critics)


def _first(table: Mapping[str, Part], names: Iterable[str]) -> Part | None:
    return next((table[name] for name in names if name in table), None)
