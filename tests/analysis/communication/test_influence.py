"""Influence between agents: exactly 0 where no information can pass, and computed by hand where it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.communication.counterfactuals import counterfactual_rows
from marlnb.analysis.communication.feature_sources import features_about
from marlnb.analysis.communication.influence import influence
from marlnb.analysis.communication.influence_result import Influence, over_episodes
from marlnb.analysis.data.rows import Rows
from marlnb.errors import AnalysisError
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
    drawn = counterfactual_rows(rows, np.ones(len(rows), bool), 1, 4, "listener_0")[0]
    assert (rows.episode[drawn] != rows.episode).all() and (rows.t[drawn] == rows.t).all()
    seen = talk.steps("listener", "observation").to_numpy()[keep]
    other = seen.copy()
    other[:, 0, 8:] = seen[drawn, 0, 8:]
    policy = run.policies()["listener"]
    before, after = (policy.logits(torch.from_numpy(x))[0].softmax(-1).detach().numpy() for x in (seen, other))
    distance = 0.5 * np.abs(before - after).sum(-1)[:, 0]
    assert result.of("listener_0", "speaker_0")[0] == pytest.approx(distance.mean(), rel=1e-3) and distance.max() > 1e-5


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


def test_counterfactuals_by_hand() -> None:
    """The agent acts for two steps in episode 0, for one in episode 1, and for three in episode 2."""
    rows = Rows(np.arange(9), np.repeat([0, 1, 2], 3), np.tile([0, 1, 2], 3))
    drawn = counterfactual_rows(rows, np.array([1, 1, 0, 1, 0, 0, 1, 1, 1], bool), 20, 0, "a")
    assert [sorted(set(of_row)) for of_row in drawn.T] == [[3, 6], [7], [2], [0, 6], [4], [5], [0, 3], [1], [0, 1, 3]]
    with pytest.raises(AnalysisError, match="but a takes part in one of these episodes only"):
        counterfactual_rows(rows, rows.episode == 1, 1, 0, "a")
    assert counterfactual_rows(rows, rows.t > 9, 1, 0, "a")[0].tolist() == rows.index.tolist()


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
    with pytest.raises(AnalysisError, match="recorded group"):
        influence(recording, "critic", group="talker")
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
