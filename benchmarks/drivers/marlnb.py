"""marlnb, one iteration per request."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.drivers.on_gpu import ON_GPU
from benchmarks.drivers.pace import Pace
from benchmarks.drivers.settings import (
    ALGORITHMS,
    NATIVE,
    OFF_POLICY,
    TASKS,
    VMAS,
    OffPolicySettings,
    Settings,
    environment_options,
    on_policy,
)
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer


def overrides(task: str, algorithm: str, updates: int, threads: int, policy_actions: str = "own") -> list[str]:
    """The experiment in Hydra's grammar. PettingZoo's multiwalker; simple_spread is marlnb's own."""
    continuous = algorithm in ("ippo", "maddpg", "masac")
    settings = on_policy(task) if algorithm == "ippo" else OFF_POLICY
    learning = ippo_options(on_policy(task))
    if algorithm != "ippo":
        learning = off_policy_options(algorithm, updates, policy_actions)
    return [
        *environment_words(task, continuous),
        f"algorithm={algorithm}",
        *(f"algorithm.{key}={value}" for key, value in learning.items()),
        *common_overrides(settings, threads),
    ]


def common_overrides(settings: Settings | OffPolicySettings, threads: int) -> list[str]:
    """Networks, sizes and length."""
    return [
        "tuned=false",
        "model=mlp",
        f"model.hidden=[{','.join(map(str, settings.hidden))}]",
        "model.activation=tanh",
        f"n_envs={settings.n_envs}",
        f"rollout_steps={settings.rollout_steps}",
        "frames=100_000_000",
        "checkpoint_every=1_000_000",
        f"threads={threads}",
        "seed=0",
    ]


def native_overrides(task: str, threads: int) -> list[str]:
    """As JaxMARL's IPPO: discrete actions, 25 steps, a clipped value loss."""
    settings = {**NATIVE, **ON_GPU}[task]
    learning = ippo_options(settings) | {
        "n_minibatches": settings.n_minibatches,
        "value_clip": settings.clip,
        "std_of": "parameter",
    }
    return [
        "env=mpe/simple_spread",
        "algorithm=ippo",
        *(f"algorithm.{key}={value}" for key, value in learning.items()),
        *common_overrides(settings, threads),
    ]


def environment_words(task: str, continuous: bool) -> list[str]:
    options: dict[str, Any] = environment_options(task)
    if task == "simple_spread":
        words = [f"env.{key}={value}" for key, value in options.items()]
        return ["env=mpe/simple_spread", *words, f"env.continuous_actions={continuous}"]
    source = "vmas" if task in VMAS else "pettingzoo"
    return [f"env={source}/{task}", *(f"env.kwargs.{key}={value}" for key, value in options.items())]


def ippo_options(settings: Settings) -> dict[str, Any]:
    return {
        "lr": settings.lr,
        "adam_eps": settings.adam_eps,
        "gamma": settings.gamma,
        "gae_lambda": settings.lmbda,
        "clip": settings.clip,
        "epochs": settings.epochs,
        "minibatch_frames": settings.minibatch_frames,
        "entropy_coef": settings.entropy,
        "value_coef": settings.critic_coefficient,
        "max_grad_norm": settings.max_grad_norm,
        "std_of": "network",
    }


def off_policy_options(algorithm: str, updates: int, policy_actions: str) -> dict[str, Any]:
    own: dict[str, Any] = {"double": False, "standardise_rewards": False}  # as BenchMARL's Q-learning
    if algorithm in ("maddpg", "masac"):
        own = {"policy_actions": policy_actions}
    return {
        **own,
        "lr": OFF_POLICY.lr,
        "adam_eps": OFF_POLICY.adam_eps,
        "gamma": OFF_POLICY.gamma,
        "tau": OFF_POLICY.tau,
        "max_grad_norm": OFF_POLICY.max_grad_norm,
        "buffer_frames": OFF_POLICY.buffer_frames,
        "batch_size": OFF_POLICY.minibatch_frames,
        "updates": updates,
        "learning_starts": 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=[*TASKS, *NATIVE, *ON_GPU])
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="ippo")
    parser.add_argument("--updates", type=int, default=OFF_POLICY.updates)
    parser.add_argument("--policy-actions", choices=["own", "all"], default="own", help="of the actor's loss")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="iterations of a request")
    parser.add_argument("--compile", choices=["never", "first"], default="never", help="the experiment's option")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32", help="of the networks")
    parser.add_argument("--device", default="cpu", help="a GPU's updates and rollouts are CUDA graphs")
    arguments = parser.parse_args()
    task, every = arguments.task, arguments.every
    if task in NATIVE or task in ON_GPU:
        words = native_overrides(task, arguments.threads)
    else:
        words = overrides(task, arguments.algorithm, arguments.updates, arguments.threads, arguments.policy_actions)
    words += [f"compile={arguments.compile}", f"device={arguments.device}", f"model.precision={arguments.precision}"]
    words += ["cuda_graphs=true"] if arguments.device != "cpu" else []
    experiment = Experiment.compose(*words)
    pace = Pace(experiment.iteration_frames * every)
    with tempfile.TemporaryDirectory() as folder:
        with Trainer(experiment, Run.create(Path(folder) / "run", experiment)) as trainer:
            for iteration, _ in enumerate(trainer, start=1):
                if iteration % every == 0:
                    pace.iteration_done()


if __name__ == "__main__":
    main()
