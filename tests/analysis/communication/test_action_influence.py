"""Influence of single actions on later steps: on a planted circuit with a known delay, and computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.analysis.communication import action_influence as module
from marlnb.envs.pettingzoo import CustomConfig
from marlnb.errors import AnalysisError, ConfigError
from marlnb.groundtruth import planted
from marlnb.specs import ActionSpec
from marlnb.training.policies.agents import Agents
from tests.recording.runs import make_run


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Agents:
    return planted("message_code", "mlp", shared=True, seed=0, path=tmp_path_factory.mktemp("code")).agents


@pytest.mark.parametrize("network", ["mlp", "gru"])
def test_a_message_acts_one_step_later_and_is_not_remembered(network: Any, tmp_path: Path) -> None:
    subject = planted("message_code", network, shared=True, seed=0, path=tmp_path).agents
    result = mnb.action_influence(subject, "speaker_0", horizon=3, episodes=40)
    assert result.agents == ("listener_0",) and result.n_episodes == 40 and not result.warnings
    assert result.of("listener_0", 0) == (0.0, 0.0, 0.0)
    value, low, high = result.of("listener_0", 1)
    assert 0.5 < low < value < high < 0.75
    assert result.of("listener_0", 2)[0] < 0.001  # the true message is back, and the listener has hardly moved
    assert result.of("listener_0", 3)[1] > 0.01  # it is in another position by now
    back = mnb.action_influence(subject, "listener_0", horizon=3, episodes=40)
    assert (back.values == 0).all() and back.agents == ("speaker_0",)


def test_the_effect_equals_the_listeners_response_to_the_other_message(agents: Agents) -> None:
    """Computed by putting the other message into the listener's recorded observation."""
    overrides: list[Any] = []
    policies = {name: policy.requires_grad_(False) for name, policy in agents.by_group.items()}
    original = module.ActionOverride

    class RecordedOverride(original):  # type: ignore[valid-type, misc]
        def __init__(self, baseline: Any, *arguments: Any) -> None:
            super().__init__(baseline, *arguments)
            overrides.append((baseline, self))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ActionOverride", RecordedOverride)
        result = mnb.action_influence(agents, "speaker_0", horizon=1, episodes=24, n_envs=8)
    names = list(agents.spec.group("listener").observation.names)
    features = [names.index(f"message_{k}") for k in range(3)]
    distances = []
    for baseline, override in overrides:
        for env_index, t in enumerate(override.steps.tolist()):
            observation = baseline.observation["listener"][t + 1, env_index].clone()
            message, spoken = int(override.action[env_index]), int(baseline.action["speaker"][t, env_index, 0])
            assert message != spoken and observation[0, features].argmax() == spoken
            before = policies["listener"].logits(observation)[0].softmax(-1)
            observation[0, features] = torch.eye(3)[message]
            after = policies["listener"].logits(observation)[0].softmax(-1)
            distances.append(float((after - before).abs().sum() / 2))
    assert len(distances) == 24 and len(overrides) == 3
    assert result.of("listener_0", 1)[0] == pytest.approx(np.mean(distances), abs=1e-6)


def test_actions_are_compared_and_results_are_reproducible(agents: Agents) -> None:
    options: dict[str, Any] = {"horizon": 2, "episodes": 30, "measure": "action"}
    result = mnb.action_influence(agents, "speaker_0", **options)
    value = result.of("listener_0", 1)[0]
    assert 0 < value <= 1 and value * 30 == pytest.approx(round(value * 30))  # a share of episodes
    np.testing.assert_array_equal(result.values, mnb.action_influence(agents, "speaker_0", **options).values)
    noisy = mnb.action_influence(agents, "speaker_0", explore=True, **options)
    assert noisy.of("listener_0", 0)[0] == 0  # the same noise in both rollouts
    assert list(result.table().columns) == ["agent", "lag", "value", "low", "high"] and result.horizon == 2
    assert "act" not in vars(agents.by_group["speaker"])
    assert result.to_json()["lags"][1]["value"] == value


def test_actions_are_replaced_only_in_the_episodes_that_count(tmp_path: Path) -> None:
    """Envs whose episode has ended play others, of other masks, until the last one ends."""
    env = CustomConfig(entry_point="tests.envs.sample_envs:Strict", workers=0)
    run = make_run(tmp_path / "run", env, centralised=False)
    result = mnb.action_influence(run, "a_0", horizon=2, episodes=16)
    assert result.n_episodes == 16


def test_the_replacement_is_another_allowed_action() -> None:
    generator = torch.Generator().manual_seed(0)
    taken = torch.arange(400) % 4
    allowed = torch.tensor([True, True, False, True]).repeat(400, 1)
    allowed[:4] = torch.eye(4).bool()  # only the action that was taken
    other, has_other = module._other_actions(taken, allowed, ActionSpec("discrete", (4,)), generator)
    assert not has_other[:4].any() and has_other[4:].all()
    assert (other[4:] != taken[4:]).all() and (other != 2)[4:].all()
    assert np.bincount(other[4:][taken[4:] == 0].numpy(), minlength=4)[[1, 3]].min() > 30
    both = torch.stack([taken, taken % 2], dim=-1)
    other, _ = module._other_actions(both, None, ActionSpec("multi_discrete", (4, 2)), generator)
    assert (other != both).all() and other.max(0).values.tolist() == [3, 1]
    continuous, _ = module._other_actions(
        torch.zeros(500, 1), None, ActionSpec("continuous", (), (-1.0,), (3.0,)), generator
    )
    assert -1 <= float(continuous.min()) < -0.9 and 2.9 < float(continuous.max()) <= 3


def test_invalid_requests_are_rejected(agents: Agents) -> None:
    with pytest.raises(AnalysisError, match="no agent 'missing'"):
        mnb.action_influence(agents, "missing")
    with pytest.raises(ConfigError, match="horizon must be at least 1; got 0"):
        mnb.action_influence(agents, "speaker_0", horizon=0)
    with pytest.raises(AnalysisError, match="in no episode 'speaker_0' acted"):
        mnb.action_influence(agents, "speaker_0", horizon=16, episodes=2)
    with pytest.raises(AnalysisError, match="no measure 'kl'"):
        mnb.action_influence(agents, "speaker_0", measure="kl")  # type: ignore[arg-type]
    result = mnb.action_influence(agents, "speaker_0", horizon=1, episodes=2)
    assert "only 2 episodes" in result.warnings[0]
    with pytest.raises(AnalysisError, match="lags: 0 to 1"):
        result.of("listener_0", 2)
