"""Influence between agents: exactly 0 where no information can pass, and computed by hand where it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.communication.counterfactuals import counterfactuals_of
from marlnb.analysis.communication.divergence import Divergence
from marlnb.analysis.communication.feature_sources import features_about
from marlnb.analysis.communication.influence import Through, influence
from marlnb.analysis.communication.influence_result import Influence, over_episodes
from marlnb.analysis.data.rows import Rows
from marlnb.errors import AnalysisError, ConfigError
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec
from marlnb.training.runs.run import Run
from tests.analysis.conftest import copy_with, make_run


@pytest.fixture(scope="module")
def talk(run: Run) -> Iterator[Recording]:
    """Sampled actions, so that the untrained speaker sends different messages."""
    with record(run, episodes=40, name="talk", explore=True, progress=False) as opened:
        yield opened


def test_attribution_to_the_speakers_message(recording: Recording) -> None:
    result = influence(recording, "observation")
    assert result.agents == result.sources == ("speaker_0", "listener_0")
    assert result.of("speaker_0", "listener_0") == (0.0, 0.0, 0.0)  # it observes nothing of the listener
    by_hand = attribute(recording, group="listener").values[:, 0, 8:].sum(-1)
    value, low, high = result.of("listener_0", "speaker_0")
    assert value == pytest.approx(np.abs(by_hand).mean(), rel=1e-4) and low < value < high


@pytest.mark.parametrize("through", ["observation", "critic"])
def test_a_mask_chooses_episodes(recording: Recording, through: Through) -> None:
    by_number, by_mask = (
        influence(recording, through, n_steps=2, episodes=episodes, progress=False)
        for episodes in (range(20), np.arange(60) < 20)
    )
    assert by_mask.n_episodes == 20
    np.testing.assert_array_equal(by_mask.values, by_number.values)


def test_other_messages_change_the_listeners_actions(talk: Recording, run: Run) -> None:
    policies = run.policies()
    head = policies["listener"].actor.network.head
    first = policies["listener"].actor.network.hidden[0].linear
    with torch.no_grad():  # a listener that depends on the messages
        first.weight[:, 8:] *= 30
        head.weight.mul_(100)
    result = influence(talk, "communication", policies=policies, n_counterfactuals=4, seed=1)
    assert result.of("speaker_0", "listener_0") == (0.0, 0.0, 0.0)
    value, low, high = result.of("listener_0", "speaker_0")
    assert 0 < low < value < high and result.units == "nats"
    with torch.no_grad():  # and one that ignores them
        first.weight[:, 8:] = 0
    deaf = influence(talk, "communication", policies=policies, measure="total_variation")
    assert deaf.of("listener_0", "speaker_0")[0] == pytest.approx(0, abs=1e-6)


def test_the_divergence_by_hand(talk: Recording, run: Run) -> None:
    result = influence(
        talk, "communication", n_counterfactuals=1, measure="total_variation", episodes=range(20), seed=4
    )
    keep = np.isin(talk.rows["episode"], range(20))
    rows = Rows(np.flatnonzero(keep), talk.rows["episode"].to_numpy()[keep], talk.rows["t"].to_numpy()[keep])
    drawn = counterfactuals_of(rows, np.ones(len(rows), bool), None, 1, 4, "listener_0").positions[0]
    assert (rows.episode[drawn] != rows.episode).all() and (rows.t[drawn] == rows.t).all()
    seen = talk.steps("listener", "observation").to_numpy()[keep]
    other = seen.copy()
    other[:, 0, 8:] = seen[drawn, 0, 8:]
    policy = run.policies()["listener"]
    before, after = (policy.logits(torch.from_numpy(x))[0].softmax(-1).detach().numpy() for x in (seen, other))
    distance = 0.5 * np.abs(before - after).sum(-1)[:, 0]
    assert result.of("listener_0", "speaker_0")[0] == pytest.approx(distance.mean(), rel=1e-3) and distance.max() > 1e-5


@pytest.fixture(scope="module")
def listening(run: Run) -> Mapping[str, Policy]:
    """Policies whose listener depends on the messages."""
    policies = run.policies()
    actor = policies["listener"].actor
    with torch.no_grad():
        actor.network.hidden[0].linear.weight[:, 8:] *= 30
        actor.network.head.weight.mul_(100)
    return policies


@pytest.fixture(scope="module")
def skewed(talk: Recording, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """Word 0 in 32 of 40 episodes, words 1 and 2 in four each."""
    observation = talk.steps("listener", "observation").to_numpy()
    words = np.repeat([0, 1, 2], [32, 4, 4])[np.unique(talk.rows["episode"], return_inverse=True)[1]]
    observation[:, 0, 8:] = np.eye(3)[words]
    path = tmp_path_factory.mktemp("skewed") / "skewed.h5"
    with copy_with(talk, path, "listener", observation=observation) as opened:
        yield opened


class Enumeration:
    """Equation 2 of Jaques et al. with the frequencies of the words in the other episodes, in numpy."""

    def __init__(self, recording: Recording, policies: Mapping[str, Policy]) -> None:
        observation = torch.from_numpy(recording.steps("listener", "observation").to_numpy())
        words, self.word = np.unique(observation[:, 0, 8:].numpy(), axis=0, return_inverse=True)
        self.word = self.word.reshape(-1)
        self.t, self.episode = (recording.rows[name].to_numpy() for name in ("t", "episode"))
        probabilities = []
        for word in torch.from_numpy(words):
            observation[:, 0, 8:] = word
            logits = policies["listener"].logits(observation)[0][:, 0].detach().double()
            probabilities.append(logits.softmax(-1).numpy())
        self.p = np.stack(probabilities, axis=1)  # [row, word, action]

    def value(self, measure: str, episodes: np.ndarray) -> float:
        """The mean over rows; in the KL divergence a row's own word counts half."""
        chosen = np.isin(self.episode, episodes)
        p, word, t = self.p[chosen], self.word[chosen], self.t[chosen]
        own = np.eye(p.shape[1])[word]  # [row, word]
        frequency = np.stack([own[t == step].sum(0) for step in range(t.max() + 1)])[t] - own
        frequency += 0.5 * own if measure == "kl" else 0
        mean = np.einsum("rw,rwa->ra", frequency / frequency.sum(1, keepdims=True), p)
        actual = p[np.arange(len(p)), word]
        by_row = actual * np.log(actual / mean) if measure == "kl" else 0.5 * np.abs(actual - mean)
        return float(by_row.sum(-1).mean())

    def standard_error(self, measure: str) -> float:
        """The jackknife's over episodes, which includes the noise of the frequencies."""
        episodes = np.unique(self.episode)
        values = [self.value(measure, episodes[episodes != left_out]) for left_out in episodes]
        return float(np.sqrt((len(episodes) - 1) * np.var(values)))


@pytest.mark.parametrize("measure", ["kl", "total_variation"])
def test_few_messages_are_enumerated(
    skewed: Recording, talk: Recording, listening: Mapping[str, Policy], measure: Divergence
) -> None:
    enumeration = Enumeration(skewed, listening)
    value, low, high = influence(skewed, "communication", policies=listening, measure=measure).of(
        "listener_0", "speaker_0"
    )
    assert value == pytest.approx(enumeration.value(measure, enumeration.episode), rel=1e-4) and value > 0.05
    assert (high - low) / (2 * 1.96) == pytest.approx(enumeration.standard_error(measure), rel=0.2)
    mixed = Enumeration(talk, listening)
    result = influence(talk, "communication", policies=listening, measure=measure)
    expected = mixed.value(measure, mixed.episode)
    assert result.of("listener_0", "speaker_0")[0] == pytest.approx(expected, rel=1e-4)


def test_a_few_drawn_messages_have_little_bias(talk: Recording, listening: Mapping[str, Policy]) -> None:
    """Without the half weight of the row's own message, the first value is about three times the second."""
    drawn, listed = (
        influence(talk, "communication", policies=listening, n_counterfactuals=n, group="listener") for n in (3, 32)
    )
    value = drawn.of("listener_0", "speaker_0")[0]
    assert value == pytest.approx(listed.of("listener_0", "speaker_0")[0], rel=0.1)


def test_attribution_of_a_critic(recording: Recording) -> None:
    result = influence(recording, "critic", group="listener", episodes=range(30))
    values = attribute(recording, group="listener", to="value", episodes=range(30)).values
    assert result.of("listener_0", "speaker_0")[0] == pytest.approx(np.abs(values[..., :3].sum(-1)).mean(), rel=1e-4)
    assert result.units == "reward" and result.warnings == ()


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    options = ("n_envs=4", "rollout_steps=25", "frames=100", "algorithm=ippo", "algorithm.epochs=1")
    path = tmp_path_factory.mktemp("runs") / "hearing"
    made = make_run(path, "mpe/simple_spread", *options, "model=gnn", "critic=mlp")
    with record(made, episodes=4, progress=False) as opened:
        yield opened


def test_networks_that_read_several_agents(hearing: Recording) -> None:
    seen = influence(hearing, "observation", to="action")
    assert (seen.values > 0).all() and any("only 4 episodes" in note for note in seen.warnings)
    exchanged = influence(hearing, "communication")
    off = ~np.eye(3, dtype=bool)
    assert (exchanged.values[off] > 0).all() and np.isnan(np.diag(exchanged.values)).all()
    critic = influence(hearing, "critic")  # IPPO's: each agent's from its own observation
    assert (critic.values[off] == 0).all() and (np.diag(critic.values) > 0).all()
    assert "NOT TO BE TRUSTED" in repr(critic) and len(critic.table()) == 9


def test_a_message_that_is_always_the_same_has_no_influence_where_agents_die(
    talk: Recording, hearing: Recording, tmp_path: Path
) -> None:
    """In every second episode an agent is dead from the tenth step on: its observation is zero."""
    for recording, group, features in ((talk, "listener", slice(8, None)), (hearing, "agent", slice(None))):
        observation = recording.steps(group, "observation").to_numpy()
        alive = np.ones(observation.shape[:2], bool)
        alive[:, -1] = (recording.rows["episode"] % 2 == 0) | (recording.rows["t"] < 10)
        observation[:, -1, features] = 1.0
        changed = copy_with(
            recording, tmp_path / "dies.h5", group,
            observation=observation * alive[..., None], alive=alive, acting=alive,
        )  # fmt: skip
        with changed:
            result = influence(changed, "communication", group=group)
            speaker, readers = (
                ("speaker_0", ["listener_0"]) if group == "listener" else ("agent_2", ["agent_0", "agent_1"])
            )
            assert [result.of(reader, speaker) for reader in readers] == [(0, 0, 0)] * len(readers)


def test_features_are_about_the_agents_that_they_name() -> None:
    action, talk = ActionSpec("discrete", n=(2,)), ActionSpec("discrete", n=(2,), names=("say_0", "say_1"))
    names = ("velocity_x", "other_hunter_0_dx", "other_hunter_1_dx", "prey_0_dx", "message_0")
    hunters = GroupSpec("hunter", ("hunter_0", "hunter_1", "hunter_2"), ObservationSpec((5,), names=names), action)
    prey = GroupSpec("prey", ("prey_0",), ObservationSpec((1,), names=("hunter_1_dx",)), talk)
    env = EnvSpec("chase", (hunters, prey))
    assert features_about(env, "hunter_1") == {"hunter_0": [1], "hunter_2": [2], "prey_0": [3, 4]}
    assert features_about(env, "prey_0") == {"hunter_1": [0]}
    feature_sources = {"hunter_1": {"hunter_2": ["message_*"]}}
    assert features_about(env, "hunter_1", feature_sources) == {"hunter_2": [4]}
    loud = EnvSpec("chase", (GroupSpec("hunter", hunters.agents, hunters.observation, talk), prey))
    with pytest.raises(AnalysisError, match="speaker of the messages that 'hunter_0' observes is ambiguous"):
        features_about(loud, "hunter_0")
    with pytest.raises(AnalysisError, match="message_9"):
        features_about(env, "hunter_1", {"hunter_1": {"prey_0": "message_9"}})


def test_intervals_are_over_episodes() -> None:
    episode = np.repeat(np.arange(40), 50)
    level = np.random.default_rng(0).normal(size=40)
    by_row = level[episode][:, None] + np.zeros((2000, 1))
    value, low, high, n = over_episodes(by_row, episode, 0)
    assert n == 40 and value[0] == pytest.approx(level.mean())
    assert (high - low)[0] == pytest.approx(2 * 1.96 * level.std() / 40**0.5, rel=0.15)


def test_invalid_requests_are_rejected(recording: Recording) -> None:
    with pytest.raises(AnalysisError, match="did you mean 'critic'"):
        influence(recording, "critics")  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match="no measure 'KL'"):
        influence(recording, "communication", measure="KL")  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match="recorded group"):
        influence(recording, "critic", group="talker")
    with pytest.raises(ConfigError, match="n_counterfactuals must be at least 1; got 0"):
        influence(recording, "communication", n_counterfactuals=0)
    feature_sources = {"listener_0": {"speaker_9": ["message_*"]}}
    with pytest.raises(AnalysisError, match="no agent 'speaker_9' in feature_sources"):
        influence(recording, "observation", feature_sources=feature_sources)


def test_the_verdict_names_no_strongest_influence_where_all_are_0() -> None:
    values = np.array([[1.0, 0.0], [0.0, 1.0]])
    result = Influence(values, values, values, ("a", "b"), ("a", "b"), "critic", "mean |contribution|", "reward", 40)
    assert result.verdict.startswith(
        "No influence between agents through critic: exactly 0 in 2 of 2 pairs (mean |contribution|); an attribution"
    )
    one = replace(result, values=np.array([[1.0, 0.5], [0.0, 1.0]]))
    assert "b influences a most" in one.verdict and "; 1 is exactly 0; " in one.verdict
