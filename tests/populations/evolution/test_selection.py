"""Selections against probabilities worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from marlnb.config import SearchRange
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.populations.counter_draws import generator
from marlnb.populations.evolution.members import Scored
from marlnb.populations.selection.controls import MutateOnlyConfig, RandomSearchConfig, SelectOnlyConfig
from marlnb.populations.selection.mf_pbt import MFPBTConfig
from marlnb.populations.selection.pbt import PBTConfig
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


def test_no_member_that_diverged_wins_a_tournament() -> None:
    config = TournamentConfig(population=3, elites=2)
    for number in range(40):
        successors = config.select(generator(0, "select", "", number), _members(-np.inf, 1.0, -np.inf))
        assert [(s.parent, s.mutate) for s in successors] == [(1, True), (1, False), (1, True)]


def test_ties_are_broken_by_chance() -> None:
    config = TournamentConfig(population=2)
    elites = set()
    for number in range(20):
        successors = config.select(generator(0, "select", "", number), _members(0.0, 0.0))
        elites.add([s.mutate for s in successors].index(False))
    assert elites == {0, 1}


def test_elites_leave_a_member_to_select() -> None:
    with pytest.raises(ConfigError, match="at most elites=3"):
        TournamentConfig(population=4, elites=4)


def test_pbt_replaces_the_worst_by_the_best_if_the_gap_is_large_enough() -> None:
    members = _members(5.0, 1.0, 4.0, 3.0, 2.0)
    successors = PBTConfig(population=5, share=0.2, gap=3.9).select(generator(0, "select", "", 0), members)
    assert [s.parent for s in successors] == [0, 0, 2, 3, 4] and [s.mutate for s in successors].index(True) == 1
    successors = PBTConfig(population=5, share=0.2, gap=4.0).select(generator(0, "select", "", 0), members)
    assert [s.parent for s in successors] == [0, 1, 2, 3, 4] and not any(s.mutate for s in successors)
    kept = PBTConfig(population=5, share=0.2, weights_only=True).select(generator(0, "select", "", 0), members)
    assert (kept[1].parent, kept[1].options_of) == (0, 1)


def test_pbt_copies_each_of_the_best_with_equal_probability() -> None:
    config, members = PBTConfig(population=5, share=0.4), _members(5.0, 4.0, 3.0, 2.0, 1.0)
    parents = [config.select(generator(0, "select", "", number), members)[4].parent for number in range(200)]
    assert set(parents) == {0, 1} and chisquare(np.bincount(parents)).pvalue > 0.01


@pytest.mark.parametrize(
    ("copies", "expected"),
    [("nothing", 0.39), ("if better", 0.39), ("all, times 0.8 or 1.2", 0.39), ("all, added", 1.20), ("weights", 1.20)],
)
def test_the_toy_of_population_based_training(copies: str, expected: float) -> None:
    """Q = 1.2 - a^2 - b^2; two workers climb a surrogate 1.2 - h0 a^2 - h1 b^2 with h = (1, 0) and (0, 1).

    The two are tied exactly, and a factor leaves a 0 where it is.
    """
    rng = generator(0, "toy", "", 0)
    theta, h, best = np.full((2, 2), 0.9), np.eye(2), -np.inf
    config = PBTConfig(population=2, share=0.5, weights_only=copies == "weights")
    for step in range(1, 301):
        theta = theta - 2 * 0.02 * h * theta
        quality = 1.2 - (theta**2).sum(1)
        best = max(best, quality.max())
        if step % 10 or copies == "nothing":
            continue
        if copies == "if better":
            successors = config.select(rng, _members(*quality))
        else:  # a tie is broken by chance
            successors = config.select(rng, _members(*quality + 1e-9 * rng.random(2)))
        theta = theta[[s.parent for s in successors]]
        if copies.startswith("all"):
            h = h[[s.parent for s in successors]]
            replaced = [s.mutate for s in successors]
            if copies.endswith("1.2"):
                h[replaced] *= rng.choice([0.8, 1.2], size=h[replaced].shape)
            else:
                h[replaced] = np.clip(h[replaced] + rng.normal(0, 0.5, size=h[replaced].shape), 0, 1)
    assert best == pytest.approx(expected, abs=0.01)


def test_brackets_of_multi_frequency_pbt() -> None:
    config = MFPBTConfig()
    assert (config.population, config.periods) == (16, (1, 5))
    fitness = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, *(8.5, 7.5, 6.5, 5.5, 4.5, 3.5, 2.5, 1.5)]
    early = [Scored(place, value, generation=0) for place, value in enumerate(fitness)]
    successors = config.select(generator(0, "select", "", 0), early)
    assert [s.parent for s in successors[8:]] == list(range(8, 16))  # the slow ones are not due
    assert [s.parent for s in successors[:4]] == [0, 1, 8, 9]  # two winners, two migrants
    assert not any(s.mutate for s in successors[:4]) and successors[2].options_of is None
    assert all(s.mutate and s.parent in (0, 1) for s in successors[4:8])
    due = [Scored(place, value, generation=4) for place, value in enumerate(fitness)]
    slow = config.select(generator(0, "select", "", 4), due)[8:]
    assert [s.parent for s in slow[:4]] == [8, 9, 0, 1]
    assert [s.options_of for s in slow[:4]] == [None, None, 8, 8]  # migrants from the faster ones: weights only


def test_no_migrant_is_less_fit_than_the_member_it_replaces() -> None:
    due = [Scored(place, 16.0 - place, generation=4) for place in range(16)]  # all of the fast ones are fitter
    successors = MFPBTConfig().select(generator(0, "select", "", 4), due)
    assert [s.parent for s in successors[:4]] == [0, 1, 2, 3] and all(s.parent in (0, 1) for s in successors[4:8])
    assert [s.parent for s in successors[8:12]] == [8, 9, 0, 1]


def test_controls() -> None:
    members = _members(1.0, 2.0, 3.0)
    for config in (RandomSearchConfig(population=3), MutateOnlyConfig(population=3)):
        successors = config.select(generator(0, "select", "", 0), members)
        assert [s.parent for s in successors] == [0, 1, 2]
        assert [s.mutate for s in successors] == (
            [False] * 3 if config.name == "random_search" else [False, True, True]
        )
    selected = SelectOnlyConfig(population=3, size=3).select(generator(0, "select", "", 0), members)
    assert selected[2].parent == 2 and not any(s.mutate for s in selected)


def test_agilerl_has_the_settings_of_its_tutorial() -> None:
    """The numbers are those of AgileRL 2.58.0's tutorial on MATD3; `updates` is its learn_step turned around."""
    experiment = Experiment.compose("env=mpe/simple_speaker_listener", "algorithm=matd3", "evolution=agilerl")
    config, algorithm = experiment.evolution, experiment.algorithm
    assert isinstance(config, TournamentConfig)
    assert (config.population, config.size, config.elites, config.window) == (4, 2, 1, 1)
    assert (config.grow, config.shrink, config.sigma, config.change) == (1.2, 0.8, 0.1, "one")
    shares = config.probability
    assert shares.none == shares.parameters == shares.hyperparameters == 0.2 and shares.activation == 0
    assert shares.width + shares.depth == pytest.approx(0.2) and shares.depth / 0.2 == pytest.approx(0.2)
    assert config.mutable_of(algorithm) == ("lr", "lr_critic", "batch_size", "updates")
    anything = SearchRange("log", 0.0, 1.0)
    assert config.bounds_of("lr", anything) == config.bounds_of("lr_critic", anything) == (1e-4, 1e-2)
    assert config.bounds_of("batch_size", anything) == (8, 512)
    assert config.factors_of("updates") == pytest.approx((1 / 0.75, 1 / 1.5))


def test_the_best_of_noiseless_fitness_never_falls() -> None:
    rng, config = generator(0, "test", "", 0), TournamentConfig(population=6)
    values, best = rng.normal(size=6), -np.inf
    for number in range(50):
        assert values.max() >= best
        best = values.max()
        successors = config.select(generator(0, "select", "", number), _members(*values))
        values = np.array([values[s.parent] + (rng.normal() if s.mutate else 0.0) for s in successors])


def test_pbt_follows_an_optimum_that_no_constant_reaches() -> None:
    """Ray's triangle wave, shortened: of each step, the learning rate that gains most rises and falls.

    A step at accuracy y gains up to 0.1 if the rate is the best one of this moment, and less with the square of its
    distance. Every member takes 200 steps. The best constant rate, found by trying 200, is compared at equal steps.
    """
    n_members, n_steps = 8, 200

    def gain(rates: np.ndarray, step: int) -> np.ndarray:
        best = 1.0 - abs((step % 100) - 50) / 50  # 0 to 1 and back
        return 0.1 - 0.4 * (rates - best) ** 2

    constants = np.linspace(0.0, 1.0, 200)
    best_constant = sum(gain(constants, step) for step in range(n_steps)).max()
    scores = []
    for seed in range(10):
        rng = generator(seed, "wave", "", 0)
        config = PBTConfig(population=n_members, share=0.25)
        rates, quality = rng.random(n_members), np.zeros(n_members)
        for step in range(n_steps):
            quality = quality + gain(rates, step)
            if step % 4 == 3:
                successors = config.select(rng, _members(*quality))
                parents = [s.parent for s in successors]
                noise = rng.normal(0.0, 0.15, n_members) * np.array([s.mutate for s in successors])
                quality, rates = quality[parents], np.clip(rates[parents] + noise, 0.0, 1.0)
        scores.append(quality.max())
    assert np.median(scores) > best_constant
