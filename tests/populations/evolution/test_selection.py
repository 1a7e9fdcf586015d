"""Selections against probabilities worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from marlnb.errors import ConfigError
from marlnb.populations.counter_draws import generator
from marlnb.populations.evolution.members import Scored
from marlnb.populations.selection.tournament import TournamentConfig


def _members(*fitness: float) -> list[Scored]:
    return [Scored(place, value) for place, value in enumerate(fitness)]


@pytest.mark.parametrize(
    ("n", "size", "expected"),
    [
        (4, 2, [7 / 16, 5 / 16, 3 / 16, 1 / 16]),
        (8, 3, [0.330, 0.248, 0.178, 0.119, 0.072, 0.037, 0.014, 0.002]),
    ],
)
def test_a_tournament_is_won_with_the_known_probabilities(n: int, size: int, expected: list[float]) -> None:
    config = TournamentConfig(population=n, size=size, elites=0)
    members = _members(*range(n, 0, -1))  # place 0 is the fittest
    winners = [s.parent for k in range(1000) for s in config.select(generator(0, "select", "", k), members)]
    counts, probabilities = np.bincount(winners, minlength=n), np.array(expected) / sum(expected)
    assert chisquare(counts, probabilities * len(winners)).pvalue > 0.01


def test_elites_keep_their_places_and_are_not_mutated() -> None:
    config = TournamentConfig(population=4, elites=2)
    for number in range(20):
        successors = config.select(generator(0, "select", "", number), _members(1.0, 4.0, 2.0, 3.0))
        assert [(s.parent, s.mutate) for s in (successors[1], successors[3])] == [(1, False), (3, False)]
        assert successors[0].mutate and successors[2].mutate


def test_ties_are_broken_by_chance() -> None:
    config = TournamentConfig(population=2)
    elites = set()
    for number in range(20):
        successors = config.select(generator(0, "select", "", number), _members(0.0, 0.0))
        elites.add([s.mutate for s in successors].index(False))
    assert elites == {0, 1}


def test_elites_leave_somebody_to_select() -> None:
    with pytest.raises(ConfigError, match="at most elites=3"):
        TournamentConfig(population=4, elites=4)
