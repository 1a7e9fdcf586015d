"""decode: planted concepts are found, noise is not, and the controls measure what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.data.untrained import untrained_activations
from marlnb.analysis.decoding.decode import decode
from marlnb.errors import AnalysisError
from marlnb.recording.file.reader import Recording

SITE = "listener/actor/hidden_1"


def per_episode(recording: Recording, n_classes: int, seed: int = 0) -> np.ndarray:
    episode = recording.rows["episode"].to_numpy()
    return np.random.default_rng(seed).integers(0, n_classes, episode.max() + 1)[episode]


def test_a_planted_concept_is_found(recording: Recording) -> None:
    units = recording[SITE].to_numpy()[:, 0]
    planted = (units[:, 3] + 0.5 * units[:, 10] > 0).astype(np.int64)
    found = decode(recording, site=SITE, label=planted, n_shuffles=19).of()
    assert found.score > 0.93 and found.low > 0.8
    assert found.chance == 0.5 and found.shuffled == pytest.approx(0.5, abs=0.07)
    assert found.p_value == 1 / 20


def test_a_planted_quantity_is_found(recording: Recording) -> None:
    units = recording[SITE].to_numpy()[:, 0]
    found = decode(recording, site=SITE, label=units @ np.linspace(-1, 1, 64), n_shuffles=3)
    assert found.metric == "R²" and found.of().score > 0.999
    assert found.of().chance == 0.0 and found.of().shuffled < 0.1


def test_a_quantity_that_stands_still_in_most_episodes_is_doubted(recording: Recording) -> None:
    units = recording[SITE].to_numpy()[:, 0].astype(np.float64)
    episode, rng = recording.rows["episode"].to_numpy(), np.random.default_rng(0)
    label = np.where(episode < 3, units[:, 3], 0.2 + 1e-9 * rng.normal(size=len(episode)))  # elsewhere rounding
    for memory_bytes in (2**32, 1):  # at once, and streamed
        found = decode(recording, site=SITE, label=label, n_shuffles=1, memory_bytes=memory_bytes, progress=False)
        assert -20 < found.of().score <= 1
        assert any("stands still but in 3 episodes, for 5 folds" in note for note in found.warnings)
    fine = decode(recording, site=SITE, label=units[:, 3], n_shuffles=1)
    assert not any("stands still" in note for note in fine.warnings)


def test_noise_drawn_once_an_episode_is_not_decoded(recording: Recording) -> None:
    scores = [decode(recording, site=SITE, label=per_episode(recording, 2, k), n_shuffles=1).of() for k in range(4)]
    assert np.mean([score.score for score in scores]) == pytest.approx(0.5, abs=0.06)
    assert np.mean([score.control for score in scores]) > 0.65  # with only steps held out, the same noise is memorised


def test_controls_stand_beside_the_score(recording: Recording) -> None:
    found = decode(recording, site="listener/actor/hidden_2", label="goal_dx", n_shuffles=3).of()
    assert found.n_rows == 60 * 25 and found.n_episodes == 60
    assert found.untrained is not None and found.control is not None
    assert found.selectivity == found.score - found.control
    seen = decode(
        recording, site=SITE, label=recording.steps("listener", "observation").to_numpy()[:, 0, 2], n_shuffles=1
    )
    assert seen.of().observation > 0.999  # a feature is read from the observation that holds it


def test_the_untrained_network_is_another_draw_of_the_same(recording: Recording, team: Recording) -> None:
    source = RowSource(recording, "listener")
    rows = source.rows(None)
    found, notes = untrained_activations(source, SITE, rows, seed=0)
    recorded = source.activations(SITE, rows)
    assert found is not None and notes == [] and found.shape == recorded.shape
    assert np.abs(found - recorded).mean() > 0.1
    again, _ = untrained_activations(source, SITE, rows, seed=0)
    np.testing.assert_array_equal(found, again)
    other = RowSource(team, "agent")
    unrolled, notes = untrained_activations(other, "agent/actor/gru", other.rows(None), seed=0)
    assert unrolled is not None and unrolled.shape == (12 * 25, 3, 64) and notes == []


def test_a_recurrent_replay_equals_the_recording_when_the_weights_do(
    team: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorded states come from the trained policy: replaying with its weights must give them back."""
    from marlnb.analysis.data import untrained
    from marlnb.training.runs.run import Run

    trained = Run.open(team.run_path).policies()["agent"]  # type: ignore[arg-type]
    source = RowSource(team, "agent")
    rows = source.rows(None)
    replayed = untrained._recurrent(source, trained, "agent/actor/gru", rows)
    recorded = source.activations("agent/actor/gru", rows)
    np.testing.assert_allclose(replayed[:, [0, 2]], recorded[:, [0, 2]], atol=1e-5)


def test_each_time_step_by_itself(recording: Recording) -> None:
    found = decode(recording, site=SITE, label="goal", at="each", n_shuffles=1)
    assert [score.t for score in found.scores] == list(range(25))
    assert all(score.n_rows == 60 and score.control is None for score in found.scores)
    assert found.classes == ("red", "green", "blue")
    one = decode(recording, site=SITE, label="goal", at=4, n_shuffles=1)
    assert one.of(t=4).score == found.of(t=4).score
    with pytest.raises(AnalysisError, match="from 0 to 24"):
        decode(recording, site=SITE, label="goal", at=25)


def test_agents_are_decoded_one_by_one(team: Recording) -> None:
    distance = np.abs(team.steps("agent", "observation").to_numpy()).sum(-1)
    label = np.insert(distance, 1, 0.0, axis=1)  # a column for the agent that was not recorded
    found = decode(team, site="agent/actor/gru", label=label, folds=3, n_shuffles=1)
    assert found.agents == ("agent_0", "agent_2")
    assert any("only 12 episodes" in note for note in found.warnings)


def test_questions_without_an_answer_are_refused(recording: Recording, team: Recording) -> None:
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


def test_a_rare_class_is_said(recording: Recording) -> None:
    episode = recording.rows["episode"].to_numpy()
    found = decode(recording, site=SITE, label=(episode < 3).astype(np.int64), n_shuffles=1)
    assert any("'1' is in 3 episodes only" in note for note in found.warnings)
    assert "NOT TO BE TRUSTED" in repr(found)


def test_torchs_generator_is_left_alone(recording: Recording) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    decode(recording, site=SITE, label="goal", n_shuffles=1)
    assert torch.equal(torch.rand(3), expected)
