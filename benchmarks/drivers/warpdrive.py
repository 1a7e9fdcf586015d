"""WarpDrive's Tag on a GPU, one window per request; run by the Python of `make bench-peers-setup ARGS=warpdrive`.

WarpDrive 2.7.1 with its Numba back-end, since PyCUDA needs NVIDIA's compiler. Its own trainer does the work: A2C, one
pass over 25 steps, a network for taggers and one for runners. All envs have one start, drawn once, as always there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from typing import Any

from benchmarks.drivers.on_gpu import TAG, Tag
from benchmarks.drivers.pace import Pace

PARTS = ("environment", "rollout", "training")
ENVIRONMENT_STEPS = 50


def trainer_of(settings: Tag, folder: str) -> Any:
    from example_envs.tag_continuous.tag_continuous import TagContinuous
    from warp_drive.env_wrapper import EnvWrapper
    from warp_drive.training.trainers.trainer_a2c import TrainerA2C

    env = EnvWrapper(TagContinuous(**settings.options, seed=0), num_envs=settings.n_envs, env_backend="numba")
    model = {"type": "fully_connected", "fc_dims": list(settings.hidden), "model_ckpt_filepath": ""}
    policy = {
        "to_train": True, "algorithm": "A2C", "vf_loss_coeff": 1, "entropy_coeff": 0.05, "clip_grad_norm": True,
        "max_grad_norm": 0.5, "normalize_advantage": False, "normalize_return": False, "gamma": 0.98, "model": model,
    }  # fmt: skip
    config = {
        "name": "tag_continuous",
        "env": settings.options,
        "trainer": {
            "num_envs": settings.n_envs,
            "seed": 0,  # its own default is no seed for Python 3.11 and later
            "num_episodes": 10**9,  # the windows end it
            "train_batch_size": settings.n_envs * settings.rollout_steps,
            "env_backend": "numba",
        },
        "policy": {"runner": {**policy, "lr": 0.005}, "tagger": {**policy, "lr": 0.001}},
        "saving": {"basedir": folder, "name": "tag_continuous", "tag": "benchmark"},
    }
    agents = {"runner": list(env.env.runners), "tagger": list(env.env.taggers)}
    return TrainerA2C(
        env_wrapper=env, config=config, policy_tag_to_agent_id_map=agents, results_dir="window", verbose=False
    )


def window_of(trainer: Any, part: str) -> Callable[[], None]:
    """What a window does."""
    import torch

    envs, n_iterations = trainer.cuda_envs, 0

    def environment() -> None:
        for _ in range(ENVIRONMENT_STEPS):  # with the actions of the last rollout's end
            envs.step_all_envs()
            if envs.cuda_data_manager.data_on_device_via_torch("_done_").any():
                envs.reset_only_done_envs()
        torch.cuda.synchronize()

    def training() -> None:
        nonlocal n_iterations
        trainer._generate_rollout_batch()
        trainer._update_model_params(n_iterations)
        n_iterations += 1
        torch.cuda.synchronize()

    rollout: Callable[[], None] = trainer._generate_rollout_batch
    calls = {"environment": environment, "rollout": rollout, "training": training}
    return calls[part]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n_envs", help="number of envs")
    parser.add_argument("--width", default="256", help="of the two hidden layers")
    parser.add_argument("--part", choices=PARTS, default="training")
    parser.add_argument("--threads", type=int, default=1, help="unused: the work is on the GPU")
    arguments = parser.parse_args()
    settings = TAG[f"{arguments.n_envs}x{arguments.width}"]
    steps = ENVIRONMENT_STEPS if arguments.part == "environment" else settings.rollout_steps
    pace = Pace(settings.n_envs * steps, warmup=3)  # before any import that prints
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(settings, folder)
        trainer.cuda_envs.reset_all_envs()
        trainer._generate_rollout_batch()
        window = window_of(trainer, arguments.part)
        while True:
            window()
            pace.iteration_done()


if __name__ == "__main__":
    main()
