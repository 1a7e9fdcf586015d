"""Seating: who acts for which agents in a match, as a policy source that can be played, recorded and explained."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from marlnb.config import EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, ConfigError
from marlnb.experiment import Experiment
from marlnb.league_config import LEAGUES, LeagueConfig
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.seated_policy import SeatedPolicy
from marlnb.populations.league.players import ANY_SIDE, Side, columns_of, sides_to_take
from marlnb.populations.league.roster import sides_of
from marlnb.populations.run_league import LeaguePlayer
from marlnb.specs import GroupSpec
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.comparable import distinct_names
from marlnb.training.runs.run import Origin, Run
from marlnb.training.runs.run_folder import Which

Contestant = tuple[PolicySource, Which]  # and the checkpoint


class Seating:
    """Two players in one match: the first acts for one side, or all but one, the second for the rest. A `PolicySource`.

    Sites of agents that share a group with their opponents have the agent's name: `player/actor/player_0/hidden_1`.

    Attributes:
        contestants: both players, each with the checkpoint that plays.
        side: what the first player takes, as `sides_to_take` names it.
        path: folder of the recordings.
        experiment: None: no single training run made these policies.
    """

    experiment: Experiment | None = None

    def __init__(self, first: Contestant, second: Contestant, side: Side, path: Path) -> None:
        self.contestants, self.side, self.path = (first, second), side, path
        self.spec, self.n_envs = first[0].spec, first[0].n_envs
        labels = match_labels(first, second)
        self.source = f"match of {labels[0]} ({side.name}) and {labels[1]}"

    def __repr__(self) -> str:
        return f"<Seating: {self.source}, in {self.spec.name}>"

    def build_env(self, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
        """The environment of the first player, or another."""
        return self.contestants[0][0].build_env(n_envs, device=device, env=env)

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        self._check(checkpoint)
        both = [source.policies(which, device=device) for source, which in self.contestants]
        policies: dict[str, Policy] = {}
        for group in self.spec.groups:
            seats = self._seats(group)
            if all(seats):
                policy: Policy = SeatedPolicy(group, [each[group.name] for each in both], seats)
            else:
                policy = both[0 if seats[0] else 1][group.name]
            policies[group.name] = policy.to(device).eval()
        return policies

    def origin(self, checkpoint: Which = "last") -> Origin:
        self._check(checkpoint)
        hashes = [source.origin(which).sha256 for source, which in self.contestants]
        return Origin(0, hashlib.sha256(f"{self.side.name} {' '.join(hashes)}".encode()).hexdigest())

    def policy_index(self, group: GroupSpec) -> list[int]:
        own, others = (source.policy_index(group) for source, _ in self.contestants)
        mine = self._seats(group)[0]
        return [own[k] if k in mine else 1 + max(own) + others[k] for k in range(group.n_agents)]

    def _seats(self, group: GroupSpec) -> tuple[list[int], list[int]]:
        """The indices of the agents of each player."""
        mine = [k for k, agent in enumerate(group.agents) if agent in self.side.agents]
        return mine, [k for k in range(group.n_agents) if k not in mine]

    def _check(self, checkpoint: Which) -> None:
        if str(checkpoint) not in ("last", "best", "0"):
            raise CheckpointError(f"no checkpoint {checkpoint!r}: a match has the weights that it was played with")


def seatings(first: Contestant, second: Contestant, sides: Sequence[Side], path: Path) -> list[Seating]:
    """All that the first player can take while the second takes the rest, of `sides_to_take`.

    Raises:
        ConfigError: there is none, or the players have other groups, observations or actions.
    """
    check_fit(first[0].spec, second[0].spec)
    own, other = (player_side(source) for source, _ in (first, second))
    possible = []
    for taken in sides_to_take(sides):
        columns = columns_of(sides, taken)
        takers = [own if k in columns else other for k in range(len(sides))]
        if all(taker in (ANY_SIDE, side.name) for taker, side in zip(takers, sides)):
            possible.append(taken)
    if not possible:
        names, labels = [side.name for side in sides], match_labels(first, second)
        free = ", ".join(name for name in names if name not in (own, other))
        raise ConfigError(
            f"{labels[0]} plays only {own} and {labels[1]} only {other}, so they cannot meet in {first[0].spec.name}, "
            f"whose sides are {', '.join(names)}: neither would act for {free}. Give a run in place of one of them: "
            "it acts for every side that the other does not play"
        )
    return [Seating(first, second, side, path) for side in possible]


def player_side(source: PolicySource) -> str:
    """The only side that a player of a league takes; ANY_SIDE for all others."""
    return source.player.side if isinstance(source, LeaguePlayer) else ANY_SIDE


def label_of(source: PolicySource) -> str:
    """A player's id, or the name of a run's folder."""
    return source.id if isinstance(source, LeaguePlayer) else source.path.name


def labels_of(*sources: PolicySource) -> list[str]:
    """As `label_of`; of those that share it, as much of the paths of their folders as tells them apart."""
    names = [label_of(source) for source in sources]
    labels = list(names)
    for name in {each for each in names if names.count(each) > 1}:
        same = [k for k, each in enumerate(names) if each == name]
        for k, label in zip(same, distinct_names(sources[k].path for k in same)):
            labels[k] = label
    return labels


def match_labels(first: Contestant, second: Contestant) -> list[str]:
    """As `labels_of`; of checkpoints of one run, equal ones too, with the checkpoint: `run@4` and `run@1`."""
    labels = labels_of(first[0], second[0])
    if labels[0] == labels[1] and (isinstance(first[0], Run) or first[1] != second[1]):
        return [f"{label}@{checkpoint}" for label, (_, checkpoint) in zip(labels, (first, second))]
    return labels


def league_rules(*sources: PolicySource) -> LeagueConfig:
    """The league of the first source that has one, with its sides and win thresholds; else the defaults."""
    for source in sources:
        if isinstance(source, LeaguePlayer):
            return source.league.config
        if isinstance(source, Run) and source.experiment.league is not None:
            return source.experiment.league
    rules = LEAGUES.get("self_play")()
    assert isinstance(rules, LeagueConfig)
    return rules


def match_sides(first: PolicySource, second: PolicySource) -> tuple[Side, ...]:
    """The sides of a match between two players. Raises ConfigError if the environment has fewer than two."""
    return sides_of(first.spec, league_rules(first, second))
