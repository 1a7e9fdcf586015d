"""torchrl's losses as algorithms, off-policy and on-policy: they learn known answers and resume bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from marlnb.algorithms.torchrl_loss import OnPolicyLossConfig, actor_module, total_loss, value_module
from marlnb.config import ALGORITHMS, ENVIRONMENTS, AlgorithmConfig, LearnerContext
from marlnb.errors import CheckpointError, ShapeError
from marlnb.experiment import Experiment
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer
from tests.algorithms.conftest import random_rollout, two_groups
from tests.algorithms.test_known_answers import started, wrong
from tests.models.conftest import DISCRETE

ON_POLICY = {"lr": 1e-2, "epochs": 2, "minibatch_frames": 128, "normalise_values": False}
OFF_POLICY = {"lr": 1e-2, "updates": 8, "batch_size": 64, "buffer_frames": 4096, "learning_starts": 64, "tau": 0.1}


@dataclass(frozen=True)
class ReinforceConfig(OnPolicyLossConfig):
    """REINFORCE with a baseline: torchrl's loss on our rollouts and advantages."""

    def build_loss(self, policy: ActorCritic) -> Any:
        from torchrl.objectives import ReinforceLoss

        return ReinforceLoss(actor_module(policy), value_module(policy), loss_critic_type="l2", reduction="none")


class CentralisedConfig(ReinforceConfig):
    centralised = True


@pytest.fixture(scope="module")
def registered() -> Iterator[type[AlgorithmConfig]]:
    """The example's algorithm, and those above; forgotten afterwards, so that other tests do not see them."""
    from tests.examples.torchrl_loss import CQLConfig

    for kind in (ReinforceConfig, CentralisedConfig):
        ALGORITHMS.register(f"examples/{kind.__name__}")(kind)
    ALGORITHMS.register("examples/cql")(CQLConfig)
    yield CQLConfig
    for name in ("cql", ReinforceConfig.__name__, CentralisedConfig.__name__):
        ALGORITHMS._members.pop(f"examples/{name}")


def missing_answers(env: str, algorithm: AlgorithmConfig, iterations: int, gamma: float) -> list[str]:
    game: Any = ENVIRONMENTS.get(env)()
    loop = started(game, algorithm)
    for _ in range(iterations):
        loop.advance()
    return wrong(loop, game, algorithm, gamma)


@pytest.mark.parametrize("env", ["probe/action", "probe/discounting"])
@pytest.mark.parametrize("kind", [ReinforceConfig, CentralisedConfig])
def test_an_on_policy_loss_finds_the_known_values_and_actions(
    registered: object, kind: type[ReinforceConfig], env: str
) -> None:
    assert missing_answers(env, kind(gamma=0.9, gae_lambda=0.9, **ON_POLICY), 60, 0.9) == []


def test_an_off_policy_loss_finds_the_known_actions(registered: type[Any]) -> None:
    """Its values are below the true ones, by design."""
    assert not [
        text
        for text in missing_answers("probe/action", registered(gamma=0.9, **OFF_POLICY), 40, 0.9)
        if "action at" in text
    ]


@pytest.mark.parametrize("name", ["examples/cql", "examples/ReinforceConfig"])
def test_a_resumed_training_gives_the_same_bits(registered: object, tmp_path: Path, name: str) -> None:
    options = OFF_POLICY | {"learning_starts": 0} if name == "examples/cql" else ON_POLICY
    base = Experiment.compose(
        *("env=mpe/simple_tag", "env.max_cycles=5", "algorithm=ippo", "model.hidden=[8]", "n_envs=2"),
        *("rollout_steps=4", "frames=1000", "checkpoint_every=2"),
    )
    experiment = replace(base, algorithm=ALGORITHMS.get(name)(**options))  # type: ignore[arg-type]

    def weights(trainer: Trainer) -> list[torch.Tensor]:
        return [w.detach().clone() for policy in trainer.policies.values() for w in policy.parameters()]

    with Trainer(experiment, Run.create(tmp_path / "whole", experiment)) as trainer:
        reports = [next(trainer).learning for _ in range(5)]
        expected = weights(trainer)
    with Trainer(experiment, Run.create(tmp_path / "halves", experiment)) as trainer:
        next(trainer), next(trainer)
    torch.randn(7)
    with Trainer.resume(Run.open(tmp_path / "halves")) as trainer:
        assert [next(trainer).learning for _ in range(3)] == reports[2:]
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(weights(trainer), expected))


def test_dead_agents_change_nothing() -> None:
    env, model, policies = two_groups(DISCRETE), MLPConfig(hidden=(8,)), []
    for noise in (0.0, 50.0):
        torch.manual_seed(0)
        learner = ReinforceConfig().build(LearnerContext(env.group("walker"), env, model, model, 4, 20))
        rollout = random_rollout(env, {"walker": learner.policy}, dead=True)
        idle = ~rollout["walker", "acting"]
        rollout["walker", "observation"][idle] += noise
        learner.update(rollout)
        policies.append(learner.state_dict()["policy"])
    assert all(torch.equal(policies[0][name], policies[1][name]) for name in policies[0])


def test_a_loss_that_reduces_its_terms_and_a_state_of_another_loss_are_errors() -> None:
    env, small, large = two_groups(DISCRETE), MLPConfig(hidden=(8,)), MLPConfig(hidden=(9,))
    group = env.group("walker")
    first, second = (ReinforceConfig().build(LearnerContext(group, env, m, m, 4, 20)) for m in (small, large))
    with pytest.raises(CheckpointError):
        second.load_state_dict(first.state_dict())
    from tensordict import TensorDict

    with pytest.raises(ShapeError, match=r"loss_actor has shape \[\], expected \[5, 3\].*reduction='none'"):
        total_loss(TensorDict({"loss_actor": torch.zeros(())}, []), torch.Size((5, 3)), None)
