"""best_response: how much a player can lose, found by an opponent that learns against it alone for a stated time."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace

from marlnb.analysis.populations.best_response_result import BestResponse
from marlnb.analysis.populations.round_robin import pair_match
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.codec import to_json
from marlnb.config import AlgorithmConfig
from marlnb.errors import AnalysisError, NoExactValueError, unknown
from marlnb.experiment import Experiment
from marlnb.populations.builders.best_response import RESPONSE, BestResponseConfig
from marlnb.populations.exact_evaluation import perfect_response
from marlnb.populations.league.roster import is_symmetric
from marlnb.populations.matches.seating import label_of, league_rules, match_sides, player_side
from marlnb.populations.run_league import LeaguePlayer
from marlnb.populations.training.league.player_experiment import league_experiment
from marlnb.training.learners import checkpoint_experiment
from marlnb.training.policies.policy_source import as_policy_source
from marlnb.training.runs.files import is_run
from marlnb.training.runs.run import Run
from marlnb.training.train import train

FOLDER = "best_responses"
EPISODES = 400


def best_response(
    player: Run | LeaguePlayer | str | os.PathLike[str],
    *,
    env_steps: int,
    side: str | None = None,
    algorithm: AlgorithmConfig | None = None,
    episodes: int = EPISODES,
    seed: int = 0,
    run: str | os.PathLike[str] | None = None,
    progress: bool = True,
    trust: bool = False,
) -> BestResponse:
    """Trains a new opponent against a fixed player alone, and measures what it wins in new games.

    The opponent starts from fresh weights, and has the player's networks and algorithm; of a run with a `schedule`,
    with the options of its beginning. What it wins is a lower bound of what the player can lose: longer training,
    or another algorithm, may find more. So compare players by responses of equal `env_steps`, seeds and algorithms
    only.

    Args:
        player: a run or its folder, or a player or snapshot of a league. Of a population, its fittest member; of a
            league, the first player of each side.
        env_steps: environment steps that the opponent learns from; rounded up to whole iterations.
        side: the player's, where sides have players of their own and a run acts for all of them. Where any player takes
            any seat, it is None.
        algorithm: the opponent's; None: the player's.
        episodes: of the games in which it is measured.
        seed: of the opponent's weights and games.
        run: folder of the opponent's training; None: in `best_responses/` in the player's folder, one for each
            `env_steps`, `side`, `algorithm` and `seed`. A complete training run is not repeated, and an interrupted one
            is continued. If the player has learned more, a new one begins.
        progress: show the progress of training and games.
        trust: allow the code that the player's folder names.
    Raises:
        AnalysisError: the player has no experiment, no side is given where one is needed, or one where none is.
        ConfigError: the environment has no sides that compete.
    """
    fixed = as_policy_source(player, trust=trust)
    if not isinstance(fixed, (Run, LeaguePlayer)):
        raise AnalysisError(
            f"a best response needs a run, or a player of a league; got {type(fixed).__name__}. The fittest member "
            "of a population is a run after run.population.winner(path)"
        )
    side = _side(fixed, side)
    base = _own_experiment(fixed)
    experiment = replace(_experiment(fixed, base, algorithm, side), frames=env_steps, seed=seed)
    learned_by = [algorithm.name] if algorithm is not None else _algorithms(fixed, base, side)
    parts = [*([side] if side else []), str(env_steps), *learned_by, str(seed), fixed.origin().sha256[:8]]
    if algorithm is not None:
        parts.append(hashlib.sha256(json.dumps(to_json(algorithm), sort_keys=True).encode()).hexdigest()[:8])
    folder = fixed.path / FOLDER / "-".join(parts) if run is None else run
    if run is None:
        experiment = _with_stored_path(experiment, folder)
    trained = train(experiment, folder, resume=True, progress=progress)
    response = next(each for each in trained.league.players.values() if each.player.role == RESPONSE)
    alone = [each.name for each in match_sides(response, fixed) if response.player.takes(each.name)]
    games = pair_match(response, fixed, episodes=episodes, sides=alone, progress=progress)
    returns = paired_test(games.episodes["return_a"].to_numpy())
    return BestResponse(
        player=label_of(fixed),
        env_steps=int(trained.status()["frames"]),
        algorithm=" and ".join(learned_by),
        seed=seed,
        win_rate=games.win_rate,
        mean_return=returns.mean,
        low=returns.low,
        high=returns.high,
        exact=_exact(fixed, side),
        both_sides=len(games.seatings) > 1,
        games=games,
        run=trained,
        warnings=games.warnings,
    )


def _own_experiment(fixed: Run | LeaguePlayer) -> Experiment:
    """What a player learned with; of a league's run the players that act for it, of a population's the fittest."""
    experiment = fixed.experiment
    if experiment.league is not None:
        experiment = league_experiment(experiment.loaded(env=False), fixed.spec)
    if experiment.evolution is not None:
        state = fixed.checkpoint().load()  # type: ignore[union-attr]
        experiment = checkpoint_experiment(experiment, fixed.spec, state)
    return experiment.at_frames(0)


def _experiment(
    fixed: Run | LeaguePlayer, base: Experiment, algorithm: AlgorithmConfig | None, side: str
) -> Experiment:
    """The training of the opponent: the player's own, without its limits, in a league with the fixed player."""
    rules, of_league = league_rules(fixed), isinstance(fixed, LeaguePlayer)
    league = BestResponseConfig(
        run=str((fixed.league.run if of_league else fixed).path.absolute()),  # type: ignore[union-attr]
        player=fixed.id if of_league else "",  # type: ignore[union-attr]
        side=side,
        sides=rules.sides,
        win_threshold=rules.win_threshold,
        win_margin=rules.win_margin,
    )
    return replace(
        base.limited_by_frames(),
        league=league,
        evolution=None,
        algorithms={**base.algorithms, **({} if algorithm is None else {RESPONSE: algorithm})},
        evaluate_every=0,
        tuned=None,
    )


def _exact(fixed: Run | LeaguePlayer, side: str) -> float | None:
    """The mean return of a perfect response; None: the player has no exact value."""
    try:
        return perfect_response(fixed, side)
    except NoExactValueError:
        return None


def _with_stored_path(experiment: Experiment, folder: str | os.PathLike[str]) -> Experiment:
    """With the player's path that a run in this folder has: an earlier one, if the player's folder was moved."""
    stored = Run.open(folder).experiment.league if is_run(folder) else None
    if not isinstance(stored, BestResponseConfig) or not isinstance(experiment.league, BestResponseConfig):
        return experiment
    return replace(experiment, league=replace(experiment.league, run=stored.run))


def _algorithms(fixed: Run | LeaguePlayer, base: Experiment, side: str) -> list[str]:
    """The names of the algorithms by which the opponent learns: those of the groups for which it acts."""
    agents = {agent for each in match_sides(fixed, fixed) if each.name != side for agent in each.agents}
    groups = [group.name for group in fixed.spec.groups if agents & set(group.agents)]
    return list(dict.fromkeys(base.algorithm_of(group).name for group in groups))


def _side(fixed: Run | LeaguePlayer, side: str | None) -> str:
    """The fixed player's side; empty where any player takes any seat."""
    sides = match_sides(fixed, fixed)
    names = [each.name for each in sides]
    if is_symmetric(sides, fixed.spec):
        if side is not None:
            raise AnalysisError(
                f"any player of {fixed.spec.name} takes any of {', '.join(names)}, so it has no side; got "
                f"side={side!r}; valid: None"
            )
        return ""
    chosen = player_side(fixed) or side
    if chosen not in names:
        if side is None:
            raise AnalysisError(
                f"{label_of(fixed)} acts for all sides of {fixed.spec.name}; choose the fixed one, such as "
                f"side={names[-1]!r}; valid: {', '.join(names)}"
            )
        raise AnalysisError(unknown(f"side of {fixed.spec.name}", side, names))
    return str(chosen)
