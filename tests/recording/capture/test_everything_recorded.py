"""Whatever a run's policies have is recorded: critics, their states, mixers, attention; in mixtures and with turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.experiment import Experiment
from marlnb.models.hooks.capture import all_sites
from marlnb.recording.capture.recompute import TOLERANCE, in_critic, recompute
from marlnb.recording.capture.recorder import record
from marlnb.training.learners import build_learners
from marlnb.training.runs.checkpoints.checkpoint import save_checkpoint
from marlnb.training.runs.run import Run

SPREAD, TAG = "env=mpe/simple_spread", "env=mpe/simple_tag"
SMALL = ("model.hidden=[6]", "seed=1")
RECURRENT = ("model=gru", "model.recurrent_size=4", *SMALL)
CASES: dict[str, tuple[str, ...]] = {
    "mappo-gru": (SPREAD, "algorithm=mappo", *RECURRENT),
    "ippo-lstm-critic": (SPREAD, "algorithm=ippo", *SMALL, "critic=lstm", "critic.recurrent_size=4"),
    "qmix-gru": (SPREAD, "algorithm=qmix", *RECURRENT),
    "qmix": (SPREAD, "algorithm=qmix", *SMALL),
    "vdn": (SPREAD, "algorithm=vdn", *SMALL),
    "maddpg": (SPREAD, "algorithm=maddpg", "env.continuous_actions=true", *SMALL),
    "masac": (SPREAD, "algorithm=masac", *SMALL),
    "attention": (
        SPREAD,
        "algorithm=mappo",
        "model=mlp",
        "critic=attention",
        "critic.units=4",
        "critic.heads=2",
        *SMALL,
    ),
    "mixture": (TAG, "algorithms.adversary=mappo", "algorithms.agent=iql", "models.agent=gru", *SMALL),
    "mixture-matd3": (TAG, "algorithms.adversary=matd3", "algorithms.agent=ippo", *SMALL),
}


def untrained(path: Path, *overrides: str) -> Run:
    experiment = Experiment.compose(*overrides)
    run = Run.create(path, experiment)
    learners = build_learners(experiment, run.spec, "cpu")
    with torch.no_grad():
        for learner in learners.values():
            for parameter in learner.policy.parameters():
                parameter += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4))
    state = {"learners": {name: learner.state_dict() for name, learner in learners.items()}}
    save_checkpoint(run.path / "checkpoints", state, iteration=1, frames=0, returns={})
    return run


@pytest.mark.parametrize("name", list(CASES))
def test_every_site_and_state_is_there_and_right(name: str, tmp_path: Path) -> None:
    """Recomputed from nothing but what the file holds, every site and value is what was recorded."""
    run = untrained(tmp_path / "run", *CASES[name])
    policies = run.policies()
    with record(run, sites="*", episodes=3, n_envs=2, explore=True, progress=False) as recording:
        assert recording.sites == [site.name for site in all_sites(policies)]
        observations = {group: recording.steps(group, "observation").to_torch() for group in recording.groups}
        for group, policy in policies.items():
            states: dict[str, Any] = {}
            if policy.recurrent_shape is not None:
                states["recurrent"] = recording.recurrent(group).to_torch()
            if policy.critic_recurrent_shape is not None:
                states["critic_recurrent"] = recording.recurrent(group, "critic").to_torch()
            recomputed = recompute(policy, "*", observations, **states)
            for site, values in recomputed.items():
                recorded = recording[site].to_torch()
                assert recorded.abs().max() > 0, site
                assert (recorded - values).abs().max() <= 2 * TOLERANCE * max(1.0, float(values.abs().max())), site
            with torch.no_grad():
                value, _ = policy.value(observations, recurrent=states.get("critic_recurrent"))
            recorded = recording.steps(group, "value").to_torch()
            torch.testing.assert_close(recorded, value, atol=1e-4, rtol=1e-5)
            head, logits = recording[f"{group}/actor/head"].to_torch(), recording.steps(group, "logits").to_torch()
            torch.testing.assert_close(logits[..., : head.shape[-1]], head, atol=1e-5, rtol=1e-5)


def test_a_mixer_and_attention_are_among_them(tmp_path: Path) -> None:
    qmix = record(untrained(tmp_path / "qmix", *CASES["qmix"]), sites="*", episodes=1, progress=False)
    assert "agent/mixer/hidden" in qmix and not in_critic("agent/actor/head") and in_critic("agent/mixer/hidden")
    mappo = record(untrained(tmp_path / "att", *CASES["attention"]), sites="*/critic/*", episodes=1, progress=False)
    weights = mappo["agent/critic/attention"].to_numpy().reshape(25, 3, 2, 3, 3)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("greedy", [True, False])
def test_the_action_is_that_of_the_recorded_logits(greedy: bool, tmp_path: Path) -> None:
    run = untrained(tmp_path / "run", *CASES["mappo-gru"])
    with record(run, sites="*", episodes=6, n_envs=3, explore=not greedy, progress=False) as recording:
        best = recording.steps("agent", "logits").to_numpy().argmax(-1)
        assert np.array_equal(best, recording.steps("agent", "action").to_numpy()) == greedy
        log_probs = recording.steps("agent", "logits").to_torch().log_softmax(-1)
        chosen = recording.steps("agent", "action").to_torch()[..., None]
        torch.testing.assert_close(
            recording.steps("agent", "log_prob").to_torch(), log_probs.gather(-1, chosen)[..., 0], atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("share", ["true", "false"])
def test_recorded_as_captured(share: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two ways of filling a site agree to the tolerance that is stated, in a mixture of agents and networks."""
    run = untrained(tmp_path / "run", *CASES["mixture"], f"model.share_parameters={share}")
    late = record(run, sites="*/actor/*", episodes=4, n_envs=3, name="late", progress=False)
    monkeypatch.setattr("marlnb.recording.capture.dry_run.agrees", lambda *given: False)
    at_once = record(run, sites="*/actor/*", episodes=4, n_envs=3, name="at-once", progress=False)
    for site in late.sites:
        ways = [recording.file[f"activations/{site}"].attrs["filled"] for recording in (late, at_once)]
        assert ways == ["recomputed", "captured"]
        values = at_once[site].to_numpy()
        assert np.abs(late[site].to_numpy() - values).max() <= TOLERANCE * max(1.0, np.abs(values).max())
    for group in late.groups:
        for field in late.fields(group):
            assert np.array_equal(late.steps(group, field), at_once.steps(group, field)), field


def test_turns_with_a_mixture_of_networks(tmp_path: Path) -> None:
    """Tic-tac-toe, one player with a GRU and one without: states wait with the player, sites are right at its turns."""
    overrides = (
        "env=pettingzoo/tictactoe",
        "env.workers=0",
        "algorithm=ippo",
        "model.hidden=[6]",
        "models.player_1=gru",
        "critic=gru",
    )
    run = untrained(tmp_path / "run", *overrides)
    policy = run.policies()["player"]
    with mnb.record(run, sites="*", episodes=4, n_envs=2, explore=True, progress=False) as recording:
        observations = {"player": recording.steps("player", "observation").to_torch()}
        states = [recording.recurrent("player", part).to_torch() for part in ("actor", "critic")]  # type: ignore[arg-type]
        recomputed = recompute(policy, "*", observations, recurrent=states[0], critic_recurrent=states[1])
        assert sorted(recomputed) == sorted(recording.sites)
        for site, values in recomputed.items():
            torch.testing.assert_close(recording[site].to_torch(), values, atol=1e-5, rtol=1e-5)
        acting = recording.steps("player", "acting").to_numpy()
        assert np.array_equal(acting.sum(1), np.ones(len(acting)))
