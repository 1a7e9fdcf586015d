"""communication: known bits, planted codes, and the difference between correlation and causal influence."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from marlnb import plots
from marlnb.analysis.communication.communication import communication, context_independence, not_one_choice
from marlnb.analysis.communication.message_influence import _bits
from marlnb.analysis.stats.mutual_information import (
    counts,
    entropy_bits,
    jackknife_bits,
    mutual_information,
    mutual_information_bits,
)
from marlnb.errors import AnalysisError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.q_policy import QPolicy
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.specs import ActionSpec
from marlnb.training.runs.run import Run
from tests.analysis.conftest import make_run

TALK = Path(__file__).parents[3] / "data" / "speaker_listener"


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """Agents that communicate."""
    path = tmp_path_factory.mktemp("talk") / "run"
    shutil.copytree(TALK, path)
    with record(path, episodes=60, values=False, progress=False) as opened:
        yield opened


def test_known_bits() -> None:
    assert mutual_information_bits(np.diag([25.0, 25, 25, 25])) == pytest.approx(2.0)
    assert mutual_information_bits(np.full((3, 5), 4.0)) == pytest.approx(0.0)
    flipped = np.array([[45.0, 5], [5, 45]])  # a binary symmetric channel: 1 - H(0.1)
    assert mutual_information_bits(flipped) == pytest.approx(1 - (-0.1 * np.log2(0.1) - 0.9 * np.log2(0.9)))
    assert entropy_bits(np.array([1.0, 1, 2])) == pytest.approx(1.5)
    assert counts(np.array([0, 1, 1]), np.array([2, 0, 0]), 2, 3).tolist() == [[0, 0, 1], [2, 0, 0]]


def episode_cells(rng: np.random.Generator, share: float, n_episodes: int) -> np.ndarray:
    """Counts `[episode, goal, message]` of 25 equal rows each, where a share of the messages names the goal."""
    goal, message = rng.integers(3, size=n_episodes), rng.integers(6, size=n_episodes)
    names_goal = rng.random(n_episodes) < share
    cells = np.zeros((n_episodes, 3, 6))
    cells[np.arange(n_episodes), goal, np.where(names_goal, goal, message)] = 25
    return cells


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_jackknife_has_no_bias_and_its_interval_the_truth(share: float) -> None:
    """With 18 cells and 60 episodes, the plug-in estimate is about 0.1 bits too high."""
    rng = np.random.default_rng(0)
    joint = share * np.eye(3, 6) / 3 + (1 - share) / 18
    true = float((joint * np.log2(joint / joint.sum(1, keepdims=True) / joint.sum(0))).sum())
    cells = [episode_cells(rng, share, 60) for _ in range(100)]
    estimates = [jackknife_bits(each) for each in cells]
    plug_in = np.mean([float(mutual_information_bits(each.sum(axis=0))) for each in cells])
    assert np.mean([e.value for e in estimates]) == pytest.approx(true, abs=0.03) and plug_in > true + 0.08
    assert np.mean([e.low - 1e-9 <= true <= e.high for e in estimates]) > 0.88
    assert all(e.low <= e.value <= e.high for e in estimates)


def test_the_jackknife_by_hand() -> None:
    """Episodes of one row each, (0, 0), (0, 0), (1, 1) and (0, 1): I = 0.311278.

    Without (0, 0) it is 2 H(1/3) - log2(3) = 0.251629, without (1, 1) it is 0, without (0, 1) it is H(1/3) = 0.918296.
    """
    cells = np.zeros((4, 2, 2))
    cells[[0, 1, 2, 3], [0, 0, 1, 0], [0, 0, 1, 1]] = 1
    without = np.array([0.251629, 0.251629, 0.0, 0.918296])
    result = jackknife_bits(cells)
    assert result.value == pytest.approx(max(4 * 0.311278 - 3 * without.mean(), 0), abs=1e-5)
    assert (result.low, result.high) == (0.0, 1.0)  # 0.179 ± 3.18 * sqrt(3 * 0.1155), within 0 and one bit
    alone = jackknife_bits(cells[:1])
    assert (alone.value, alone.low, alone.high) == (0.0, 0.0, 0.0)


def test_what_one_variable_determines_is_a_share_of_the_smaller_entropy() -> None:
    b = np.tile(np.arange(4), 40)
    options = {"names": ("half", "b"), "n_shuffles": 5, "rng": np.random.default_rng(0)}
    result = mutual_information(b // 2, b, np.repeat(np.arange(20), 8), np.tile(np.arange(8), 20), **options)  # type: ignore[arg-type]
    assert (result.entropy_a, result.entropy_b, result.share) == pytest.approx((1.0, 2.0, 1.0), abs=0.01)


def test_chance_permutes_whole_episodes() -> None:
    """Two labels that are constant within 40 episodes of 25 rows: far from independent rows, and no relation."""
    rng = np.random.default_rng(1)
    episode, t = np.repeat(np.arange(40), 25), np.tile(np.arange(25), 40)
    a, b = (rng.integers(0, 3, 40)[episode] for _ in range(2))
    result = mutual_information(a, b, episode, t, names=("a", "b"), n_shuffles=50, rng=rng)
    assert result.chance > 0.03 and result.p_value > 0.05  # 1,000 independent rows would give 0.003
    same = mutual_information(a, a, episode, t, names=("a", "a"), n_shuffles=50, rng=rng)
    assert same.share == pytest.approx(1.0) and same.p_value == 1 / 51 and same.bits == pytest.approx(same.entropy_a)


def test_context_independence_by_hand() -> None:
    assert context_independence(np.eye(3) * 7) == 1.0
    # one message for two of three goals: 1 * 1 for the first, 1 * 1/2 for each of the others
    assert context_independence(np.array([[5.0, 0, 0], [0, 5, 5]])) == pytest.approx(2 / 3)
    assert context_independence(np.full((2, 2), 1.0)) == 0.25


def test_causal_influence_by_hand() -> None:
    """A message has one bit of influence on a listener that obeys it, and none on one that ignores it."""
    obeys = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()  # [message, action]
    ignores = torch.tensor([[0.3, 0.7], [0.3, 0.7]]).double()
    probabilities = torch.stack([obeys, ignores], dim=1)  # [message, row, action]
    weights = torch.tensor([0.5, 0.5]).double()
    torch.testing.assert_close(_bits(probabilities, weights), torch.tensor([1.0, 0.0]).double())
    rare = torch.tensor([0.25, 0.75]).double()
    assert float(_bits(probabilities, rare)[0]) == pytest.approx(0.811278, abs=1e-6)


def test_of_a_recording(talk: Recording) -> None:
    result = communication(talk, speaker="speaker_0", listener="listener_0", goal="goal", n_shuffles=20, n_bootstrap=20)
    goal = talk.label("goal").to_numpy()
    word = talk.steps("speaker", "action").to_numpy()[:, 0]
    listener = talk.steps("listener", "action").to_numpy()[:, 0]
    assert result.signalling.bits == pytest.approx(float(mutual_information_bits(counts(word, goal, 3, 3))))
    received = talk.rows["t"].to_numpy() < 24  # the message of the last step is never received
    later = np.flatnonzero(received) + 1
    expected = mutual_information_bits(counts(word[received], listener[later], 3, 5))
    assert result.listening is not None and result.listening.bits == pytest.approx(float(expected))
    assert result.n_rows == 60 * 24
    assert result.code.sum() == len(talk) and result.goals == ("red", "green", "blue")
    assert result.influence is not None and result.influence.value >= 0 and result.times.tolist() == list(range(1, 25))
    assert np.mean(result.influence_at) == pytest.approx(result.influence.value)
    assert result.speaks and result.listens and result.context_independence == 1.0
    assert result.warnings == () and repr(result).startswith(result.verdict) and "listener_0 listens" in result.verdict


def test_a_listener_of_q_values_has_no_causal_influence(talk: Recording) -> None:
    """The softmax of its Q values is not how likely its actions are."""
    policies = Run.open(talk.run_path).policies()  # type: ignore[arg-type]
    policies["listener"] = QPolicy(policies["listener"].group, MLPConfig())
    result = communication(
        talk, speaker="speaker_0", listener="listener_0", goal="goal", n_shuffles=20, n_bootstrap=20, policies=policies
    )
    assert result.influence is None and "the policy acts greedily" in repr(result)


def test_influence_equals_a_loop_over_messages(talk: Recording) -> None:
    result = communication(talk, speaker="speaker_0", listener="listener_0", goal="goal", n_shuffles=20, n_bootstrap=20)
    policy = Run.open(talk.run_path).policies()["listener"]  # type: ignore[arg-type]
    seen = torch.from_numpy(talk.steps("listener", "observation").sel(t=slice(1, 25)).to_numpy())
    messages, often = np.unique(seen[:, 0, 8:].numpy(), axis=0, return_counts=True)
    p = often / often.sum()
    expected = []
    for row in seen[:50]:
        answers = []
        for message in messages:
            row[0, 8:] = torch.from_numpy(message)
            answers.append(policy.logits(row[None])[0][0, 0].softmax(-1).detach().double().numpy())
        mixed = p @ np.array(answers)
        expected.append(sum(w * np.sum(a * np.log2(a / mixed)) for w, a in zip(p, answers)))
    at = talk.rows["t"].to_numpy()[talk.rows["t"].to_numpy() > 0][:50]
    assert np.mean(expected) == pytest.approx(result.influence_at[at - 1].mean(), abs=0.01)


def is_large(group: str) -> Callable[[Recording], np.ndarray]:
    """Whether the first component of a group's only agent's action is above its median, `[row]` bool."""

    def first_component(recording: Recording) -> np.ndarray:
        values = recording.steps(group, "action").to_numpy()[:, 0, 0]
        return np.asarray(values > np.median(values))

    return first_component


def test_a_listener_with_continuous_actions(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", "mpe/simple_speaker_listener", "env.continuous_actions=true")
    names = {"speaker": "speaker_0", "listener": "listener_0", "goal": "goal"}
    options: dict[str, Any] = names | {"message": is_large("speaker"), "n_shuffles": 20, "n_bootstrap": 20}
    with record(made, episodes=10, explore=True, sites=[], values=False, progress=False) as recording:
        result = communication(recording, **options)
        chosen = communication(recording, listener_action=is_large("listener"), **options)
        for option in ("message", "speaker_action"):
            with pytest.raises(AnalysisError, match=f"of speaker_0 is continuous: give {option}= whole values"):
                communication(recording, **options | {option: "action"})
        word, move = (is_large(group)(recording).astype(int) for group in ("speaker", "listener"))
        t = recording.rows["t"].to_numpy()
    assert result.listening is None and result.following is None and result.influence is None
    assert any(note.startswith("no listening and following: the action of listener_0 is") for note in result.notes)
    assert "whether listener_0 listens was not tested" in result.verdict and len(result.table()) == 1
    assert len(plots.information_bars(result).get_xticks()) == 1
    expected = mutual_information_bits(counts(word[t < 24], move[t > 0], 2, 2))
    assert chosen.listening is not None and chosen.listening.bits == pytest.approx(float(expected))
    assert chosen.signalling == result.signalling
    assert chosen.table()["measure"].tolist() == ["signalling", "listening", "following"]


def test_an_action_with_components_names_the_option_for_one() -> None:
    several = ActionSpec("multi_discrete", n=(2, 3), names=("walk", "say"))
    assert not_one_choice("dog_0", several, "listener_action") == (
        "the action of dog_0 has 2 components: choose one, as listener_action=('dog_0', 'action', 'walk')"
    )
    assert not not_one_choice("dog_0", ActionSpec("discrete", n=(5,)), "message")


def test_invalid_requests_are_rejected(talk: Recording) -> None:
    with pytest.raises(AnalysisError, match="did you mean 'speaker_0'"):
        communication(talk, speaker="speaker_1", listener="listener_0", goal="goal")
    with pytest.raises(AnalysisError, match="at most 64 whole values"):
        communication(talk, speaker="speaker_0", listener="listener_0", goal="goal_distance")
    with pytest.raises(AnalysisError, match="did you mean 'message_0'"):
        communication(talk, speaker="speaker_0", listener="listener_0", goal="goal", message_features="massage_0")
    mute = communication(
        talk,
        speaker="speaker_0",
        listener="listener_0",
        goal="goal",
        message_features=(),
        n_shuffles=20,
        n_bootstrap=20,
    )
    assert mute.influence is None and mute.listens is None and "no feature of the listener's" in mute.notes[0]


def test_the_code_of_two_quantities_that_neither_alone_shows(talk: Recording) -> None:
    """The message is "goal XOR key": 0 bits of the goal, 0 of the key, 1 of both."""
    run = Run.open(talk.run_path)  # type: ignore[arg-type]
    keys = {"key": lambda step: step.episode.clamp(min=0) % 2}
    with record(run, episodes=60, sites=[], name="keys", labels=keys, progress=False) as recording:
        episode = recording.rows["episode"].to_numpy()
        bit, noise = episode // 2 % 2, episode // 4 % 2
        options = {"speaker": "speaker_0", "listener": "listener_0", "goal": bit, "n_shuffles": 60, "n_bootstrap": 20}
        result = communication(recording, message=bit ^ (episode % 2), **options)
        none = communication(recording, message=noise, **options)
    assert not result.speaks and result.signalling.bits == pytest.approx(0)
    assert result.joint_codes[0].other == "key" and result.joint_codes[0].synergy == pytest.approx(1.0, abs=0.01)
    assert "and 1.00 bits of label and key together" in result.verdict and "Not shown" in result.verdict
    assert not none.joint_codes and "nor together with any" in none.verdict
    assert "further quantities and codes of three or more quantities were not tested" in none.verdict
