"""Observations that are not numbers, agents that never act, continuous actions: warnings, tables, strict JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from marlnb import plots
from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.attribution.baselines import deviations
from marlnb.analysis.attribution.outputs import resolve_output
from marlnb.analysis.attribution.over_time.attribute import attribute_over_time
from marlnb.analysis.attribution.result import Attribution
from marlnb.analysis.attribution.target import AttributionTarget
from marlnb.analysis.attribution.task import choose_policy
from marlnb.analysis.attribution.value_decomposition import ValueDecomposition, decompose_value
from marlnb.analysis.communication.communication import communication
from marlnb.analysis.communication.influence import _by_source, influence
from marlnb.analysis.communication.message_effects import message_effects
from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.progress import AnalysisProgress
from marlnb.errors import AnalysisError, ConfigError, ShapeError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from tests.analysis.conftest import copy_with, make_run

matplotlib.use("Agg")


def with_nan(recording: Recording, path: Path, group: str, agent: int) -> Recording:
    """A copy of the recording in which that agent observed NaN at four rows."""
    seen = recording.steps(group, "observation").to_numpy().copy()
    seen[5:9, agent, 3] = np.nan
    return copy_with(recording, path, group, observation=seen)


@pytest.fixture
def holed(recording: Recording, tmp_path: Path) -> Iterator[Recording]:
    with with_nan(recording, tmp_path / f"{tmp_path.name}.h5", "listener", 0) as opened:
        yield opened
    opened.path.unlink()


@pytest.fixture
def waiting(recording: Recording, tmp_path: Path) -> Iterator[Recording]:
    """A copy of the recording in which the listener acts at the first five steps of each episode only."""
    acting = (recording.rows["t"].to_numpy() < 5)[:, None]
    with copy_with(recording, tmp_path / f"{tmp_path.name}.h5", "listener", acting=acting) as opened:
        yield opened
    opened.path.unlink()


def strictly(message: object) -> None:
    json.dumps(message, allow_nan=False)


@pytest.mark.parametrize("baseline", ["mean", "zero"])
def test_an_agent_that_observes_nan_is_not_mistaken_for_a_dead_one(holed: Recording, baseline: str) -> None:
    result = attribute(holed, group="listener", baseline=baseline, n_steps=3, episodes=[0])
    bad = {"mean": "21 of 21", "zero": "4 of 25"}[baseline]  # a mean of NaN is NaN: at the four rows nothing is known
    assert any(f"not finite at {bad} rows" in note for note in result.warnings), result.warnings
    strictly(result.to_json())


def test_gradients_at_nan_draw_a_warning(holed: Recording) -> None:
    result = attribute(holed, group="listener", method="saliency", episodes=[0])
    assert any("could not be measured" in note for note in result.warnings), result.warnings


def test_influence_warns_about_rows_it_left_out_and_is_strict_json(holed: Recording, recording: Recording) -> None:
    result = influence(holed, "communication")
    assert any("listener: not finite at 4 of" in note for note in result.warnings), result.warnings
    strictly(result.to_json())
    whole = influence(recording, "communication")
    assert whole.to_json()["pairs"][0]["value"] is None and not any("finite" in note for note in whole.warnings)


def test_the_mean_of_units_is_over_rows_at_which_the_agent_acted(waiting: Recording) -> None:
    site = "listener/actor/hidden_1"
    result = attribute(waiting, group="listener", to="logit", target=1, site=site, episodes=[0])
    acted = waiting.rows["t"].to_numpy() < 5
    np.testing.assert_allclose(result.baseline[0], waiting[site].to_numpy()[acted, 0].mean(0), atol=1e-6)


def test_the_start_of_an_agent_that_appears_late_is_its_own_first_row(recording: Recording, tmp_path: Path) -> None:
    """The zeros that are recorded before are no observations."""
    t, site = recording.rows["t"].to_numpy(), "listener/actor/hidden_1"
    lives = (t >= 3)[:, None]
    observed = recording.steps("listener", "observation").to_numpy()
    fields = {"observation": np.where(lives[..., None], observed, 0), "alive": lives, "acting": lives}
    options: dict[str, Any] = {"group": "listener", "baseline": "start", "episodes": [0], "n_steps": 3}
    with copy_with(recording, tmp_path / f"{tmp_path.name}.h5", "listener", **fields) as late:
        of_action = attribute(late, **options)
        of_units = attribute(late, to="logit", target=1, site=site, **options)
        of_value = attribute(late, to="value", **options)
    late.path.unlink()
    first = observed[t == 3, 0].mean(0)
    np.testing.assert_allclose(of_action.baseline[0], first, atol=1e-6)
    np.testing.assert_allclose(of_units.baseline[0], recording[site].to_numpy()[t == 3, 0].mean(0), atol=1e-6)
    of_speaker = recording.steps("speaker", "observation").to_numpy()[t == 0, 0].mean(0)
    np.testing.assert_allclose(of_value.baseline[0], np.concatenate([of_speaker, first]), atol=1e-6)


def test_deviations_are_over_rows_of_living_agents(recording: Recording, tmp_path: Path) -> None:
    """Those of noise and of sensitivity; the zeros recorded for a dead agent are no observations."""
    lives = recording.rows["t"].to_numpy() < 5
    seen = {group: recording.steps(group, "observation").to_numpy() for group in ("speaker", "listener")}
    fields = {"observation": np.where(lives[:, None, None], seen["listener"], 0), "alive": lives[:, None]}
    output = resolve_output(recording.spec.group("listener").action, "value", None)
    with copy_with(recording, tmp_path / "dies.h5", "listener", **fields) as dies:
        source = RowSource(dies, "listener")
        policy, rows = choose_policy(source, None, None, output), source.rows(None)
        for_value = AttributionTarget(policy, source.env, output, (0,), "all")
        for_action = replace(for_value, output=replace(output, to="action"), sources="own")
        own, joint = (deviations(target, source, rows) for target in (for_action, for_value))
    dies.path.unlink()
    of_listener = seen["listener"][lives, 0].std(0)
    np.testing.assert_allclose(own[0], of_listener, rtol=1e-5)
    np.testing.assert_allclose(joint, np.concatenate([seen["speaker"][:, 0].std(0), of_listener]), rtol=1e-5)


def test_messages_have_an_effect_only_where_the_receiver_acts(recording: Recording, waiting: Recording) -> None:
    source, acted = RowSource(recording, "listener"), waiting.rows["t"].to_numpy() < 5
    policy, rows = source.policies()["listener"], source.rows(None)
    with AnalysisProgress("messages", "rows", shown=False) as progress:
        options = (policy, rows, None, "total_variation", 2, 4096, 0, progress)
        always, here = (
            message_effects(RowSource(opened, "listener"), *options)[0][:, 0, 0] for opened in (recording, waiting)
        )
    np.testing.assert_array_equal(here[acted], always[acted])
    assert np.isnan(here[~acted]).all() and always[~acted].any()


def test_a_row_without_a_score_has_no_influence(recording: Recording) -> None:
    result = attribute(recording, group="listener", to="value", episodes=[0])
    score = result.score.copy()
    score[3:] = np.nan
    sizes = _by_source(replace(result, score=score), recording.spec)
    assert np.isfinite(sizes[:3]).all() and np.isnan(sizes[3:]).all()


def test_a_past_that_is_not_a_number_draws_a_warning(team: Recording, tmp_path: Path) -> None:
    with with_nan(team, tmp_path / "holed_team.h5", "agent", 0) as holed:
        options = {"group": "agent", "t": [8, 20], "lookback": 3, "n_steps": 5}
        result = attribute_over_time(holed, baseline=np.zeros(18), **options)  # type: ignore[arg-type]
        assert any("not finite at 1 of" in note for note in result.warnings), result.warnings
        assert np.isfinite(result.table()["mean_abs"]).all()
        heights = [bar.get_height() for bar in plots.attribution_over_lags(result, agent="agent_0").patches]
        assert np.isfinite(heights).all()
        strictly(result.to_json())
        lost = attribute_over_time(holed, **options)  # type: ignore[arg-type]
        assert any("not finite at" in note for note in lost.warnings), lost.warnings
    holed.path.unlink()


def test_invalid_steps_and_baselines_are_rejected(team: Recording) -> None:
    with pytest.raises(ShapeError, match=r"\[3, 18\]; got \[7\]"):
        attribute_over_time(team, group="agent", baseline=np.zeros(7), lookback=2, n_steps=5)
    with pytest.raises(AnalysisError, match=r"no episode has the steps t=\[99\]"):
        attribute_over_time(team, group="agent", t=[3, 99], lookback=2, n_steps=5)
    with pytest.raises(AnalysisError, match="no step with 99"):
        attribute_over_time(team, group="agent", lookback=99)


def test_invalid_noise_and_units_are_rejected(recording: Recording) -> None:
    with pytest.raises(ConfigError, match="noise must be at least 0"):
        attribute(recording, group="listener", smooth=2, noise=-1)
    with pytest.raises(ConfigError, match="target must be"):
        attribute(recording, group="listener", to="unit", target=("listener/actor/hidden_1", 1.7))  # type: ignore[arg-type]


def test_a_mean_over_the_recording_does_not_depend_on_the_rows(tmp_path: Path) -> None:
    short = ("algorithm.learning_starts=200",)
    made = make_run(tmp_path / "run", "mpe/simple_spread", "algorithm=qmix", *short)
    with record(made, episodes=4, progress=False) as recording:
        whole = decompose_value(recording, "agent", baseline="mean")
        part = decompose_value(recording, "agent", baseline="mean", episodes=[1])
        np.testing.assert_allclose(part.baseline, whole.baseline, rtol=1e-5)
        np.testing.assert_allclose(part.share, whole.share[whole.episode == 1], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(whole.baseline, whole.q.mean(0), rtol=1e-4)


def test_an_agent_that_never_acts_has_no_part_and_the_others_do() -> None:
    known = np.array([[1.0, np.nan, 3.0], [1.0, np.nan, 3.0]])
    row = np.zeros(2)
    shares = ValueDecomposition(
        known, known, known, known[:, 0] * 4, row, row, row, row, ("a", "b", "c"), "g", "sum", "taken", "zero"
    )
    assert shares.table()["part"].tolist()[::2] == [0.25, 0.75] and np.isnan(shares.table()["part"][1])
    strictly(shares.to_json())
    assert shares.to_json()["agents"][1]["q"] is None


@pytest.mark.parametrize("critic", ["gnn", "mlp"])
def test_conductance_of_critics_when_actors_read_other_agents(tmp_path: Path, critic: str) -> None:
    """A critic's head is one unit of its agent, whichever agents its actor reads."""
    made = make_run(tmp_path / "run", "mpe/simple_spread", "algorithm=ippo", "model=gnn", f"critic={critic}")
    with record(made, episodes=2, sites="*", progress=False) as recording:
        result = attribute(
            recording, group="agent", to="value", site="agent/critic/head", method="conductance", n_steps=20
        )
        assert result.values.shape[-1] == len(result.feature_names) == 1 == len(result.summary()["feature"].unique())
        np.testing.assert_allclose(result.values[..., 0], result.score - result.baseline_score, rtol=0.05, atol=0.05)


def test_influence_asks_for_components_and_choices(recording: Recording, tmp_path: Path) -> None:
    named = influence(recording, group="listener", to="logit", target="right", n_steps=5)
    by_hand = attribute(recording, group="listener", to="logit", target="right", n_steps=5, features={"m": "message_*"})
    place = by_hand.feature_names.index("m")
    assert named.of("listener_0", "speaker_0")[0] == pytest.approx(np.abs(by_hand.values[:, 0, place]).mean(), rel=1e-4)
    assert "right" in named.measure and named.units == "logits"
    with pytest.raises(AnalysisError, match="through='critic'"):
        influence(recording, "observation", to="value")
    with pytest.raises(AnalysisError, match="need through='observation'"):
        influence(recording, "critic", to="log_prob")
    made = make_run(tmp_path / "run", "mpe/simple_spread", "env.continuous_actions=true")
    with record(made, episodes=2, progress=False) as moving:
        result = influence(moving, target=1, n_steps=5)
        assert result.units == "action" and np.isfinite(result.values).all()
        assert attribute(moving, group="agent", target=1, n_steps=5).units == "action"


def test_a_figure_names_no_baseline_of_a_gradient(recording: Recording) -> None:
    from marlnb.plots.attribution import provenance

    gradient = attribute(recording, group="listener", method="gradient", episodes=[0])
    assert "baseline" not in provenance(gradient, "listener_0")


def test_a_saved_attribution_is_read_back_unchanged(recording: Recording, tmp_path: Path) -> None:
    result = attribute(recording, group="listener", features="auto", method="feature_ablation", episodes=[0])
    again = Attribution.load(result.save(tmp_path / "saved.h5"))
    for each in fields(Attribution):
        mine, its = getattr(result, each.name), getattr(again, each.name)
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(its, mine)
        elif each.name != "origin":  # JSON has no tuples; an experiment's origin has
            assert its == mine, each.name
    assert again.to_json() == result.to_json()


def test_one_policy_does_not_explain_the_rows_of_two(tmp_path: Path) -> None:
    """Rows of the first checkpoint must not be explained by the last checkpoint's networks."""
    made = make_run(tmp_path / "run", "mpe/simple_speaker_listener", "checkpoint_every=1", "frames=800")
    first, second = (checkpoint.iteration for checkpoint in made.checkpoints)
    with record(made, episodes=6, checkpoint=[first, second], explore=True, progress=False) as recording:
        for ask in (attribute, decompose_value):
            with pytest.raises(AnalysisError, match="choose one with checkpoint="):
                ask(recording, group="listener")  # type: ignore[operator]
        with pytest.raises(AnalysisError, match="choose one with checkpoint="):
            influence(recording)
        result = attribute(recording, group="listener", checkpoint=first, n_steps=5)
        seen = np.flatnonzero(np.isin(recording.rows["episode"], np.unique(result.episode)))
        logits = recording.steps("listener", "logits").to_numpy()[seen]
        taken = np.take_along_axis(logits, recording.steps("listener", "action").to_numpy()[seen][..., None], -1)
        np.testing.assert_allclose(result.score, taken[..., 0], atol=1e-5)
        given = attribute(recording, group="listener", policies=made.policies(second), n_steps=5)
        assert len(given.score) == 300  # all rows, by a policy that was named
        options = {"speaker": "speaker_0", "listener": "listener_0", "goal": "goal"}
        both = {name: communication(recording, checkpoint=name, **options) for name in (first, second)}  # type: ignore[arg-type]
    with record(made, episodes=6, checkpoint=first, name="alone", explore=True, progress=False) as alone:
        influenced = communication(alone, **options).influence  # type: ignore[arg-type]
    assert influenced is not None and both[first].influence is not None
    assert both[first].influence.value == pytest.approx(influenced.value, rel=1e-4)


def test_results_name_the_checkpoint_whose_networks_they_explain(tmp_path: Path) -> None:
    short = ("n_envs=2", "frames=100", "algorithm.learning_starts=50", "algorithm.updates=1", "checkpoint_every=1")
    made = make_run(tmp_path / "run", "mpe/simple_spread", "algorithm=qmix", "model=gru", *short)
    first, second = made.checkpoints
    options: dict[str, Any] = {"group": "agent", "checkpoint": first.iteration, "n_steps": 2}
    with record(made, episodes=2, checkpoint=[first.iteration, second.iteration], progress=False) as recording:
        for explain in (attribute, attribute_over_time, decompose_value, influence):
            stated = explain(recording, **options).origin["checkpoint"]
            assert stated == {"iteration": first.iteration, "sha256": first.sha256}, explain
