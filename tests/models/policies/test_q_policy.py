"""Q policies: greedy, exploring and masked actions; values; recordings and attributions of what they learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.algorithms.configs.value_decomposition import IQLConfig, QMIXConfig
from marlnb.config import ENVIRONMENTS
from marlnb.experiment import Experiment
from marlnb.models.networks.mixers import SumMixer
from marlnb.models.policies.q_policy import QPolicy
from marlnb.training.learners import build_learners
from marlnb.training.runs.checkpoints.checkpoint import save_checkpoint
from marlnb.training.runs.run import Run
from tests.models.conftest import make_model, make_spec


def make_policy(kind: str = "mlp", *, share: bool = True) -> QPolicy:
    torch.manual_seed(3)
    policy = QPolicy(make_spec().group("walker"), make_model(kind, share))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
    return policy


@pytest.mark.parametrize("kind", ["mlp", "gru"])
@pytest.mark.parametrize("share", [True, False])
def test_without_exploring_the_largest_q_is_chosen(kind: str, share: bool) -> None:
    policy, observation = make_policy(kind, share=share), torch.randn(20, 3, 6)
    recurrent = policy.initial_recurrent(20, "cpu")
    output = policy.act(observation, recurrent=recurrent, explore=False)
    q, after = policy.actor.step(observation, recurrent)
    assert torch.equal(output.logits, q) and torch.equal(output.action, q.argmax(-1))
    assert torch.equal(output.log_prob, torch.zeros(20, 3))
    assert (output.recurrent is None) == (kind == "mlp")
    if after is not None:
        assert output.recurrent is not None and torch.equal(output.recurrent, after)
    value, _ = policy.value({"walker": observation}, recurrent=recurrent)
    torch.testing.assert_close(value, q.max(-1).values)


def test_a_share_of_epsilon_is_drawn_evenly_with_its_probability() -> None:
    """With epsilon 0.4 and 5 choices: the greedy one 0.68, each other one 0.08; 20,000 draws, 5 deviations."""
    policy = make_policy()
    policy.epsilon.fill_(0.4)
    observation = torch.randn(1, 3, 6).expand(20_000, 3, 6)
    greedy = policy.act(observation[:1], explore=False).action[0]
    output = policy.act(observation, generator=torch.Generator().manual_seed(1))
    for agent in range(3):
        counts = output.action[:, agent].bincount(minlength=5) / 20_000
        expected = torch.full((5,), 0.08).index_fill(0, greedy[agent : agent + 1], 0.68)
        assert (counts - expected).abs().max() < 0.017
        torch.testing.assert_close(output.log_prob[:, agent], expected.log()[output.action[:, agent]])


def test_forbidden_choices_are_never_made() -> None:
    policy, mask = make_policy(), torch.rand(2000, 3, 5) < 0.4
    mask[..., 3] |= ~mask.any(-1)
    observation = torch.randn(2000, 3, 6)
    for explore, epsilon in ((False, 0.0), (True, 0.0), (True, 1.0)):
        policy.epsilon.fill_(epsilon)
        output = policy.act(observation, action_mask=mask, explore=explore)
        assert mask.gather(-1, output.action.unsqueeze(-1)).all()
        if epsilon:
            torch.testing.assert_close(output.log_prob, -mask.sum(-1).log())
    assert torch.equal(output.logits.max(-1).values, policy.actor(observation).masked_fill(~mask, -1e9).max(-1).values)


def test_with_a_mixer_the_value_is_the_groups() -> None:
    policy, observation = make_policy(), torch.randn(4, 3, 6)
    alone = policy.value({"walker": observation})[0]
    policy.mixer = SumMixer()
    torch.testing.assert_close(policy.value({"walker": observation})[0], alone.sum(-1, keepdim=True).expand(4, 3))


def test_weights_from_before_there_was_a_scale_tell_values_in_reward() -> None:
    old, policy, observation = make_policy(), make_policy(), torch.randn(4, 3, 6)
    weights = {name: tensor for name, tensor in old.state_dict().items() if not name.startswith("value_")}
    policy.value_scale.fill_(7.0)
    policy.value_shift.fill_(-2.0)
    for holder, prefix in ((policy, ""), (torch.nn.ModuleDict({"policy": policy}), "policy.")):  # as in a frozen group
        holder.load_state_dict({f"{prefix}{name}": tensor for name, tensor in weights.items()})
        assert torch.equal(policy.value({"walker": observation})[0], old.actor(observation).amax(-1))
    with pytest.raises(RuntimeError, match="value_shift"):
        policy.load_state_dict(weights | {"value_scale": torch.ones(())})


@pytest.mark.parametrize("config", [IQLConfig(), QMIXConfig()], ids=["iql", "qmix"])
def test_recordings_and_attributions_reach_q_policies(tmp_path: Path, config: IQLConfig) -> None:
    env = ENVIRONMENTS.get("mpe/simple_spread")()
    experiment = Experiment(env=env, algorithm=config, model=make_model("mlp", True))
    run = Run.create(tmp_path / "run", experiment)
    learner = build_learners(experiment, run.spec)["agent"]
    with torch.no_grad():
        for parameter in learner.policy.parameters():
            parameter += 0.2 * torch.randn(parameter.shape)
    save_checkpoint(
        run.path / "checkpoints", {"learners": {"agent": learner.state_dict()}}, iteration=1, frames=0, returns={}
    )
    sites = ["agent/actor/hidden_*", *(["agent/mixer/hidden"] if isinstance(config, QMIXConfig) else [])]
    recording = mnb.record(run, episodes=3, sites=sites)
    steps = {
        name: torch.from_numpy(np.asarray(recording.steps("agent", name)))
        for name in ("observation", "action", "logits", "value")
    }
    q = learner.policy.actor(steps["observation"]).detach()
    torch.testing.assert_close(steps["logits"], q, atol=1e-5, rtol=1e-5)
    value = learner.policy.value({"agent": steps["observation"]})[0].detach()
    torch.testing.assert_close(steps["value"], value, atol=1e-5, rtol=1e-5)
    if isinstance(config, QMIXConfig):
        assert recording["agent/mixer/hidden"].shape == (75, 3, 32)
    taken = q.gather(-1, steps["action"].unsqueeze(-1)).squeeze(-1)
    expected = {("action", None): taken, ("logit", 1): q[..., 1], ("value", None): value}
    for (to, target), score in expected.items():
        attribution = mnb.attribute(recording, group="agent", to=to, target=target, n_steps=100)  # type: ignore[arg-type]
        torch.testing.assert_close(torch.from_numpy(attribution.score), score, atol=1e-4, rtol=1e-4)
        assert np.abs(attribution.convergence_delta).max() < 0.05 * np.abs(attribution.values).sum(-1).max()
