"""attribute over recordings: against the policies called row by row, and against numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.attribution.result import Attribution
from marlnb.errors import AnalysisError, ConfigError, RecordingError, ShapeError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.recording.file.reader import Recording
from marlnb.specs import InputSpec
from marlnb.training.runs.run import Run


def test_attribution_equals_captum_on_the_runs_own_network(recording: Recording, run: Run) -> None:
    result = attribute(recording, group="listener", n_steps=30, batch_size=64)
    actor = run.policies()["listener"].actor
    observation = torch.from_numpy(recording.steps("listener", "observation").to_numpy())
    action = torch.from_numpy(recording.steps("listener", "action").to_numpy())
    mean = observation.double().mean(dim=0).float()
    rows = [0, 1, 777, len(recording) - 1]

    def logits(x: torch.Tensor) -> torch.Tensor:
        return actor(x.unsqueeze(1))[:, 0]

    expected = IntegratedGradients(logits).attribute(
        observation[rows, 0], mean.expand(len(rows), -1), target=action[rows, 0], n_steps=30
    )
    np.testing.assert_allclose(result.values[rows, 0], expected.detach().numpy(), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(result.baseline, mean.numpy(), atol=1e-6)
    logits_recorded = recording.steps("listener", "logits").to_numpy()
    taken = np.take_along_axis(logits_recorded, action.numpy()[..., None], -1)[..., 0]
    np.testing.assert_allclose(result.score, taken, atol=1e-5)
    assert result.feature_names[:3] == ("velocity_x", "velocity_y", "landmark_0_dx")
    assert result.warnings == () and np.nanmax(result.relative_delta) < 1e-3


def test_batches_and_episodes_change_nothing(recording: Recording) -> None:
    whole = attribute(recording, group="listener")
    part = attribute(recording, group="listener", episodes=[5, 41], batch_size=7, baseline=whole.baseline)
    keep = np.isin(whole.episode, [5, 41])
    np.testing.assert_allclose(part.values, whole.values[keep], atol=1e-6)
    assert part.t.tolist() == [*range(25), *range(25)]
    with pytest.raises(RecordingError, match="no episode 99"):
        attribute(recording, group="listener", episodes=[99])


@pytest.mark.parametrize("baseline", ["mean", "start", "distribution"])
def test_what_is_compared_with_does_not_depend_on_what_is_explained(recording: Recording, baseline: str) -> None:
    whole = attribute(recording, group="listener", baseline=baseline, n_steps=5)
    part = attribute(recording, group="listener", baseline=baseline, n_steps=5, episodes=[5, 41], steps=[3])
    keep = np.isin(whole.episode, [5, 41]) & (whole.t == 3)
    np.testing.assert_allclose(part.baseline, whole.baseline)
    np.testing.assert_allclose(part.values, whole.values[keep], atol=1e-6)
    seen = recording.steps("listener", "observation").to_numpy()[:, 0]
    if baseline == "start":
        np.testing.assert_allclose(part.baseline[0], seen[np.asarray(recording.rows["t"]) == 0].mean(0), atol=1e-6)


def test_a_value_is_shared_out_over_both_groups(recording: Recording) -> None:
    result = attribute(recording, group="listener", to="value", episodes=[0, 1, 2])
    assert result.values.shape == (75, 1, 3 + 11) and result.units == "reward"
    keep = np.isin(recording.rows["episode"], [0, 1, 2])
    recorded = recording.steps("listener", "value").to_numpy()[keep]
    np.testing.assert_allclose(result.score, recorded, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(result.values.sum(-1), result.score - result.baseline_score, atol=1e-3)
    influence = result.influence()
    by_hand = np.abs(result.values[..., :3]).sum(-1).mean()
    assert influence.loc["listener_0", "speaker_0"] == pytest.approx(by_hand, rel=1e-5)
    assert result.by_source()["listener_0"].shape == (75, 1, 11)


def test_recurrent_agents_that_were_recorded(team: Recording) -> None:
    result = attribute(team, group="agent", to="log_prob")
    np.testing.assert_allclose(result.score[:, [0, 2]], team.steps("agent", "log_prob").to_numpy(), atol=1e-5)
    assert result.agents == ("agent_0", "agent_1", "agent_2")
    assert np.isnan(result.values[:, 1]).all() and np.isfinite(result.values[:, [0, 2]]).all()
    assert result.warnings == () and " of agent_0, agent_2 is attributed most to " in result.verdict
    one = attribute(team, group="agent", to="log_prob", agent="agent_2")
    np.testing.assert_allclose(one.values[:, 0], result.values[:, 2])
    with pytest.raises(AnalysisError, match="agent_1"):
        attribute(team, group="agent", to="value")


def test_an_attribution_that_did_not_converge_draws_a_warning(recording: Recording, run: Run) -> None:
    policies = run.policies()
    policies["listener"].actor.network = MLPConfig(activation="relu").build(1, InputSpec(((11,),)), 5)
    with torch.no_grad():
        for parameter in policies["listener"].actor.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    options = {"to": "logit", "target": 1, "baseline": "zero", "policies": policies, "episodes": range(12)}
    rough = attribute(recording, group="listener", n_steps=1, **options)  # type: ignore[arg-type]
    assert len(rough.warnings) == 1 and "did not converge" in rough.warnings[0]
    assert "NOT TO BE TRUSTED" in repr(rough) and "NOT TO BE TRUSTED" in rough._repr_html_()
    fine = attribute(recording, group="listener", n_steps=300, **options)  # type: ignore[arg-type]
    assert fine.warnings == ()


def test_summary_and_table_hold_the_values(recording: Recording) -> None:
    result = attribute(recording, group="listener", to="logit", target="left", method="feature_ablation")
    summary = result.summary().set_index("feature")
    assert summary.loc["landmark_0_dx", "mean_abs"] == pytest.approx(np.abs(result.values[:, 0, 2]).mean(), rel=1e-5)
    assert summary["share"].sum() == pytest.approx(1)
    table = result.to_pandas()
    assert len(table) == len(recording)
    assert table.loc[30, "episode"] == result.episode[30] and table.loc[30, "t"] == 5
    assert table.loc[30, "velocity_y"] == pytest.approx(float(result.values[30, 0, 1]))
    assert table["convergence_delta"].isna().all()  # nothing promises that ablations add up


def test_what_was_saved_is_read_back(recording: Recording, tmp_path: Path) -> None:
    result = attribute(recording, group="listener", episodes=[0, 3])
    path = result.save()
    assert path.parent == recording.path.with_suffix(".attributions")
    again = Attribution.load(path)
    for name in ("values", "score", "baseline_score", "episode", "t", "baseline", "convergence_delta"):
        np.testing.assert_array_equal(getattr(again, name), getattr(result, name))
    assert (again.agents, again.feature_names, again.target) == (result.agents, result.feature_names, result.target)
    assert again.origin["experiment"] == recording.experiment.to_json()
    with pytest.raises(AnalysisError, match="overwrite=True"):
        result.save()
    result.save(overwrite=True)
    with pytest.raises(AnalysisError, match="not an attribution"):
        Attribution.load(recording.path)
    with pytest.raises(AnalysisError, match="no attribution at"):
        Attribution.load(tmp_path / "none.h5")


def test_invalid_requests_are_rejected_before_any_work(recording: Recording) -> None:
    with pytest.raises(AnalysisError, match="no rows at steps=99; valid: 0 to 24"):
        attribute(recording, group="listener", steps=[99], progress=False)
    with pytest.raises(AnalysisError, match="did you mean 'listener'"):
        attribute(recording, group="listner")
    with pytest.raises(ConfigError, match="smooth must be 0; got 4"):
        attribute(recording, group="listener", method="conductance", site="listener/actor/hidden_1", smooth=4)
    with pytest.raises(ConfigError, match="integrated_gradients"):
        attribute(recording, group="listener", method="gradients")
    with pytest.raises(ConfigError, match="baseline must be 'mean' or"):
        attribute(recording, group="listener", baseline="median")
    with pytest.raises(ShapeError, match=r"\[1, 11\]; got \[3\]"):
        attribute(recording, group="listener", baseline=np.zeros(3))
    with pytest.raises(AnalysisError, match="listener_0"):
        attribute(recording, group="listener", agent="listener_1")
    with pytest.raises(ConfigError, match="did you mean 'method'"):
        attribute(recording, group="listener", metod="saliency")
    with pytest.raises(AnalysisError, match="did you mean 'left'"):
        attribute(recording, group="listener", to="logit", target="lefft")


def test_rows_choose_what_is_explained_and_given_what_it_is_compared_with(recording: Recording) -> None:
    whole = attribute(recording, group="listener", n_steps=5)
    goal, t = recording.label("goal").to_numpy(), whole.t
    red = recording.classes("goal").index("red")
    part = attribute(recording, group="listener", n_steps=5, rows="goal == 'red' and t < 4", batch_size=7)
    keep = (goal == red) & (t < 4)
    np.testing.assert_allclose(part.values, whole.values[keep], atol=1e-6)
    assert "other rows do not count" in repr(part) and "other rows" not in repr(whole)
    assert part.rows == "goal == 'red' and t < 4" and part.t.tolist() == t[keep].tolist()
    with pytest.raises(AnalysisError, match="selects none"):
        attribute(recording, group="listener", rows="t > 99")

    given = attribute(recording, group="listener", n_steps=5, given="goal", batch_size=64)
    of_red = recording.steps("listener", "observation").to_numpy()[goal == red, 0].mean(0)
    alone = attribute(recording, group="listener", n_steps=5, baseline=of_red)
    np.testing.assert_allclose(given.values[goal == red], alone.values[goal == red], atol=1e-5)
    assert given.baseline.shape == (3, 1, 11) and given.given == ("goal",) and np.isfinite(given.values).all()
    assert "rows with the same goal" in given.verdict and np.nanmax(given.relative_delta) < 1e-2
    ablated = attribute(recording, group="listener", given="goal", method="feature_ablation", rows="t == 3")
    assert ablated.faithfulness is not None and "infidelity" in ablated.verdict
    with pytest.raises(AnalysisError, match="without classes"):
        attribute(recording, group="listener", given="goal_dx")
    with pytest.raises(ConfigError, match="given= needs baseline"):
        attribute(recording, group="listener", given="goal", baseline="zero")
    with pytest.raises(AnalysisError, match="own observation"):
        attribute(recording, group="listener", given="goal", to="value")


def test_an_interrupted_file_with_something_given_is_continued(recording: Recording) -> None:
    memory = attribute(recording, group="listener", n_steps=5, given="action", rows="t < 6")
    file = attribute(recording, group="listener", n_steps=5, given="action", rows="t < 6", save="given", batch_size=50)
    np.testing.assert_allclose(file.values, memory.values, atol=1e-6)
    assert file.given == ("action",) and Attribution.load(recording.path.with_suffix(".attributions") / "given.h5").rows


def test_the_verdict_names_features_with_the_agent_that_observes_them(recording: Recording) -> None:
    """Features that several agents observe are not pooled, since they have nothing but a name in common."""
    result = attribute(recording, group="listener", to="value", sources="all", episodes=[0], n_steps=2)
    values = np.zeros((2, 2, 3), np.float32)
    values[:, 0], values[:, 1] = (3, 1, 4), (1, 1, 2)  # the means over agents are x of b 3, x of a 2, y of a 1
    sources = {"feature_names": ("x", "y", "x"), "feature_agents": ("a", "a", "b")}
    scores = {"score": values.sum(-1), "baseline_score": np.zeros((2, 2))}
    of_two = replace(result, values=values, agents=("a", "b"), **scores, **sources)  # type: ignore[arg-type]
    assert "attributed most to b: x 50%, a: x 33%, a: y 17% (" in of_two.verdict
