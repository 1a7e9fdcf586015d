"""marlnb's components against torchrl's on the same tensors: median CPU microseconds of one call, one thread.

    python -m benchmarks.torchrl_components [--repetitions 15]

Sizes of the other benchmarks: simple_spread (3 agents, 18 features, 5 actions), 8 environments, 125 steps, minibatches
of 400 frames (on-policy) or 256 frames (off-policy). Losses are measured with their gradients, on networks of
[256, 256], where arithmetic dominates, and of [32, 32], where calls dominate.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules.models.multiagent import QMixer
from torchrl.objectives import ClipPPOLoss, DQNLoss, LossModule, SoftUpdate
from torchrl.objectives.value.functional import generalized_advantage_estimate, vec_generalized_advantage_estimate

from benchmarks.table import markdown_row, markdown_table
from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.configs.value_decomposition import IQLConfig
from marlnb.algorithms.gae import gae, rollout_values
from marlnb.algorithms.ppo import PPOLearner
from marlnb.algorithms.replay import ReplayBuffer
from marlnb.algorithms.torchrl_loss import actor_module, q_module, value_module
from marlnb.algorithms.value_decomposition import QLearner
from marlnb.config import LearnerContext
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.layers import fast_training
from marlnb.models.networks.mixers import MonotonicMixer
from marlnb.training.collect.rollout import Collector

N_ENVS, N_STEPS, MINIBATCH, BATCH, BUFFER_FRAMES = 8, 125, 400, 256, 100_000
Work = Callable[[], object]


def medians(works: dict[str, Work], repetitions: int, calls: int = 20) -> dict[str, float]:
    """Median CPU microseconds of one call; the contestants alternate, so that both run on the same machine load."""
    spent: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(repetitions):
        for name, work in works.items():
            start = time.process_time()
            for _ in range(calls):
                work()
            spent[name].append(1e6 * (time.process_time() - start) / calls)
    return {name: median(values) for name, values in spent.items()}


def gae_works() -> dict[str, Work]:
    shape = (N_ENVS, N_STEPS, 3)
    reward, value, next_value = torch.randn(3, *shape)
    done = torch.rand(shape) < 0.02
    columns = (value, next_value, reward, done, done)
    return {
        "marlnb": lambda: gae(reward, value, next_value, done, done, gamma=0.99, gae_lambda=0.95),
        "torchrl": lambda: generalized_advantage_estimate(0.99, 0.95, *columns),
        "torchrl, vectorised": lambda: vec_generalized_advantage_estimate(0.99, 0.95, *columns),
    }


def summed(terms: TensorDict) -> torch.Tensor:
    total: torch.Tensor = sum(value.mean() for name, value in terms.items() if name.startswith("loss"))  # type: ignore[assignment]
    return total


def ppo_works(learner: PPOLearner, rollout: TensorDict) -> dict[str, Work]:
    samples, _ = learner._samples(rollout, rollout_values(learner.policy, rollout), None)
    minibatch = {key: value[:MINIBATCH] for key, value in samples.items()}
    loss = ClipPPOLoss(actor_module(learner.policy), value_module(learner.policy), reduction="none")
    batch = TensorDict(
        {
            "observation": minibatch["observation"],
            "action": minibatch["stored"],
            "sample_log_prob": minibatch["log_prob"],
            "advantage": minibatch["advantage"].unsqueeze(-1),
            "value_target": minibatch["target"].unsqueeze(-1),
        },
        [MINIBATCH],
    )
    weights = [*learner.policy.actor.parameters(), *learner.policy.critic.parameters()]

    def ours() -> None:
        with fast_training(learner.policy):
            torch.autograd.grad(learner.loss(minibatch)[0], weights)

    return {"marlnb": ours, "torchrl": lambda: torch.autograd.grad(summed(loss(batch)), weights)}


def dqn_works(learner: QLearner, sample: dict[Any, torch.Tensor], loss: LossModule) -> dict[str, Work]:
    own = learner.group.name
    after = {key: sample["next", own, key] for key in ("observation", "reward", "terminated", "done")}
    now = {"observation": sample[own, "observation"], "action": sample[own, "action"]}
    batch = TensorDict({**now, "next": after}, [BATCH])
    weights = list(learner.policy.actor.parameters())

    def ours() -> None:
        with fast_training(learner.policy):
            torch.autograd.grad(learner.loss(sample)[0], weights)

    return {"marlnb": ours, "torchrl": lambda: torch.autograd.grad(summed(loss(batch)), weights)}


def mixer_works(context: LearnerContext) -> dict[str, Work]:
    mixer = MonotonicMixer(context.group, context.env, 32)
    theirs = QMixer(state_shape=(54,), mixing_embed_dim=32, n_agents=3, device="cpu")
    q, state = torch.randn(BATCH, 3, requires_grad=True), torch.randn(BATCH, 54)
    return {
        "marlnb": lambda: torch.autograd.grad(mixer(q, state).sum(), [q, *mixer.parameters()]),
        "torchrl": lambda: torch.autograd.grad(theirs(q.unsqueeze(-1), state).sum(), [q, *theirs.parameters()]),
    }


def replay_works(buffer: ReplayBuffer, rollout: TensorDict) -> tuple[dict[str, Work], dict[str, Work]]:
    keys: list[tuple[str, ...]] = [("agent", name) for name in ("observation", "action", "acting", "alive")]
    keys += [("next", "agent", name) for name in ("observation", "reward", "terminated", "done", "alive")]
    flat = rollout.select(*keys).reshape(-1)
    theirs = TensorDictReplayBuffer(storage=LazyTensorStorage(BUFFER_FRAMES), batch_size=BATCH)
    for _ in range(BUFFER_FRAMES // (N_ENVS * N_STEPS)):
        buffer.add(rollout)
        theirs.extend(flat)
    sampling: dict[str, Work] = {"marlnb": lambda: buffer.sample(BATCH), "torchrl": theirs.sample}
    adding: dict[str, Work] = {
        "marlnb": lambda: buffer.add(rollout),
        "torchrl": lambda: theirs.extend(rollout.select(*keys).reshape(-1)),
    }
    return sampling, adding


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=15)
    repetitions = parser.parse_args().repetitions
    torch.set_num_threads(1)
    torch.manual_seed(0)
    env = SimpleSpreadConfig().build(N_ENVS)
    works = {"GAE of 8 x 125 steps x 3 agents": gae_works()}
    for width in (256, 32):
        model = MLPConfig(hidden=(width, width))
        context = LearnerContext(env.spec.groups[0], env.spec, model, model, N_ENVS, N_STEPS)
        ppo = PPOLearner(IPPOConfig(), context)
        q_learner = QLearner(IQLConfig(buffer_frames=BUFFER_FRAMES, double=False), context)
        collector = Collector(env, {context.group.name: ppo.policy}, N_STEPS)
        collector.reset(0)
        rollout = collector.collect().to_tensordict()
        sampling, adding = replay_works(q_learner.replay, rollout)
        dqn_loss = DQNLoss(q_module(q_learner.policy), action_space="categorical", delay_value=True, reduction="none")
        dqn_loss.make_value_estimator(gamma=0.99)
        updater = SoftUpdate(dqn_loss, tau=0.005)
        layers = f"[{width}, {width}]"
        works[f"PPO loss and gradient, {MINIBATCH} frames, {layers}"] = ppo_works(ppo, rollout)
        works[f"DQN loss and gradient, {BATCH} frames, {layers}"] = dqn_works(
            q_learner, q_learner.replay.sample(BATCH), dqn_loss
        )
    works |= {
        "Soft update of the target network": {"marlnb": q_learner.update_targets, "torchrl": updater.step},
        f"QMIX mixer and gradient, {BATCH} frames": mixer_works(context),
        f"Replay: sampling {BATCH} of {BUFFER_FRAMES:,}": sampling,
        "Replay: adding 1000 frames": adding,
    }
    print(markdown_table(("component", "marlnb, CPU µs", "torchrl, CPU µs", "torchrl / marlnb"), ()))
    for name, contestants in works.items():
        ours, *theirs = medians(contestants, repetitions).items()
        for other, spent in theirs:
            component = f"{name}{other.removeprefix('torchrl')}"
            print(markdown_row((component, f"{ours[1]:.0f}", f"{spent:.0f}", f"{spent / ours[1]:.1f}")))


if __name__ == "__main__":
    main()
