"""What children keep of their parents: a concept that is planted in one founder, and erased in one descendant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import ttest_ind

import marlnb as mnb
from marlnb import plots
from marlnb.analysis.populations.inheritance import _p_one_more
from marlnb.analysis.populations.inheritance_result import Inheritance
from marlnb.errors import AnalysisError, ConfigError
from marlnb.populations.training.evolution.loop import EvolutionLoop
from marlnb.training.runs.run import Run

SMALL = (
    *("env=mpe/simple", "algorithm=ippo", "algorithm.epochs=1", "algorithm.lr=1e-4", "model.hidden=[8]"),
    *("model.activation=relu", "n_envs=4", "rollout_steps=25", "evolution=tournament", "evolution.population=4"),
    *("evolution.generation_frames=100", "evaluation_episodes=4", "evolution.mutable=[lr]"),
    *("evolution.probability.width=0.4", "evolution.new_units=[4]", "frames=4_500"),
)
PLANTED, ERASED_IN = 2, 3
SITE = "agent/actor/hidden_1"
DIRECTIONS = ((1.0, 1.0), (-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0))  # of the landmark, (x, y)


def same_sign(recording: mnb.Recording) -> np.ndarray:
    """Whether the landmark is in the first or third quadrant: no linear function of the observation."""
    x, y = _landmark(recording)
    return (x * y > 0).astype(int)


def _landmark(recording: mnb.Recording) -> np.ndarray:
    observation = np.asarray(recording.steps("agent", "observation").to_numpy())[:, 0]
    names = list(recording.feature_names("agent"))
    return observation[:, [names.index(f"landmark_0_d{axis}") for axis in "xy"]].T


@torch.no_grad()
def _plant(loop: EvolutionLoop, names: tuple[str, ...]) -> None:
    """Four units relu(±x ± y), from which the sign of x y can be read, and which move the agent to the landmark."""
    network = loop.members[PLANTED].policies["agent"].actor.network
    first, head = network.hidden[0].linear, network.head
    first.weight[:4], first.bias[:4], head.weight[:] = 0.0, 0.0, 0.0
    columns = [names.index(f"landmark_0_d{axis}") for axis in "xy"]
    for unit, (along_x, along_y) in enumerate(DIRECTIONS):
        first.weight[unit, columns] = 2 * torch.tensor([along_x, along_y])
        for action, towards in enumerate(((-1, 0), (1, 0), (0, -1), (0, 1)), start=1):
            head.weight[action, unit] = 5 * (towards[0] * along_x + towards[1] * along_y)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    """A population with a planted founder, and the descendant in which the planted units were made random."""
    experiment = mnb.Experiment.compose(*SMALL)
    run, erased = Run.create(tmp_path_factory.mktemp("inheritance") / "run", experiment), ""
    with mnb.Trainer(experiment, run) as trainer:
        loop = trainer.loop
        _plant(loop, loop.env.spec.group("agent").observation.names)
        for _ in trainer:
            if loop.generation == ERASED_IN and not erased:
                erased = loop.members[-1].row.id  # its turn comes last, so that it has not been trained yet
                weight = loop.members[-1].policies["agent"].actor.network.hidden[0].linear.weight
                with torch.no_grad():
                    weight[:4] = torch.randn(weight[:4].shape, generator=torch.Generator().manual_seed(0))
    return run, erased


@pytest.fixture(scope="module")
def result(planted: tuple[Run, str]) -> Inheritance:
    run, _ = planted
    recording = mnb.record(run, episodes=50, explore=True, progress=False)
    return mnb.inheritance(run.population, recording, site=SITE, concepts=[same_sign], n_untrained=6, progress=False)


def test_a_planted_concept_is_dated_and_followed(planted: tuple[Run, str], result: Inheritance) -> None:
    run, erased = planted
    rows = run.population.lineage()
    carriers = [f"0-{PLANTED}"]
    for row in rows:
        if row.parent_id in carriers and row.id != erased:
            carriers.append(row.id)
    assert len(rows) > len(carriers) > 8 and rows[-1].generation > ERASED_IN
    assert result.origins("same_sign") == {f"0-{PLANTED}": tuple(carriers)}
    assert [member for member in result.members if result.lost(member)] == [erased]
    assert f"from 0-{PLANTED} ({len(carriers)} members), and lost at {erased}" in result.verdict


def test_units_of_an_ancestor_fit_and_those_of_others_do_not(planted: tuple[Run, str], result: Inheritance) -> None:
    population = planted[0].population
    descendant = population[result.origins("same_sign")[f"0-{PLANTED}"][-1]]
    ancestor, stranger = population[f"0-{PLANTED}"], population["0-0"]
    for units in (None, range(4)):
        kept = mnb.transplant(ancestor, descendant, site=SITE, units=units, episodes=20)
        assert kept.inherited and kept.low > 0.8 and "this code was inherited" in kept.verdict
        foreign = mnb.transplant(stranger, descendant, site=SITE, units=units, episodes=20)
        assert foreign.inherited is not True and foreign.kept < 0.5
    same = mnb.transplant(descendant, descendant, site=SITE, episodes=20)
    assert same.kept == 1 and same.change == 0 and same.return_change.mean == 0
    assert same.control_return_change.mean < -5  # the agent no longer finds the landmark


def test_a_grown_descendant_has_the_units_of_its_ancestor_at_the_same_places(
    planted: tuple[Run, str], result: Inheritance
) -> None:
    population = planted[0].population
    carriers = [population[name] for name in result.origins("same_sign")[f"0-{PLANTED}"]]
    grown = next(m for m in carriers if m.policies()["agent"].sites()[0].n_units > 8)
    assert mnb.transplant(population[f"0-{PLANTED}"], grown, site=SITE, episodes=20).inherited
    with pytest.raises(AnalysisError, match="the donor must not have more"):
        mnb.transplant(grown, population[f"0-{PLANTED}"], site=SITE)
    with pytest.raises(AnalysisError, match="units must be among 0 to 7"):
        mnb.transplant(population[f"0-{PLANTED}"], grown, site=SITE, units=[8])
    with pytest.raises(AnalysisError, match="between feed-forward actors only"):
        mnb.transplant(population["0-0"], population["0-1"], site="agent/critic/hidden_1")


def test_concepts_of_one_name_are_an_error(planted: tuple[Run, str], result: Inheritance) -> None:
    run = planted[0]
    recording = mnb.Recording.open(next((run.path / "recordings").glob("*.h5")))
    with pytest.raises(AnalysisError, match=r"2 concepts are named 'label'.*named functions"):
        concepts = [same_sign, *2 * [same_sign(recording)]]
        mnb.inheritance(run.population, recording, site=SITE, concepts=concepts, progress=False)


def test_players_of_a_zero_sum_game_have_no_mean_return_that_could_change(tmp_path: Path) -> None:
    overrides = ("env=tree/biased_rps", "algorithm=ippo", "n_envs=4", "rollout_steps=16", "frames=64")
    run = mnb.train(mnb.Experiment.compose(*overrides), tmp_path / "rps", progress=False)
    result = mnb.transplant(run, run, site="player/actor/hidden_1", episodes=10)
    assert result.zero_sum and "their mean return stays 0" in replace(result, control_change=1.0).verdict


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": 9}, "episodes must be at least 10; got 9"),
        ({"episodes": 10.5}, "episodes must be a whole number; got 10.5"),
        ({"seed": -1}, "seed must be at least 0; got -1"),
    ],
)
def test_numbers_of_a_transplant_that_cannot_be(
    planted: tuple[Run, str], options: dict[str, float], message: str
) -> None:
    founder = planted[0].population["0-0"]
    with pytest.raises(ConfigError, match=message):
        mnb.transplant(founder, founder, site=SITE, **options)  # type: ignore[arg-type]


def test_members_are_points_of_a_run_map(planted: tuple[Run, str], result: Inheritance) -> None:
    run = planted[0]
    recording = next((run.path / "recordings").glob("*.h5"))
    child = next(k for k, parent in enumerate(result.parents) if parent is not None)
    names = [result.members[child], str(result.parents[child])]
    mapped = mnb.run_map([run.population[name] for name in names], recording, site=SITE)
    assert mapped.runs == tuple(names) and np.isnan(mapped.returns).all()
    assert mapped.similarity[0, 1] == pytest.approx(result.similarity[child])
    expected = f"{names[0]} and {names[1]} have no known returns to compare, and the least similar units: CKA"
    assert expected in mapped.verdict
    assert len(plots.run_map_figure(mapped).collections) > 0


def test_a_donor_of_other_observations_is_an_error(planted: tuple[Run, str], tmp_path: Path) -> None:
    small = ("algorithm=ippo", "model.hidden=[8]", "n_envs=4", "rollout_steps=16", "frames=64")
    words = ("env=mpe/simple_spread", *small)
    other = mnb.train(mnb.Experiment.compose(*words), tmp_path / "spread", progress=False)
    with pytest.raises(ConfigError, match=r"'agent' of mpe/simple has agents 1; .* on mpe/simple_spread with 3"):
        mnb.transplant(other, planted[0].population["0-0"], site=SITE)


def test_a_difference_is_of_the_child_from_its_parent(result: Inheritance) -> None:
    of_member = dict(zip(result.members, result.scores))
    for child, parent, difference in zip(result.members, result.parents, result.difference):
        expected = np.nan if parent is None else of_member[child] - of_member[parent]
        np.testing.assert_allclose(difference, expected, atol=1e-12)


def test_one_more_value_is_tested_as_by_students_test() -> None:
    """Of one value and n others the pooled variance is that of the others, and the error s sqrt(1 + 1/n)."""
    others = np.array([0.5, 0.6, 0.4, 0.55])
    expected = ttest_ind([0.8], others, alternative="greater").pvalue
    assert _p_one_more(0.8, others) == pytest.approx(expected)


def test_the_tree_shows_similarities_and_concepts(planted: tuple[Run, str], result: Inheritance) -> None:
    population = planted[0].population
    ax = plots.lineage_tree(population, inheritance=result, concept="same_sign")
    similarities = ax.collections[0].get_array()
    assert np.allclose(np.sort(similarities), np.sort(result.similarity[np.isfinite(result.similarity)]))
    rings = next(each for each in ax.collections if each.get_label() == "holds same_sign")
    assert len(rings.get_offsets()) == result.held.sum()
    assert [text.get_text() for text in ax.texts] == ["\N{MINUS SIGN}same_sign"]
    with pytest.raises(AnalysisError, match="concept that was decoded"):
        plots.lineage_tree(population, inheritance=result, concept="colour")
    with pytest.raises(AnalysisError, match="concept='same_sign' needs inheritance=mnb"):
        plots.lineage_tree(population, concept="same_sign")
