"""roles: planted teams and roles are found with the right agents; identical agents and continua are not roles."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from marlnb.analysis.representations import roles as module
from marlnb.analysis.representations.role_features import WindowFeatures, behaviour_features
from marlnb.analysis.representations.roles import gap_between, roles
from marlnb.analysis.representations.roles_result import Roles
from marlnb.errors import AnalysisError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run

RNG = np.random.default_rng(0)
N = 60
HELD = RNG.integers(0, 3, N)
NAMES = tuple(f"agent_{k}" for k in range(4))


def planted(
    monkeypatch: pytest.MonkeyPatch, recording: Recording, values: np.ndarray, windows_per_episode: int = 1
) -> Roles:
    """Roles of `[window, agent, feature]` values that replace those of a recording."""
    names = NAMES[: values.shape[1]]
    features = tuple(f"unit {k}" for k in range(values.shape[2]))
    episode, t = np.divmod(np.arange(len(values)), windows_per_episode)
    features_of_windows = WindowFeatures(values, episode, t, names, features)
    monkeypatch.setattr(module, "behaviour_features", lambda *arguments: features_of_windows)
    return roles(recording, n_shuffles=20, max_roles=4)


def noise(n_agents: int, n_features: int = 5) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((N, n_agents, n_features))


def test_two_planted_teams(monkeypatch: pytest.MonkeyPatch, recording: Recording) -> None:
    values = noise(4)
    values[:, [1, 3], :2] += 4
    result = planted(monkeypatch, recording, values)
    assert result.has_teams and result.teams == [["agent_0", "agent_2"], ["agent_1", "agent_3"]]
    assert result.agents_clustering.p_value == 1 / 21 and result.agents_clustering.stability == 1.0
    assert result.distances[0, 1] > 3 * result.distances[0, 2]


def test_identical_agents_have_no_roles(monkeypatch: pytest.MonkeyPatch, recording: Recording) -> None:
    result = planted(monkeypatch, recording, noise(3))
    assert not result.has_teams and not result.has_roles
    assert "no permanent roles of agents found" in repr(result) and "no roles over time found" in result.verdict


@pytest.mark.parametrize("n_agents", [2, 3])
def test_what_lasts_for_an_episode_makes_no_teams_and_no_division(
    monkeypatch: pytest.MonkeyPatch, recording: Recording, n_agents: int
) -> None:
    """Each agent has a random trait in each of 20 episodes of ten windows; then agent_0 differs in all of them."""
    rng = np.random.default_rng(5)
    traits = np.repeat(rng.choice([-3.0, 3.0], (20, n_agents, 2)), 10, axis=0)
    values = traits + 0.5 * rng.standard_normal((200, n_agents, 2))
    result = planted(monkeypatch, recording, values, 10)
    assert not result.has_teams and result.has_roles and result.division_p > 0.05
    values[:, 0] += 6
    permanent = planted(monkeypatch, recording, values, 10)
    assert permanent.has_teams and permanent.team.tolist() == [0, 1, 1][:n_agents]
    if n_agents == 2:
        assert permanent.agents_clustering.stability is None
        assert "stability is not defined for teams of one agent" in permanent.verdict


def test_roles_that_agents_exchange(monkeypatch: pytest.MonkeyPatch, recording: Recording) -> None:
    """In each window one of three agents, drawn at random, is the chaser."""
    chaser = np.eye(3)[HELD].astype(bool)
    values = noise(3)
    values[chaser, :3] += 7
    result = planted(monkeypatch, recording, values)
    assert not result.has_teams and result.has_roles and result.states_clustering.n == 2
    assert adjusted_rand_score(chaser.ravel(), result.role) == 1.0
    assert result.division == 2.0 and result.division_chance < 1.8 and result.divided
    np.testing.assert_allclose(result.taken[:, 1], chaser.mean(axis=0))  # role 1 is the rarer
    assert "divided among the agents (" in result.verdict


def test_a_ring_is_a_continuum_without_roles(monkeypatch: pytest.MonkeyPatch, recording: Recording) -> None:
    angle = np.random.default_rng(2).uniform(0, 2 * np.pi, (200, 2))
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=2)
    values = np.concatenate([ring, 0.1 * np.random.default_rng(3).standard_normal((200, 2, 3))], axis=2)
    result = planted(monkeypatch, recording, np.concatenate([values] * 1))
    assert result.states_clustering.gap is not None and result.states_clustering.gap < 1.25 and not result.has_roles


def test_the_gap_by_hand() -> None:
    """Two rows of eight points a distance 1 apart, 100 from each other: to the fifth neighbour 5 at the edge, and 104
    to the fifth of the others."""
    points = np.concatenate([np.arange(8.0), np.arange(8.0) + 107])[:, None]
    result = gap_between(points, np.repeat([0, 1], 8))
    assert 15 < result < 40
    assert gap_between(np.arange(40.0)[:, None], np.repeat([0, 1], 20)) < 1.7
    dust = np.repeat([0.0, 1.0], 8)[:, None] + 1e-16 * np.arange(16)[:, None]
    assert gap_between(dust, np.repeat([0, 1], 8)) == 0  # two points, eight times each: nothing to compare a gap with


def test_behaviour_in_windows_by_hand(team: Recording) -> None:
    """The team's episodes have 25 steps, five windows each; the first step of an episode changes no action."""
    result = behaviour_features(team, None, window=5, checkpoint=None)
    assert result.t[:7].tolist() == [0, 5, 10, 15, 20, 0, 5] and result.episode[:7].tolist() == [0] * 5 + [1] * 2
    action, reward = (team.steps("agent", name).to_numpy().reshape(12, 25, 2) for name in ("action", "reward"))
    changed = np.concatenate([np.zeros((12, 1, 2)), action[:, 1:] != action[:, :-1]], axis=1)
    for feature, expected in (("changes of action", changed), ("reward", reward)):
        values = result.values[..., result.features.index(feature)]
        np.testing.assert_allclose(values, expected.reshape(60, 5, 2).mean(1), rtol=1e-5)


def test_from_a_recording(team: Recording) -> None:
    units = roles(team, site="agent/actor/gru", window=5, n_shuffles=20)
    assert units.agents == ("agent_0", "agent_2") and units.points.shape == (12 * 5 * 2, 2)
    first = team["agent/actor/gru"].sel(agent="agent_2", episode=0, t=slice(0, 5)).to_numpy().mean(axis=0)
    flat = np.stack([team["agent/actor/gru"].sel(agent=a).to_numpy().reshape(60, 5, -1).mean(1) for a in units.agents])
    expected = (first - flat.reshape(120, -1).mean(0)) / flat.reshape(120, -1).std(0)
    assert units.profile.shape[1] == 64 and np.isfinite(expected).all()
    assert any("only 12 episodes" in note for note in units.warnings)
    behaviour = roles(team, n_shuffles=20)
    assert behaviour.features[-2:] == ("changes of action", "reward") and len(behaviour.role) == 24
    with pytest.raises(AnalysisError, match="2 or more agents"):
        roles(team, agents=["agent_0"])
    run = Run.open(team.path.parents[1])
    with record(run, episodes=1, name="one", values=False, progress=False) as single:
        with pytest.raises(AnalysisError, match="at least 2 recorded episodes, got 1"):
            roles(single, window=5, n_shuffles=20)
