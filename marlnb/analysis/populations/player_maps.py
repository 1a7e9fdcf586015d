"""player_maps: which players of a league have similar results, which have similar units, and where the two disagree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.stats import rankdata

from marlnb.analysis.data.views import View
from marlnb.analysis.populations.player_maps_result import PlayerMaps
from marlnb.analysis.populations.round_robin import pair_match
from marlnb.analysis.representations.similarity import similarity_matrix
from marlnb.analysis.stats.bootstrap import MIN_RESAMPLES, p_value_above
from marlnb.analysis.stats.similarity_measures import SimilarityMethod
from marlnb.errors import AnalysisError
from marlnb.populations.matches.seating import labels_of
from marlnb.populations.ratings.elo import log_odds
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.training.policies.policy_source import PolicySource
from marlnb.values import checked_number

MIN_PLAYERS = 4
EPISODES = 40  # of each match


def player_maps(
    players: Sequence[PolicySource],
    recording: RecordingLike,
    *,
    site: str,
    agent: str,
    episodes: int = EPISODES,
    method: SimilarityMethod = "cka",
    n_permutations: int = 2000,
    seed: int = 0,
) -> PlayerMaps:
    """Compares players by their results against each other and by their units at the same time steps.

    Every pair of players plays a match (`marlnb.match`), so that all results count equally. Each player's networks
    receive the recorded observations, so that differences between units do not come from different states.

    Args:
        players: of a league, snapshots or runs, with one architecture.
        recording: whose observations all networks receive.
        site: whose units are compared.
        agent: whose observations.
        episodes: of each match.
        method: as of `marlnb.similarity`.
        n_permutations: orders of the players, for the p-value.
        seed: of the permutations.
    Raises:
        AnalysisError: fewer than 4 players, or one twice.
        ConfigError: two players cannot meet, or `n_permutations` or `seed` is out of range or no whole number.
    """
    recording = opened_recording(recording)
    names = labels_of(*players)
    _check(names, n_permutations, seed)
    scores = np.full((len(players), len(players)), 0.5)
    for i, j in combinations(range(len(players)), 2):
        rate = pair_match(players[i], players[j], episodes=episodes).win_rate.value
        scores[i, j], scores[j, i] = rate, 1 - rate
    views = [View(recording, site, agent, policy_source=player) for player in players]
    features = similarity_matrix(views, method=method, seed=seed)
    games = np.full(scores.shape, float(episodes)) * (1 - np.eye(len(players)))
    return compare_maps(
        names, log_odds(scores * games, games), features.values, site=f"{agent} {site}", method=method,
        n_permutations=n_permutations, seed=seed, warnings=features.warnings,
    )  # fmt: skip


def compare_maps(
    players: Sequence[str],
    advantages: np.ndarray,
    features: np.ndarray,
    *,
    site: str = "units",
    method: str = "cka",
    n_permutations: int = 2000,
    seed: int = 0,
    warnings: Sequence[str] = (),
) -> PlayerMaps:
    """The comparison of two maps of the same players.

    Two players have similar results if they have advantages over the same opponents: with A_ik the log-odds
    that i beats k,

        results_ij = sum_k A_ik A_jk / sqrt(sum_k A_ik^2 sum_k A_jk^2)

    Where A_ij = sin(a_i - a_j) for evenly spaced angles a, this is cos(a_i - a_j). The agreement of both maps is
    Spearman's correlation over pairs, and its p-value that of players in random order (Mantel 1967).

    Args:
        players: their names.
        advantages: A `[player, opponent]`, antisymmetric.
        features: similarity of units `[player, player]`.
        site: of the units, in words.
        method: of their similarity.
        n_permutations: random orders.
        seed: of them.
        warnings: about the features.
    Raises:
        AnalysisError: fewer than 4 players, or one twice.
        ConfigError: `n_permutations` or `seed` is out of range or no whole number.
    """
    _check(players, n_permutations, seed)
    norms = np.linalg.norm(advantages, axis=1)
    results = advantages @ advantages.T / np.maximum(np.outer(norms, norms), 1e-12)
    pairs = np.triu_indices(len(players), 1)
    agreement = _spearman(results[pairs], features[pairs])
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(players)) for _ in range(n_permutations)]
    shuffled = np.array([_spearman(results[np.ix_(order, order)][pairs], features[pairs]) for order in orders])
    flat = [name for name, norm in zip(players, norms) if norm < 1e-9]
    more = (
        (f"{', '.join(flat)} had the same result against every player, so their similarity to others is unknown",)
        if flat
        else ()
    )
    return PlayerMaps(
        players=tuple(players),
        site=site,
        method=method,
        results=results,
        features=features,
        agreement=agreement,
        p_value=p_value_above(abs(agreement), np.abs(shuffled)),
        n_permutations=n_permutations,
        disagreement=_disagreement(results, features, pairs),
        warnings=(*more, *warnings),
    )


def _disagreement(results: np.ndarray, features: np.ndarray, pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Rank of a pair's units minus rank of its results, divided by the number of other pairs; symmetric."""
    n = len(pairs[0])
    ranks = [rankdata(values[pairs].round(9)) for values in (features, results)]
    matrix = np.zeros_like(results)
    matrix[pairs] = (ranks[0] - ranks[1]) / max(n - 1, 1)
    return matrix + matrix.T


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    a, b = (rankdata(values.round(9)) for values in (a, b))
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float(a @ b) / size if size > 0 else 0.0


def _check(names: Sequence[str], n_permutations: int, seed: int) -> None:
    checked_number(n_permutations, int, "n_permutations", ge=MIN_RESAMPLES)
    checked_number(seed, int, "seed", ge=0)
    if len(names) < MIN_PLAYERS or len(set(names)) < len(names):
        raise AnalysisError(f"a comparison needs {MIN_PLAYERS} players or more, each once; got {', '.join(names)}")
