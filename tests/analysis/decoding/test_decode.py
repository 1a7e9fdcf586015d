"""decode: planted concepts are decoded, noise is not, and the controls measure what they should."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from marlnb.analysis.data.labels import Classes
from marlnb.analysis.data.policy_activations import policy_activations, untrained_policy
from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.decoding.problem import At, DecodingProblem, DecodingSettings, DecodingTarget, Diagnostics, solve
from marlnb.analysis.stats.linear_models import episode_folds
from marlnb.errors import AnalysisError, ConfigError
from marlnb.recording.file.reader import Recording

SITE = "listener/actor/hidden_1"


def per_episode(recording: Recording, n_classes: int, seed: int = 0) -> np.ndarray:
    episode = recording.rows["episode"].to_numpy()
    return np.random.default_rng(seed).integers(0, n_classes, episode.max() + 1)[episode]


def test_a_planted_concept_is_decoded(recording: Recording) -> None:
    units = recording[SITE].to_numpy()[:, 0]
    planted = (units[:, 3] + 0.5 * units[:, 10] > 0).astype(np.int64)
    result = decode(recording, site=SITE, label=planted, n_shuffles=19).of()
    assert result.score > 0.93 and result.low > 0.8
    assert result.chance == 0.5 and result.shuffled == pytest.approx(0.5, abs=0.07)
    assert result.p_value == 1 / 20


def test_a_planted_quantity_is_decoded(recording: Recording) -> None:
    units = recording[SITE].to_numpy()[:, 0]
    result = decode(recording, site=SITE, label=units @ np.linspace(-1, 1, 64), n_shuffles=3)
    assert result.metric == "R²" and result.of().score > 0.999
    assert result.of().chance == 0.0 and result.of().shuffled < 0.1


def test_a_quantity_that_is_constant_in_most_episodes_draws_a_warning(recording: Recording) -> None:
    units = recording[SITE].to_numpy()[:, 0].astype(np.float64)
    episode, rng = recording.rows["episode"].to_numpy(), np.random.default_rng(0)
    label = np.where(episode < 3, units[:, 3], 0.2 + 1e-9 * rng.normal(size=len(episode)))  # rounding errors elsewhere
    for memory_bytes in (2**32, 1):  # in memory, and streamed
        result = decode(recording, site=SITE, label=label, n_shuffles=1, memory_bytes=memory_bytes, progress=False)
        assert -20 < result.of().score <= 1
        assert any("varies in only 3 episodes, for 5 folds" in note for note in result.warnings)
    fine = decode(recording, site=SITE, label=units[:, 3], n_shuffles=1)
    assert not any("varies in only" in note for note in fine.warnings)


def test_noise_drawn_once_per_episode_is_not_decoded(recording: Recording) -> None:
    scores = [decode(recording, site=SITE, label=per_episode(recording, 2, k), n_shuffles=1).of() for k in range(4)]
    assert np.mean([score.score for score in scores]) == pytest.approx(0.5, abs=0.06)
    assert np.mean([score.control for score in scores]) > 0.65  # with only steps held out, the same noise is memorised


def test_each_score_has_its_controls(recording: Recording) -> None:
    result = decode(recording, site="listener/actor/hidden_2", label="goal_dx", n_shuffles=3).of()
    assert result.n_rows == 60 * 25 and result.n_episodes == 60
    assert result.untrained is not None and result.control is not None
    assert result.selectivity == result.score - result.control
    feature = decode(
        recording, site=SITE, label=recording.steps("listener", "observation").to_numpy()[:, 0, 2], n_shuffles=1
    )
    assert feature.of().observation > 0.999  # the observation contains the feature


def test_the_untrained_network_is_another_draw_of_the_same(recording: Recording, team: Recording) -> None:
    source = RowSource(recording, "listener")
    rows = source.rows(None)
    policy, notes = untrained_policy(source, SITE, rows, seed=0)
    assert policy is not None and notes == []
    untrained, recorded = policy_activations(source, policy, SITE, rows), source.activations(SITE, rows)
    assert untrained.shape == recorded.shape and np.abs(untrained - recorded).mean() > 0.1
    again, _ = untrained_policy(source, SITE, rows, seed=0)
    assert again is not None
    np.testing.assert_array_equal(untrained, policy_activations(source, again, SITE, rows))
    source = RowSource(team, "agent")
    policy, notes = untrained_policy(source, "agent/actor/gru", source.rows(None), seed=0)
    assert policy is not None and notes == []
    assert policy_activations(source, policy, "agent/actor/gru", source.rows(None)).shape == (12 * 25, 3, 64)


def test_a_recurrent_replay_equals_the_recording_when_the_weights_do(team: Recording) -> None:
    """The recorded states come from the trained policy: replaying with its weights must give them back."""
    from marlnb.training.runs.run import Run

    trained = Run.open(team.run_path).policies()["agent"]  # type: ignore[arg-type]
    source = RowSource(team, "agent")
    rows = source.rows(None)
    replayed = policy_activations(source, trained, "agent/actor/gru", rows)
    recorded = source.activations("agent/actor/gru", rows)
    np.testing.assert_allclose(replayed[:, [0, 2]], recorded[:, [0, 2]], atol=1e-5)


def test_each_time_step_by_itself(recording: Recording) -> None:
    result = decode(recording, site=SITE, label="goal", at="each", n_shuffles=1)
    assert [score.t for score in result.scores] == list(range(25))
    assert all(score.n_rows == 60 and score.control is None for score in result.scores)
    assert result.classes == ("red", "green", "blue")
    one = decode(recording, site=SITE, label="goal", at=4, n_shuffles=1)
    assert one.of(t=4).score == result.of(t=4).score
    with pytest.raises(AnalysisError, match="from 0 to 24"):
        decode(recording, site=SITE, label="goal", at=25)
    for several in ([3, 5], range(3), "both"):
        with pytest.raises(AnalysisError, match="expected at='all', at='each' or one time step; got at="):
            decode(recording, site=SITE, label="goal", at=several, n_shuffles=1)  # type: ignore[arg-type]


def test_agents_are_decoded_one_by_one(team: Recording) -> None:
    distance = np.abs(team.steps("agent", "observation").to_numpy()).sum(-1)
    label = np.insert(distance, 1, 0.0, axis=1)  # a column for the agent that was not recorded
    result = decode(team, site="agent/actor/gru", label=label, folds=3, n_shuffles=1)
    assert result.agents == ("agent_0", "agent_2")
    assert any("only 12 episodes" in note for note in result.warnings)


def test_invalid_requests_are_rejected(recording: Recording, team: Recording) -> None:
    constant = np.ones(len(recording), dtype=np.int64)
    with pytest.raises(AnalysisError, match="never varies"):
        decode(recording, site=SITE, label=constant)
    with pytest.raises(AnalysisError, match="at least 20 episodes"):
        decode(team, site="agent/actor/gru", label=np.arange(len(team)) % 2, folds=10)
    with pytest.raises(AnalysisError, match="kind='regression'"):
        decode(recording, site=SITE, label=np.arange(len(recording)))
    with pytest.raises(AnalysisError, match="each of the recording's 1500 rows"):
        decode(recording, site=SITE, label=constant[:10])
    with pytest.raises(Exception, match="did you mean 'goal'"):
        decode(recording, site=SITE, label="gaol")
    with pytest.raises(Exception, match="listener/actor/hidden_1"):
        decode(recording, site="listener/actor/hidden_9", label="goal")
    for options, message in (
        ({"folds": 2.5}, r"folds must be a whole number; got 2\.5"),
        ({"seed": "a"}, "seed must be a whole number; got 'a'"),
        ({"offset": 1.5}, r"offset must be a whole number; got 1\.5"),
        ({"n_shuffles": 0}, "n_shuffles must be at least 1; got 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            decode(recording, site=SITE, label="goal", **options)  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match=r"episodes=\[\] selects none of the 60 episodes"):
        decode(recording, site=SITE, label="goal", episodes=[])
    for options, message in (
        ({"site": []}, "an empty list chooses no recorded site. Valid: speaker/"),
        ({"agent": []}, "an empty list chooses no agent at 'listener/actor/hidden_.'. Valid: listener_0"),
        ({"offset": []}, r"offset=\[\] chooses no offset"),
    ):
        with pytest.raises(AnalysisError, match=message):
            decode(recording, **{"site": SITE, "label": "goal", **options})  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match=r"offset=99 is outside every episode: .* 24 steps apart; valid: -24 to 24"):
        decode(recording, site=SITE, label="goal", offset=99)


def test_a_rare_class_draws_a_warning(recording: Recording) -> None:
    episode = recording.rows["episode"].to_numpy()
    result = decode(recording, site=SITE, label=(episode < 3).astype(np.int64), n_shuffles=1)
    assert any("class '1' occurs in only 3 episodes" in note for note in result.warnings)
    assert "NOT TO BE TRUSTED" in repr(result)


def test_few_episodes_draw_a_warning_at_the_time_steps_that_are_tested(recording: Recording) -> None:
    """65 - 5 t of the 60 episodes are used at time step t, and one in ten of them is True after the third."""
    episode, t = recording.rows["episode"].to_numpy(), recording.rows["t"].to_numpy()
    label = np.where(t > 3, episode % 10 == 0, episode % 2 == 0)
    options = {"site": SITE, "label": label, "rows": episode < 65 - 5 * t, "n_shuffles": 1, "progress": False}
    for memory_bytes in (2**32, 1):  # in memory, and streamed
        result = decode(recording, at=4, memory_bytes=memory_bytes, **options)  # type: ignore[arg-type]
        assert result.warnings == (
            "listener_0 at t=4: only 45 episodes; intervals are rough below 50",
            "listener_0 at t=4: class 'True' occurs in only 5 episodes, for 5 folds",
        )
    each = decode(recording, at="each", **options)  # type: ignore[arg-type]
    assert [score.t for score in each.scores] == list(range(12))
    assert each.warnings == (
        "listener_0 at 8 time steps, such as t=11: only 10 episodes; intervals are rough below 50",
        "listener_0 at 8 time steps, such as t=11: class 'True' occurs in only 1 episode, for 5 folds",
        "listener_0 at t=11: class 'False' occurs in only 9 episodes, for 5 folds",
        "skipped time steps with too few episodes or a constant label: t = 12",
    )


@pytest.mark.parametrize("memory_bytes", [1 << 30, 0])  # in memory, and streamed
def test_a_decoder_has_the_classes_of_its_own_rows(recording: Recording, memory_bytes: int) -> None:
    result = decode(
        recording,
        site=SITE,
        label="goal",
        rows="goal != 'red'",
        n_shuffles=1,
        memory_bytes=memory_bytes,
        progress=False,
    )
    assert result.classes == result.decoders[0].classes == ("green", "blue") and result.of().chance == 0.5
    assert result.decoders[0].weights.shape == result.decoders[0].patterns.shape == (2, 64)
    assert result.directions() == (result.direction(),) == (result.direction(value="blue"),)
    units, goal = recording[SITE].to_numpy()[:, 0].astype(np.float64), recording.label("goal").to_numpy()
    means = np.stack([units[goal == k].mean(axis=0) for k in range(3)])
    difference = means[2] - means[1]
    np.testing.assert_allclose(
        result.direction(value=("blue", "green")).vector, difference / np.linalg.norm(difference), atol=1e-6
    )
    with pytest.raises(AnalysisError, match="no value 'red' of 'goal'"):
        result.direction(value="red")


def test_torchs_global_generator_does_not_change(recording: Recording) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    decode(recording, site=SITE, label="goal", n_shuffles=1)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(("memory_bytes", "n_shuffles"), [(2**32, 19), (1, 4)], ids=["in memory", "streamed"])
def test_a_perfect_score_of_a_rare_label_of_short_episodes_is_above_chance(
    recording: Recording, memory_bytes: int, n_shuffles: int
) -> None:
    goal, t = recording.label("goal").to_numpy(), recording.rows["t"].to_numpy()
    goal_of_episode = goal[t == 0]
    is_rare = goal_of_episode == 0
    used = ~is_rare | (np.cumsum(is_rare) <= 6)
    result = decode(
        recording, site="speaker/actor/hidden_1", label=(goal == 0).astype(np.int64), episodes=np.flatnonzero(used),
        rows=(goal != 0) | (t < 5), n_shuffles=n_shuffles, memory_bytes=memory_bytes, progress=False,
    ).of()  # fmt: skip
    assert result.score > 0.95
    assert result.shuffled == pytest.approx(0.5, abs=0.15)
    assert result.p_value == 1 / (n_shuffles + 1)


@pytest.mark.parametrize("at", [15, "each"])
def test_a_time_step_that_few_episodes_reach_has_folds_of_their_own(at: At) -> None:
    rng, classes = np.random.default_rng(0), Classes("regression", np.empty(0), ())
    n_steps = np.where(np.arange(100) < 12, 16, 1)
    episode, t = np.repeat(np.arange(100), n_steps), np.concatenate([np.arange(n) for n in n_steps])
    x = rng.standard_normal((len(t), 3))
    y = x[:, 0]
    for seed in range(2):
        settings = DecodingSettings(at, "label", classes, 5, 1, seed)
        fold = episode_folds(y, episode, "regression", 5, seed)
        target = DecodingTarget("site", "agent", 0, y, episode, t, fold)
        outcomes = solve(DecodingProblem(target, x, x, None), settings, Diagnostics(single_problem=True))
        (score,) = (outcome.score for outcome in outcomes if outcome.score.t == 15)
        assert score.n_episodes == 12
        assert score.score > 0.99  # a fold with one row has no variance and scored 0
