"""event_average: averages by hand, windows within episodes, overlaps and controls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marlnb import plots
from marlnb.analysis.representations.event_average import event_average, response_p_values
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import AnalysisError
from marlnb.experiment import Experiment
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.train import train

SITE = "listener/actor/hidden_1"


def at(recording: Recording, *times: int) -> np.ndarray:
    return np.isin(recording.rows["t"].to_numpy(), times)


def test_averages_equal_those_by_hand(recording: Recording) -> None:
    rng = np.random.default_rng(1)
    event = rng.random(len(recording)) < 0.06
    result = event_average(recording, site=SITE, event=event, onset="every", before=2, after=3, n_shuffles=20)
    x, rows = recording[SITE].to_numpy()[:, 0].astype(float), recording.rows
    episode, t = rows["episode"].to_numpy(), rows["t"].to_numpy()
    for place, lag in enumerate(range(-2, 4)):
        values = [
            x[(episode == episode[row]) & (t == t[row] + lag)][0]
            for row in np.flatnonzero(event)
            if 0 <= t[row] + lag < 25
        ]
        assert result.n_events[place] == len(values)
        np.testing.assert_allclose(result.mean[place], np.mean(values, axis=0), rtol=1e-6)
    assert result.lags.tolist() == [-2, -1, 0, 1, 2, 3]
    assert (result.low <= result.mean).all() and (result.mean <= result.high).all()


def test_a_response_is_tested_against_event_times_of_other_episodes(recording: Recording) -> None:
    rng = np.random.default_rng(2)
    event = rng.random(len(recording)) < 0.05
    reward = recording.steps("listener", "reward").to_numpy()[:, 0]
    nothing = event_average(recording, site=SITE, event=event, before=1, after=1, n_shuffles=40)
    assert (
        nothing.p_value > 0.05
    ).all() and "does not respond to label beyond chance; the largest response is that of unit " in nothing.verdict
    low = reward < np.quantile(reward, 0.1)
    result = event_average(recording, field="reward", agent="listener_0", event=low, before=1, after=1, n_shuffles=40)
    assert result.p_value.tolist() == [1 / 41]
    assert result.verdict.startswith(
        "1 of 1 channels of reward of listener_0 responds to label; the largest response is that of reward at lag +"
    )
    assert "corrected p = 0.024" in result.verdict and len(repr(result).splitlines()) <= 5


def test_p_values_are_uniform_if_the_mean_is_one_more_shuffle() -> None:
    """`P(smallest of all channels <= k / 21) = k / 21` up to the error of 300 draws, with 20 shuffles."""
    rng, n_events = np.random.default_rng(0), np.full(4, 30)
    draws = rng.normal(size=(300, 21, 4, 16))
    smallest = np.array([response_p_values(mean, shuffled, n_events).min() for mean, *shuffled in draws])
    for k in (1, 5, 10):
        assert abs(np.mean(smallest <= k / 21 + 1e-9) - k / 21) < 3 * np.sqrt(k / 21 * (1 - k / 21) / 300)
    draws[:, 0, 2, 7] += 8
    assert np.mean([response_p_values(mean, shuffled, n_events)[7] <= 1 / 21 for mean, *shuffled in draws]) > 0.95


def test_what_responds_most_is_among_what_responds_beyond_chance(recording: Recording) -> None:
    """p-values are of standardised responses, so the largest response need not have the smallest."""
    event = np.random.default_rng(2).random(len(recording)) < 0.05
    result = event_average(recording, site=SITE, event=event, before=1, after=1, n_shuffles=20, n_bootstrap=20)
    first, second, third = result.order[:3]
    p_value = np.where(np.isin(np.arange(64), (second, third)), 0.04, 0.19)
    result = replace(result, p_value=p_value)
    assert result.order[:3].tolist() == [second, third, first] and result.verdict.startswith("2 of 64 channels of ")
    assert (
        f"to label; the largest response is that of unit {second} at lag " in result.verdict
        and "p = 0.04;" in result.verdict
    )


def test_lags_with_few_events_are_no_response(recording: Recording) -> None:
    """Events at 3 in 40 episodes, and one at 24: only this one has lags before -3."""
    event = at(recording, 3) & (recording.rows["episode"].to_numpy() < 40)
    event[np.flatnonzero(at(recording, 24))[50]] = True
    options = {"site": SITE, "event": event, "after": 0, "n_shuffles": 20, "n_bootstrap": 20}
    result = event_average(recording, before=24, **options)  # type: ignore[arg-type]
    assert result.n_events.tolist() == [1] * 21 + [41] * 4 and np.isfinite(result.mean).all()
    counted = event_average(recording, before=3, **options)  # type: ignore[arg-type]
    np.testing.assert_allclose(result.response, counted.response)
    assert int(result.verdict.split("at lag ")[1].split()[0]) >= -3
    rare = event_average(recording, site=SITE, event=event & at(recording, 24), n_shuffles=20, n_bootstrap=20)
    assert rare.n_events.max() == 1 and rare.response.max() > 0  # an event without any such lag has all of them


def test_windows_end_with_the_episode(recording: Recording) -> None:
    result = event_average(recording, site=SITE, event=at(recording, 0, 24), before=1, after=1, n_shuffles=20)
    assert result.n_events.tolist() == [60, 120, 60]
    beyond = event_average(recording, site=SITE, event=at(recording, 24), before=0, after=2, n_shuffles=20)
    assert beyond.n_events.tolist() == [60, 0, 0] and np.isnan(beyond.mean[1:]).all()
    assert "no episode has some of the lags" in beyond.warnings


def test_adjacent_event_rows_are_one_event(recording: Recording) -> None:
    lasting = at(recording, 0, 1, 2, 10, 11)
    once = event_average(recording, site=SITE, event=lasting, before=0, after=2, n_shuffles=20)
    assert once.n_events.tolist() == [120] * 3 and once.overlapping == 0
    each = event_average(recording, site=SITE, event=lasting, onset="every", before=0, after=2, n_shuffles=20)
    assert each.n_events.tolist() == [300] * 3 and each.overlapping == 300
    assert any("300 of 300 events have another one in their window" in note for note in each.warnings)
    apart = event_average(
        recording, site=SITE, event=at(recording, 0, 2, 10), before=0, after=2, no_other_within=2, n_shuffles=20
    )
    assert apart.n_events.tolist() == [60] * 3 and apart.overlapping == 0


def test_overlaps_are_those_of_the_events_that_are_averaged(recording: Recording) -> None:
    """Events at 4 and 8 in half of the 60 episodes, at 4 alone in the others: 30 are left, none with another."""
    event = at(recording, 4) | (at(recording, 8) & (recording.rows["episode"].to_numpy() % 2 == 1))
    options = {"event": event, "field": "reward", "agent": "listener_0", "before": 2, "after": 6, "n_shuffles": 20}
    everything = event_average(recording, **options)  # type: ignore[arg-type]
    assert everything.n_events[2] == 90 and everything.overlapping == 60
    for within, n, overlapping in ((6, 30, 0), (4, 30, 0), (3, 90, 60)):
        result = event_average(recording, no_other_within=within, **options)  # type: ignore[arg-type]
        assert result.n_events[2] == n and result.overlapping == overlapping
        assert f"{overlapping} with another in their window" in result.verdict


def test_events_at_a_fixed_time_equal_the_control(recording: Recording) -> None:
    """The control keeps times: shuffled episodes give the same events, so nothing may lie beyond it."""
    result = event_average(recording, site=SITE, event=at(recording, 5), before=2, after=2, n_shuffles=20)
    np.testing.assert_allclose(result.mean, result.control)


def test_what_follows_the_time_alone_equals_the_control_if_agents_disappear_early(tmp_path: Path) -> None:
    """Runners leave when they are tagged; the last feature that they observe is the time."""
    agents = ("env.num_taggers=3", "env.num_runners=3", "env.num_other_agents_observed=5")
    world = ("env=tag/continuous", "env.episode_length=12", "env.grid_length=4", "env.tagging_distance=0.2", *agents)
    short = ("tuned=false", "algorithm=ippo", "n_envs=4", "rollout_steps=4", "frames=16")
    run = train(Experiment.compose(*world, *short), tmp_path / "tag", progress=False)
    with record(run, episodes=20, explore=True, progress=False) as recording:
        night = recording.rows["t"].to_numpy() % 4 >= 2
        options = {"agent": "runner_0", "n_shuffles": 20, "n_bootstrap": 20}
        result = event_average(recording, field="observation", event=night, before=2, after=2, **options)  # type: ignore[arg-type]
        assert result.channels[-1] == "time" and result.n_events[2] > result.n_events[-1] > 0
        np.testing.assert_allclose(result.mean[:, -1], result.control[:, -1])
        tuned = tuning(recording, site="runner/actor/hidden_1", label=night, **options)  # type: ignore[arg-type]
        np.testing.assert_allclose(tuned.strength, tuned.shuffled)


def test_a_planted_response_is_beyond_the_control(recording: Recording) -> None:
    speed = recording.label("listener_velocity_x").to_numpy().reshape(-1)
    fast = speed > np.quantile(speed, 0.9)
    result = event_average(
        recording, field="observation", agent="listener_0", event=fast, before=1, after=0, n_shuffles=40
    )
    assert result.channels[0] == "velocity_x"
    assert result.mean[1, 0] > result.control_high[1, 0] and result.response[0] > 3


def test_events_are_values_of_a_label_or_actions(recording: Recording) -> None:
    names = recording.spec.group("listener").action.names
    taken = recording.steps("listener", "action").to_numpy()[:, 0]
    value = int(np.bincount(taken).argmax())
    result = event_average(
        recording,
        field="reward",
        agent="listener_0",
        event="action",
        value=names[value],
        onset="every",
        before=0,
        after=0,
        n_shuffles=20,
    )
    assert result.n_events.tolist() == [np.sum(taken == value)] and result.event == f"action = {names[value]}"
    assert result.channels == ("reward",)
    with pytest.raises(AnalysisError, match="is not true or false: set value="):
        event_average(recording, site=SITE, event="goal")
    with pytest.raises(AnalysisError, match="'violet'"):
        event_average(recording, site=SITE, event="goal", value="violet")
    with pytest.raises(AnalysisError, match="never happens"):
        event_average(recording, site=SITE, event=np.zeros(len(recording), bool))
    with pytest.raises(AnalysisError, match="exactly one of"):
        event_average(recording, event=at(recording, 1))
    with pytest.raises(AnalysisError, match=r"no onset 'end'\. Valid: every, start"):
        event_average(recording, site=SITE, event=at(recording, 1), onset="end")  # type: ignore[arg-type]


def test_lags_are_turns_if_an_agent_waits(tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo.classic")
    experiment = Experiment.compose(
        *("env=pettingzoo/tictactoe", "env.workers=0", "algorithm=ippo", "n_envs=2", "rollout_steps=20", "frames=40"),
    )
    run = train(experiment, tmp_path / "noughts", progress=False)
    with record(run, episodes=30, explore=True, progress=False) as recording:
        asked = {"field": "action", "agent": "player_2", "event": "action", "value": 4}
        result = event_average(recording, before=1, after=1, n_shuffles=20, **asked)  # type: ignore[arg-type]
        acting = recording.steps("player", "acting").sel(agent="player_2").to_numpy().astype(bool)
        action = recording.steps("player", "action").sel(agent="player_2").to_numpy()[acting]
        episode = recording.rows["episode"].to_numpy()[acting]
        after = [action[k + 1] for k in np.flatnonzero(action[:-1] == 4) if episode[k] == episode[k + 1]]
        assert result.lag_unit == "turns of player_2" and result.n_events[2] == len(after) > 5
        np.testing.assert_allclose(result.mean[:, 0], [result.mean[0, 0], 4, np.mean(after)])
        assert "lag from the event (turns of player_2)" in plots.event_response(result).get_xlabel()
