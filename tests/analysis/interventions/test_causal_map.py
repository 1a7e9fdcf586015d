"""causal_map: equal to intervene unit by unit, in one rollout or in turn, and its verdict, table and figure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from marlnb import plots
from marlnb.analysis.interventions.causal_map import causal_map
from marlnb.analysis.interventions.causal_map_result import CausalMap
from marlnb.analysis.interventions.intervene import intervene
from marlnb.analysis.stats.corrections import holm
from marlnb.errors import AnalysisError, ConfigError, SiteError
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.edits import Ablate, Noise, Scale
from marlnb.models.hooks.edits_patch import Patch
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.training.runs.run import Run
from tests.recording.runs import LivesConfig, make_run

TALKERS = Path(__file__).parents[3] / "data" / "speaker_listener"
LISTENER = "listener/actor/hidden_1"


@pytest.fixture(scope="module")
def talkers() -> Run:
    return Run.open(TALKERS)


@pytest.fixture(scope="module")
def mapped(talkers: Run) -> CausalMap:
    return causal_map(talkers, LISTENER, episodes=12)


def assert_equal_to_intervene(run: Run, result: CausalMap, edit: Edit, unit: int, site: str, episodes: int) -> None:
    alone = intervene(run, edit, episodes=episodes)
    assert len(alone.effects) > 5
    for expected in alone.effects:
        effect = result.of(unit, expected.outcome, expected.who, site=site)
        for name in ("before", "after", "difference", "low", "high", "detectable"):
            number = pytest.approx(getattr(expected, name), abs=2e-5, nan_ok=True)
            assert getattr(effect, name) == number, (name, effect)
        assert (effect.n, effect.units, effect.edited) == (expected.n, expected.units, expected.edited)
        assert (effect.p_value is None) == (expected.p_value is None)


@pytest.mark.parametrize("unit", [0, 3, 54])
def test_each_unit_has_the_effects_that_intervene_measures(talkers: Run, mapped: CausalMap, unit: int) -> None:
    assert mapped.settings["one_rollout"] and len(mapped.units) == 64
    assert_equal_to_intervene(talkers, mapped, Ablate(LISTENER, units=(unit,)), unit, LISTENER, 12)


@pytest.mark.parametrize(
    ("edit", "n_envs"),
    [
        (Scale("listener/observation", 0.25, units=(1, 4)), 8),  # two episodes in each of three rollouts
        (Ablate(LISTENER, 0.5, units=(1, 2), t=(2, None)), 8),
        (Noise(LISTENER, 0.7, units=(1, 4), seed=3), 1000),  # one rollout: the noise is drawn for a batch of episodes
    ],
)
def test_any_edit_of_units_can_be_mapped(talkers: Run, edit: Edit, n_envs: int) -> None:
    result = causal_map(talkers, edit, episodes=5, n_envs=n_envs)
    assert result.settings["n_envs"] <= n_envs and [each.unit for each in result.units] == list(edit.units or ())
    assert_equal_to_intervene(talkers, result, replace(edit, units=(1,)), 1, edit.site, 5)


def test_a_glob_maps_the_units_of_several_sites(talkers: Run) -> None:
    several = causal_map(talkers, Ablate("*/actor/hidden_2", units=(3, 9)), episodes=4)
    assert several.sites == ("speaker/actor/hidden_2", "listener/actor/hidden_2") and len(several.units) == 4
    site = several.sites[0]
    assert_equal_to_intervene(talkers, several, Ablate(site, units=(9,)), 9, site, 4)
    with pytest.raises(AnalysisError, match="several sites"):
        several.of(3, "length")


def test_other_environments_play_the_units_in_turn(tmp_path: Path) -> None:
    """Recurrent, with episodes of different lengths, action masks, and agents that die; also with sampled actions."""
    run = make_run(tmp_path / "lives", LivesConfig(), GRUConfig(hidden=(), recurrent_size=4), MLPConfig(hidden=(4,)))
    site = run.policies()["a"].sites()[0].name
    for explore in (False, True):
        result = causal_map(run, site, episodes=3, seed=1000, explore=explore)
        assert not result.settings["one_rollout"] and [each.unit for each in result.units] == [0, 1, 2, 3]
        alone = intervene(run, Ablate(site, units=(2,)), episodes=3, seed=1000, explore=explore)
        for expected in alone.effects:
            assert result.of(2, expected.outcome, expected.who).difference == pytest.approx(
                expected.difference, abs=1e-5, nan_ok=True
            )


def test_p_values_are_corrected_for_all_units_and_outcomes(mapped: CausalMap) -> None:
    table = mapped.table()
    single = table[table.p_value.notna() & ~((table.outcome == "return") & table.who.isin(["speaker", "listener"]))]
    np.testing.assert_allclose(single.p_holm, holm(single.p_value.to_numpy()))  # one agent a group: tested once
    assert len(table) == 64 * len(mapped.units[0].effects)


def test_the_result_opens_with_its_verdict(mapped: CausalMap) -> None:
    assert repr(mapped).startswith(f"ablate of each of 64 units of {LISTENER}, one at a time: ")
    assert "Holm over all units and outcomes" in mapped.verdict and "12 episodes a unit" in mapped.verdict
    assert mapped.verdict.count("return of") == 1 and "the return of speaker and listener" in mapped.verdict
    assert len(repr(mapped.units)) < 64 * 60  # not each of its effects
    assert "the first 12 of 64 rows" in mapped._repr_html_()
    changes = [abs(mapped.of(int(unit), "return", "listener").difference) for unit in mapped._repr_table().unit]
    assert changes == sorted(changes, reverse=True)
    json.dumps(mapped.to_json(), allow_nan=False)
    assert any("only 12 episodes" in warning for warning in mapped.warnings)


def test_the_figure_has_a_point_for_each_unit(mapped: CausalMap) -> None:
    assert plots.causal_map(mapped, "length").get_title(loc="left").endswith(": length of the episode")
    ax = plots.causal_map(mapped, "tv_direct", "listener_0")
    points = sorted(x for container in ax.containers for x in container.get_children()[0].get_xdata())  # type: ignore[attr-defined]
    assert points == [*range(64)] and "unit" in ax.get_xlabel()
    assert ax.get_legend() is None  # distances are not tested: none is significant
    assert plots.causal_map(mapped, "length").get_legend() is not None
    with pytest.raises(AnalysisError, match="available"):
        plots.causal_map(mapped, "retrun")


def test_edits_of_all_units_together_are_errors(talkers: Run) -> None:
    with pytest.raises(ConfigError, match="of all units together"):
        causal_map(talkers, Ablate(LISTENER, tuple(torch.zeros(64).tolist())), episodes=2)
    with pytest.raises(ConfigError, match="'patch'"):
        causal_map(talkers, Patch(LISTENER, from_agents=("listener_0",)), episodes=2)
    with pytest.raises(SiteError, match="hidden_1"):
        causal_map(talkers, "listener/actor/hiden_1", episodes=2)
    with pytest.raises(ConfigError, match="episodes must be at least 1; got 0"):
        causal_map(talkers, LISTENER, episodes=0)
