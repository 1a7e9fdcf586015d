"""Judges: how fit the members of a population are, from episodes with the same seeds for all.

    return     the mean undiscounted return of one agent
    win_rate   the share of episodes won against fixed opponents, a draw counting half
    nash       A p, with A the table 2 P[member beats member] - 1 and p its equilibrium of largest entropy

Elo is not used within the population, because it cannot represent cycles.
Source: nash: Balduzzi et al. 2018, section 5 (arXiv:1806.02643), computed by `marlnb.populations.ratings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from marlnb.algorithms.learner import load_weights, weights_of
from marlnb.envs.external.interface import ServedEnvs
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import ConfigError
from marlnb.evolution_config import RANDOM
from marlnb.experiment import Experiment
from marlnb.league_config import LEAGUES, LeagueConfig
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.models.policies.seated_policy import SeatedPolicy
from marlnb.populations.evolution.fitness import check_score, score
from marlnb.populations.league.matches import Match, check_competitive, outcomes_of, scores_of
from marlnb.populations.league.players import Side, columns_of, sides_to_take
from marlnb.populations.league.roster import sides_of
from marlnb.populations.ratings.nash_averaging import nash_averaging
from marlnb.specs import EnvSpec, GroupSpec, derive_seed
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.evaluation import score_policies
from marlnb.training.policies.evaluator import Evaluator
from marlnb.training.runs.run import Run

CHECKED_EPISODES = 16  # with random actions, before the training
Policies = Mapping[str, Policy]  # by group


@dataclass(frozen=True)
class Judgement:
    """How one member did.

    Attributes:
        score: what its fitness is the mean of.
        returns: by group, of each episode the mean return of one agent; of contests, by opponent, the outcomes.
        means: by group, the mean return of one agent; empty of contests, whose outcomes are no returns.
        seed: of the first episode.
        frames: that its evaluation took.
    """

    score: float
    returns: dict[str, list[float | None]]
    means: dict[str, float]
    seed: int
    frames: int


class Judge(Protocol):
    """Evaluates the members of a generation, by their places in the population.

    `check` raises ConfigError before a training run that would have no fitness, as far as random actions show it.
    """

    def check(self) -> None: ...
    def judge(self, members: Mapping[int, Policies]) -> list[Judgement]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


def build_judge(experiment: Experiment, spec: EnvSpec, folder: Path) -> Judge:
    """The judge that `evolution.fitness` names.

    Raises:
        ConfigError: there are no opponents, they do not fit or are not needed, or the environment has no sides; or the
            training ends at a return, which contests do not measure.
    """
    config = experiment.evolution
    assert config is not None
    if config.references and config.fitness != "win_rate":
        raise ConfigError(
            f"evolution.references needs evolution.fitness=win_rate; got {config.fitness}", at="evolution.references"
        )
    if config.fitness == "return":
        return ReturnJudge(experiment, spec, folder)
    if experiment.target_return is not None:
        raise ConfigError(
            f"target_return={experiment.target_return:g} cannot be reached with evolution.fitness={config.fitness}, "
            "where evaluations count games won, not returns; leave out target_return, or use evolution.fitness=return",
            at="target_return",
        )
    if config.fitness == "win_rate" and not config.references:
        raise ConfigError(
            "evolution.fitness=win_rate needs opponents that stay the same: folders of runs, or random, as "
            "evolution.references=[random,runs/old]",
            at="evolution.references",
        )
    return ContestJudge(experiment, spec, {name: _opponent(name, spec) for name in config.references})


class ReturnJudge:
    """Every member plays the evaluation episodes alone, each agent with its most likely action."""

    def __init__(self, experiment: Experiment, spec: EnvSpec, folder: Path) -> None:
        self.experiment, self.spec = experiment, spec
        self._evaluator = Evaluator(experiment, folder, ServedEnvs())

    def check(self) -> None:
        policies = {group.name: RandomPolicy(group) for group in self.spec.groups}
        check_score(self._evaluator.evaluate(policies, episodes=CHECKED_EPISODES), self.experiment)

    def judge(self, members: Mapping[int, Policies]) -> list[Judgement]:
        judgements = []
        for policies in members.values():
            evaluation = self._evaluator.evaluate(policies)
            table = evaluation.table
            value = score(evaluation, self.experiment)
            frames, means = int(table.length.sum()), evaluation.return_mean
            judgements.append(Judgement(value, table.to_json(), means, evaluation.seed, frames))
        return judgements

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def close(self) -> None:
        self._evaluator.close()


class ContestJudge:
    """Members meet fixed opponents, or each other if there are none, on every side; actions are sampled.

    Args:
        experiment: with an evolution.
        spec: of the environment.
        opponents: by name.
    """

    def __init__(self, experiment: Experiment, spec: EnvSpec, opponents: Mapping[str, Policies]) -> None:
        self.experiment, self.spec, self.opponents = experiment, spec, dict(opponents)
        rules = LEAGUES.get("self_play")()
        assert isinstance(rules, LeagueConfig)
        self.sides = sides_of(spec, rules)
        self.seed = derive_seed(experiment.seed, "evaluation")
        self._resources = ExitStack()
        self._env: VectorEnv | None = None
        self._undecided_matches: list[Match] | None = []  # until one shows that the sides compete

    def check(self) -> None: ...

    def judge(self, members: Mapping[int, Policies]) -> list[Judgement]:
        if self.opponents:
            return [self._against(policies, self.opponents, {}) for policies in members.values()]
        by_name = {f"member_{place}": policies for place, policies in members.items()}
        names = list(by_name)
        known: dict[tuple[str, str], list[float]] = {}
        judgements = []
        for name, policies in by_name.items():
            others = {other: opponent for other, opponent in by_name.items() if other != name}
            judgement = self._against(policies, others, {o: known[o, name] for o in others if (o, name) in known})
            known |= {(name, other): judgement.returns[other] for other in others}  # type: ignore[misc]
            judgements.append(judgement)
        table = np.zeros((len(members), len(members)))
        for row, judgement in enumerate(judgements):
            for other, outcomes in judgement.returns.items():
                table[row, names.index(other)] = 2 * float(np.mean(np.array(outcomes, float))) - 1
        ratings = nash_averaging((table - table.T) / 2).ratings
        return [_with_score(judgement, float(rating)) for judgement, rating in zip(judgements, ratings)]

    def state_dict(self) -> dict[str, Any]:
        """With the opponents' weights, since their runs may be trained further, and whether the sides compete."""
        opponents = [
            {group: weights_of(policy) for group, policy in policies.items()} for policies in self.opponents.values()
        ]
        return {"opponents": opponents, "competes": self._undecided_matches is None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises CheckpointError if an opponent has other networks now."""
        for (name, policies), weights in zip(self.opponents.items(), state.get("opponents", ())):
            for group, policy in policies.items():
                load_weights(policy, weights[group], f"group {group!r} of evolution.references={name}")
        if state.get("competes", False):
            self._undecided_matches = None

    def close(self) -> None:
        self._resources.close()

    def _against(
        self, policies: Policies, opponents: Mapping[str, Policies], known: Mapping[str, list[float]]
    ) -> Judgement:
        """The outcomes of one member; `known` are those of opponents who have met it already."""
        returns: dict[str, list[float | None]] = {}
        frames = 0
        for name, opponent in opponents.items():
            if name in known:
                returns[name] = [1 - outcome for outcome in known[name]]
                continue
            outcomes, played = self._meet(policies, opponent)
            returns[name], frames = list(outcomes), frames + played
        means = [np.array(outcomes, float).mean() for outcomes in returns.values()]
        win_rate = float(np.mean(means)) if means else 0.5  # all others diverged
        return Judgement(win_rate, returns, {}, self.seed, frames)

    def _meet(self, first: Policies, second: Policies) -> tuple[list[float], int]:
        """Scores of the first one, who takes each of `sides_to_take` in turn, and the frames that were played."""
        choices = sides_to_take(self.sides)
        episodes = max(1, self.experiment.evaluation_episodes // len(choices))
        if self._env is None:
            n_envs = min(self.experiment.n_envs, episodes)
            built = build_env(self.experiment, n_envs, device=self.experiment.device)
            self._env = self._resources.enter_context(closing(built))
        names = [side.name for side in self.sides]
        scores: list[float] = []
        frames = 0
        for taken in choices:
            seated = {group.name: _seated(group, taken, first, second) for group in self.spec.groups}
            table = score_policies(self._env, seated, episodes=episodes, seed=self.seed, explore=True)
            frames += int(table.length.sum())
            returns = np.stack([_return_of(each, table.returns, self.spec) for each in self.sides], axis=1)
            outcomes = np.array([outcomes_of(names, row) for row in returns.tolist()])
            scores += scores_of(outcomes, columns_of(self.sides, taken)).tolist()
            self._check_competitive(names, returns)
        return scores, frames

    def _check_competitive(self, names: Sequence[str], returns: np.ndarray) -> None:
        """Raises ConfigError if the sides' returns `[episode, side]` were equal or rose and fell together so far."""
        if self._undecided_matches is None:
            return
        players = dict.fromkeys(names, "")
        self._undecided_matches += [Match(0, "", "", players, tuple(row), (), 0) for row in returns.tolist()]
        remedy = "Use evolution.fitness=return"
        if check_competitive(self._undecided_matches, self.spec.name, remedy=remedy, at="evolution.fitness"):
            self._undecided_matches = None


def _with_score(judgement: Judgement, value: float) -> Judgement:
    return replace(judgement, score=value)


def _opponent(name: str, spec: EnvSpec) -> Policies:
    """A fixed opponent: the policies of a run's last checkpoint, or random ones."""
    if name == RANDOM:
        return {group.name: RandomPolicy(group) for group in spec.groups}
    run = Run.open(name)
    check_fit(run.spec, spec)
    return run.policies()


def _seated(group: GroupSpec, side: Side, first: Policies, second: Policies) -> Policy:
    """Who acts for a group when the first one takes a side, or several, and the second one all others."""
    mine = [k for k, agent in enumerate(group.agents) if agent in side.agents]
    others = [k for k in range(group.n_agents) if k not in mine]
    name = group.name
    if mine and others:
        return SeatedPolicy(group, [first[name], second[name]], [mine, others])
    return first[name] if mine else second[name]


def _return_of(side: Side, returns: Mapping[str, np.ndarray], spec: EnvSpec) -> np.ndarray:
    """`[episode]`: the mean return of the agents of a side."""
    columns = [
        returns[group.name][:, k]
        for group in spec.groups
        for k, agent in enumerate(group.agents)
        if agent in side.agents
    ]
    return np.mean(columns, axis=0)  # type: ignore[no-any-return]
