"""Attribution through a recurrent state, against captum called on a GRU that was unrolled by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

from marlnb.analysis.attribution.outputs import resolve_output
from marlnb.analysis.attribution.over_time.attribute import attribute_over_time
from marlnb.analysis.attribution.over_time.unrolled import Unrolled
from marlnb.errors import AnalysisError
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from tests.analysis.conftest import copy_with

LOOKBACK = 3


class ByHand(nn.Module):
    """One agent's network from four observations in a row and the state before them, to one logit."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        assert recording.run_path is not None
        self.network = Run.open(recording.run_path).policies()["agent"].actor.network

    def forward(self, seen: Tensor, state: Tensor) -> Tensor:
        x = seen.view(len(seen), LOOKBACK + 1, 1, 18)
        for step in range(LOOKBACK + 1):
            logits, state = self.network(x[:, step], state)
        return logits[:, 0, 1]


def test_it_equals_captum_on_an_unrolled_network(team: Recording) -> None:
    result = attribute_over_time(team, group="agent", to="logit", target=1, t=[10, 20], lookback=LOOKBACK, n_steps=20)
    assert result.values.shape == (24, 3, LOOKBACK + 1, 18) and result.warnings == ()
    assert np.isnan(result.values[:, 1]).all()  # agent_1 was not recorded
    assert " of agent_0, agent_2 is attributed to " in result.verdict
    observation = torch.from_numpy(team.steps("agent", "observation").to_numpy())
    state = torch.from_numpy(team.recurrent("agent").to_numpy())
    mean = observation.double().mean(0).float()
    for recorded, agent in enumerate((0, 2)):
        row = 5 * 25 + 20
        x, h = (
            observation[row - LOOKBACK : row + 1, recorded].reshape(1, -1),
            state[row - LOOKBACK, recorded][None, None],
        )
        start = mean[recorded].repeat(LOOKBACK + 1).unsqueeze(0)
        values, of_state = IntegratedGradients(ByHand(team)).attribute(
            (x, h), (start, torch.zeros_like(h)), n_steps=20, method="gausslegendre"
        )
        here = int(np.flatnonzero((result.episode == 5) & (result.t == 20))[0])
        expected = values.view(LOOKBACK + 1, 18).flip(0).detach()
        np.testing.assert_allclose(result.values[here, agent], expected, atol=2e-6)
        assert result.state_values[here, agent] == pytest.approx(of_state.sum().item(), abs=2e-6)
        logit = team.steps("agent", "logits").to_numpy()[row, recorded, 1]
        assert result.score[here, agent] == pytest.approx(logit, abs=1e-5)
    assert np.nanmax(result.relative_delta) < 1e-3
    table = result.table()
    assert table.groupby("agent")["share"].sum()["agent_0"] == pytest.approx(1)


def test_without_a_past_the_state_is_that_of_the_beginning(team: Recording) -> None:
    result = attribute_over_time(team, group="agent", agent="agent_0", t=LOOKBACK, lookback=LOOKBACK, features="auto")
    assert result.agents == ("agent_0",) and len(result.score) == 12
    np.testing.assert_array_equal(result.state_values, 0.0)
    assert result.feature_names[:2] == ("own velocity", "own position")


def test_policies_that_cannot_be_unrolled_are_rejected(team: Recording, recording: Recording) -> None:
    with pytest.raises(AnalysisError, match="no recurrent state"):
        attribute_over_time(recording, group="listener")
    with pytest.raises(AnalysisError, match="t from 0 to 24"):
        attribute_over_time(team, group="agent", t=2, lookback=5)
    with pytest.raises(AnalysisError, match="'mean', 'start' or an array"):
        attribute_over_time(team, group="agent", baseline="zero")  # type: ignore[arg-type]


def test_rows_and_given_choose_steps_and_baselines(team: Recording) -> None:
    options = {"group": "agent", "to": "logit", "target": 1, "lookback": LOOKBACK, "n_steps": 5, "agent": "agent_0"}
    whole = attribute_over_time(team, t=range(3, 12), **options)
    part = attribute_over_time(team, t=range(3, 12), rows="t >= 9 and action == 'left'", **options)
    assert "other rows do not count" in repr(part)
    action = team.steps("agent", "action").sel(agent="agent_0").to_numpy().reshape(12, 25)
    kept = np.array([action[episode, t] == 1 and t >= 9 for episode, t in zip(whole.episode, whole.t)])
    np.testing.assert_allclose(part.values, whole.values[kept], atol=1e-6)
    given = attribute_over_time(team, t=range(3, 12), given="action", **options)
    taken = np.array([action[episode, t] for episode, t in zip(whole.episode, whole.t)])
    mean = team.steps("agent", "observation").sel(agent="agent_0").to_numpy()[action.ravel() == 1].mean(0)
    alone = attribute_over_time(team, t=range(3, 12), baseline=mean, **options)
    np.testing.assert_allclose(given.values[taken == 1], alone.values[taken == 1], atol=1e-5)
    assert given.given == ("action",) and "the same action" in given.verdict and np.isfinite(given.values).all()
    with pytest.raises(AnalysisError, match="baseline='mean'"):
        attribute_over_time(team, given="action", baseline="start", **options)


def test_the_state_of_an_agent_that_is_absent_moves_on_where_all_act_at_once(team: Recording, tmp_path: Path) -> None:
    """As while playing. What an absent agent did not observe contributes nothing."""
    t = team.rows["t"].to_numpy()
    fields = {name: team.steps("agent", name).to_numpy().copy() for name in ("observation", "alive", "acting")}
    for values in fields.values():
        values[np.isin(t, (8, 9)), 0] = 0  # agent_0 is absent at two steps
    options = {"group": "agent", "agent": "agent_0", "to": "logit", "target": 1, "lookback": LOOKBACK, "n_steps": 20}
    with copy_with(team, tmp_path / "absent.h5", "agent", **fields) as absent:
        result = attribute_over_time(absent, t=10, **options)  # type: ignore[arg-type]
        here = int(np.flatnonzero(t == 10)[5])
        past = torch.from_numpy(fields["observation"][here - LOOKBACK : here + 1, 0]).reshape(1, -1)
        state = torch.from_numpy(team.recurrent("agent").to_numpy()[here - LOOKBACK, 0])[None, None]
        with torch.no_grad():
            assert result.score[5, 0] == pytest.approx(ByHand(team)(past, state).item(), abs=1e-6)
    by_lag = np.abs(result.values[5, 0]).sum(-1)
    assert (by_lag[[1, 2]] == 0).all() and (by_lag[[0, 3]] > 0).all() and result.warnings == ()
    absent.path.unlink()


def test_the_start_of_an_agent_that_appears_late_is_its_own_first_step(team: Recording, tmp_path: Path) -> None:
    t, observed = team.rows["t"].to_numpy(), team.steps("agent", "observation").to_numpy()
    fields = {name: team.steps("agent", name).to_numpy().copy() for name in ("observation", "alive", "acting")}
    for values in fields.values():
        values[t < 3, 0] = 0
    first = np.stack([observed[t == step, k].mean(0) for step, k in ((3, 0), (0, 0), (0, 1))])  # agent_1: not recorded
    options: dict[str, Any] = {"group": "agent", "t": 20, "lookback": LOOKBACK, "n_steps": 5}
    with copy_with(team, tmp_path / "late.h5", "agent", **fields) as late:
        by_name, by_hand = (attribute_over_time(late, baseline=baseline, **options) for baseline in ("start", first))
    late.path.unlink()
    np.testing.assert_allclose(by_name.values, by_hand.values, atol=1e-6)


def test_the_state_of_an_agent_that_waits_for_its_turn_does_not_move_on(team: Recording) -> None:
    assert team.run_path is not None
    policy = Run.open(team.run_path).policies()["agent"]
    unrolled = Unrolled(policy, resolve_output(policy.group.action, "logit", 1), [0, 1, 2])
    seen, action = torch.randn(2, 4, 3, 18, generator=torch.Generator().manual_seed(0)), torch.zeros(2, 3).long()
    turns = torch.ones(2, 4, 3, dtype=torch.bool)
    turns[:, 1:3, 0] = False  # agent_0 waits for two steps
    start = policy.initial_recurrent(2, torch.device("cpu"))
    assert start is not None
    with torch.no_grad():
        result = unrolled.by_agent(seen, start, action, None, turns)
        without_waiting, all_steps = (unrolled.by_agent(x, start, action, None, None) for x in (seen[:, [0, 3]], seen))
    np.testing.assert_allclose(result[:, 0], without_waiting[:, 0], atol=1e-6)
    np.testing.assert_allclose(result[:, 1:], all_steps[:, 1:], atol=1e-6)
