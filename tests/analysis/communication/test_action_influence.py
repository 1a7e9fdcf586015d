"""Influence over steps to come: on a planted circuit whose delay is known, and by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.analysis.communication import action_influence as module
from marlnb.errors import AnalysisError, ConfigError
from marlnb.groundtruth import planted
from marlnb.specs import ActionSpec
from marlnb.training.policies.agents import Agents


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Agents:
    return planted("message_code", "mlp", shared=True, seed=0, path=tmp_path_factory.mktemp("code")).agents


@pytest.mark.parametrize("network", ["mlp", "gru"])
def test_a_word_is_heard_one_step_late_and_not_remembered(network: Any, tmp_path: Path) -> None:
    subject = planted("message_code", network, shared=True, seed=0, path=tmp_path).agents
    found = mnb.action_influence(subject, "speaker_0", horizon=3, episodes=40)
    assert found.agents == ("listener_0",) and found.n_episodes == 40 and not found.warnings
    assert found.of("listener_0", 0) == (0.0, 0.0, 0.0)
    value, low, high = found.of("listener_0", 1)
    assert 0.5 < low < value < high < 0.75
    assert found.of("listener_0", 2)[0] < 0.001  # the true word is back, and it has hardly moved
    assert found.of("listener_0", 3)[1] > 0.01  # where it has gone meanwhile
    back = mnb.action_influence(subject, "listener_0", horizon=3, episodes=40)
    assert (back.values == 0).all() and back.agents == ("speaker_0",)


def test_the_next_step_is_what_the_listener_says_of_the_other_word(agents: Agents) -> None:
    """By hand: the word put into what the listener saw, nothing replayed."""
    kept: list[Any] = []
    policies = {name: policy.requires_grad_(False) for name, policy in agents.by_group.items()}
    original = module.ActionOverride

    class Kept(original):  # type: ignore[valid-type, misc]
        def __init__(self, plain: Any, *given: Any) -> None:
            super().__init__(plain, *given)
            kept.append((plain, self))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ActionOverride", Kept)
        found = mnb.action_influence(agents, "speaker_0", horizon=1, episodes=24, n_envs=8)
    names = list(agents.spec.group("listener").observation.names)
    words = [names.index(f"message_{k}") for k in range(3)]
    distances = []
    for plain, other in kept:
        for copy, t in enumerate(other.steps.tolist()):
            seen = plain.observation["listener"][t + 1, copy].clone()
            word, said = int(other.action[copy]), int(plain.action["speaker"][t, copy, 0])
            assert word != said and seen[0, words].argmax() == said
            before = policies["listener"].logits(seen)[0].softmax(-1)
            seen[0, words] = torch.eye(3)[word]
            distances.append(float((policies["listener"].logits(seen)[0].softmax(-1) - before).abs().sum() / 2))
    assert len(distances) == 24 and len(kept) == 3
    assert found.of("listener_0", 1)[0] == pytest.approx(np.mean(distances), abs=1e-6)


def test_actions_are_compared_and_runs_repeat(agents: Agents) -> None:
    asked: dict[str, Any] = {"horizon": 2, "episodes": 30, "measure": "action"}
    found = mnb.action_influence(agents, "speaker_0", **asked)
    value = found.of("listener_0", 1)[0]
    assert 0 < value <= 1 and value * 30 == pytest.approx(round(value * 30))  # a share of episodes
    np.testing.assert_array_equal(found.values, mnb.action_influence(agents, "speaker_0", **asked).values)
    noisy = mnb.action_influence(agents, "speaker_0", explore=True, **asked)
    assert noisy.of("listener_0", 0)[0] == 0  # the same noise in both rollouts
    assert list(found.table().columns) == ["agent", "lag", "value", "low", "high"] and found.horizon == 2
    assert "act" not in vars(agents.by_group["speaker"])
    assert found.to_json()["lags"][1]["value"] == value


def test_another_action_is_another_that_is_allowed() -> None:
    generator = torch.Generator().manual_seed(0)
    taken = torch.arange(400) % 4
    allowed = torch.tensor([True, True, False, True]).repeat(400, 1)
    allowed[:4] = torch.eye(4).bool()  # nothing but what was taken
    other, possible = module._another(taken, allowed, ActionSpec("discrete", (4,)), generator)
    assert not possible[:4].any() and possible[4:].all()
    assert (other[4:] != taken[4:]).all() and (other != 2)[4:].all()
    assert np.bincount(other[4:][taken[4:] == 0].numpy(), minlength=4)[[1, 3]].min() > 30
    both = torch.stack([taken, taken % 2], dim=-1)
    other, _ = module._another(both, None, ActionSpec("multi_discrete", (4, 2)), generator)
    assert (other != both).all() and other.max(0).values.tolist() == [3, 1]
    pushed, _ = module._another(torch.zeros(500, 1), None, ActionSpec("continuous", (), (-1.0,), (3.0,)), generator)
    assert -1 <= float(pushed.min()) < -0.9 and 2.9 < float(pushed.max()) <= 3


def test_what_cannot_be_asked(agents: Agents) -> None:
    with pytest.raises(AnalysisError, match="no agent 'nobody'"):
        mnb.action_influence(agents, "nobody")
    with pytest.raises(ConfigError, match="horizon, episodes and n_envs are 1 or more"):
        mnb.action_influence(agents, "speaker_0", horizon=0)
    with pytest.raises(AnalysisError, match="in no episode did 'speaker_0' act"):
        mnb.action_influence(agents, "speaker_0", horizon=16, episodes=2)
    with pytest.raises(AnalysisError, match="no measure 'kl'"):
        mnb.action_influence(agents, "speaker_0", measure="kl")  # type: ignore[arg-type]
    found = mnb.action_influence(agents, "speaker_0", horizon=1, episodes=2)
    assert "only 2 episodes" in found.warnings[0]
    with pytest.raises(AnalysisError, match="lags 0 to 1"):
        found.of("listener_0", 2)
