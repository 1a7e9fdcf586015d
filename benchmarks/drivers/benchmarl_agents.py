"""Makes data/benchmarl_simple_spread and tests/training/adapters/data: agents that BenchMARL trained.

    .peers/benchmarl/bin/python -m benchmarks.drivers.benchmarl_agents CASE FOLDER

Run it from the repository's root, after `make bench-peers-setup`. FOLDER/CASE is the experiment's folder as BenchMARL
leaves it (config.pkl and the last checkpoint). Next to them, expected.npz has the outputs of BenchMARL's own policy and
critic for random observations; the tests compare marlnb's reading of the checkpoint with these.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarl.environments.common import TaskClass
from benchmarl.experiment import Experiment, ExperimentConfig
from tensordict import TensorDict
from torchrl.objectives import ValueEstimators

from benchmarks.drivers.benchmarl_cases import CASES, Case, configured

ROWS, STEPS = 16, 4  # steps of the sequences for recurrent policies


def settings(case: Case, folder: str) -> ExperimentConfig:
    made = ExperimentConfig.get_from_yaml()
    made.sampling_device = made.train_device = made.buffer_device = "cpu"
    batch = max(case.frames // 50, 200)
    made.on_policy_collected_frames_per_batch = made.off_policy_collected_frames_per_batch = batch
    made.on_policy_n_envs_per_worker = made.off_policy_n_envs_per_worker = 8
    made.on_policy_n_minibatch_iters, made.on_policy_minibatch_size = 10, batch // 2
    made.off_policy_n_optimizer_steps, made.off_policy_train_batch_size = 4, 64
    made.lr, made.gamma = 1e-3, 0.95
    made.max_n_frames, made.max_n_iters = case.frames, None
    made.evaluation, made.render, made.create_json, made.loggers = False, False, False, []
    made.share_policy_params, made.prefer_continuous_actions = case.shared, case.continuous
    made.checkpoint_at_end, made.exclude_buffer_from_checkpoint = True, True
    made.save_folder = folder
    return made


def train(case: Case, folder: str) -> Experiment:
    algorithm = case.algorithm.get_from_yaml()
    for name, value in case.options:
        setattr(algorithm, name, value)
    experiment = Experiment(
        task=case.task if isinstance(case.task, TaskClass) else case.task.get_from_yaml(),
        algorithm_config=algorithm,
        model_config=configured(case.model, case),
        critic_model_config=configured(case.critic or case.model, case),
        seed=0,
        config=settings(case, folder),
    )
    experiment.run()
    return experiment


def expected(experiment: Experiment) -> dict[str, np.ndarray]:
    """By `<group>/<what>`: random observations and states, and BenchMARL's outputs of policies and critics."""
    if experiment.model_config.is_rnn:  # of which only floats are kept
        return expected_in_time(experiment)
    env = experiment.test_env
    seen = env.full_observation_spec_unbatched.expand(ROWS).rand()
    values: dict[str, np.ndarray] = {}
    for group in experiment.group_map:
        if seen.get((group, "observation")).is_floating_point():  # else bytes, drawn above
            seen.set((group, "observation"), torch.randn_like(seen.get((group, "observation"))))
        values[f"{group}/observation"] = seen.get((group, "observation")).numpy()
    if "state" in set(seen.keys()):
        seen.set("state", torch.randn(seen.get("state").shape))
        values["state"] = seen.get("state").numpy()
    for group in experiment.group_map:
        with torch.no_grad():
            policy = experiment.algorithm.get_policy_for_loss(group)
            output = policy(seen.clone())
            for key in ("logits", "action_value", "loc", "scale", "param"):
                if (group, key) in output.keys(True):
                    values[f"{group}/{key}"] = output.get((group, key)).numpy()
            if hasattr(experiment.algorithm, "get_critic"):
                loss = experiment.losses[group]
                critic = loss.critic_network if hasattr(loss, "critic_network") else None
                if critic is not None:
                    with loss.critic_network_params.to_module(critic):
                        values[f"{group}/value"] = critic(seen.clone()).get((group, "state_value")).numpy()
            values |= judged(experiment, group, seen)
    return values


def judged(experiment: Experiment, group: str, seen: TensorDict) -> dict[str, np.ndarray]:
    """Random actions and their Q values `[network, row, agent]`, where critics take continuous actions."""
    loss, spec = experiment.losses[group], experiment.test_env.full_action_spec_unbatched[group, "action"]
    name = next((name for name in ("qvalue_network", "value_network") if hasattr(loss, name)), None)
    if name is None or (name == "value_network" and not hasattr(spec.space, "low")):
        return {}
    seen = seen.clone()
    params = getattr(loss, f"{name}_params")
    each = [params[k] for k in range(len(params))] if params.ndim else [params]
    if not hasattr(spec.space, "low"):
        return judged_softly(experiment, group, seen, each)
    seen.set((group, "action"), spec.expand(ROWS, *spec.shape).rand())
    values = []
    for one in each:
        with one.to_module(getattr(loss, name)):
            values.append(getattr(loss, name)(seen.clone()).get((group, "state_action_value"))[..., 0].numpy())
    return {f"{group}/action": seen.get((group, "action")).numpy(), f"{group}/q": np.stack(values)}


def judged_softly(experiment: Experiment, group: str, seen: TensorDict, each: Any) -> dict[str, np.ndarray]:
    """Q values `[network, row, agent, action]` of all actions, and the value that torchrl's loss computes from them.

    The value is read off the loss's target: the step has a reward of 0, leads to these observations and is discounted
    by 1, and the target critics still equal the critics.
    """
    loss = experiment.losses[group]
    output = experiment.algorithm.get_policy_for_loss(group)(seen.clone())
    values = []
    for one in each:
        with one.to_module(loss.qvalue_network):
            values.append(loss.qvalue_network(output.clone()).get((group, "action_value")).numpy())
    loss.target_qvalue_network_params.data.copy_(loss.qvalue_network_params.data)
    loss.make_value_estimator(ValueEstimators.TD0, gamma=1.0)
    shape = (*output.get((group, "logits")).shape[:-1], 1)
    after = output.clone()
    for key, dtype in (("reward", torch.float), ("done", torch.bool), ("terminated", torch.bool)):
        after.set((group, key), torch.zeros(shape, dtype=dtype))
    value = loss._compute_target(TensorDict({"next": after, **seen.clone().to_dict()}, batch_size=[ROWS]))
    return {f"{group}/q": np.stack(values), f"{group}/soft_value": value.numpy()}


def expected_in_time(experiment: Experiment) -> dict[str, np.ndarray]:
    """As `expected`, for sequences `[row, time, ...]` that start from a state of zeros."""
    begins = torch.zeros(ROWS, STEPS, 1, dtype=torch.bool)
    begins[:, 0] = True
    values: dict[str, np.ndarray] = {}
    for group, agents in experiment.group_map.items():
        spec = experiment.test_env.full_observation_spec_unbatched[group, "observation"]
        seen = TensorDict({"is_init": begins}, batch_size=[ROWS, STEPS])
        observation = torch.randn(ROWS, STEPS, *spec.shape)
        seen.set(group, TensorDict({"observation": observation}, batch_size=[ROWS, STEPS, len(agents)]))
        values[f"{group}/observation"] = observation.numpy()
        if "state" in set(experiment.test_env.full_observation_spec_unbatched.keys()):
            shape = experiment.test_env.full_observation_spec_unbatched["state"].shape
            seen.set("state", torch.randn(ROWS, STEPS, *shape))
            values["state"] = seen.get("state").numpy()
        with torch.no_grad():
            output = experiment.algorithm.get_policy_for_loss(group)(seen.clone())
            for key in ("logits", "action_value", "loc", "scale"):
                if (group, key) in output.keys(True):
                    values[f"{group}/{key}"] = output.get((group, key)).numpy()
            loss = experiment.losses[group]
            with loss.critic_network_params.to_module(loss.critic_network):
                values[f"{group}/value"] = loss.critic_network(seen.clone()).get((group, "state_value")).numpy()
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    made = arguments.folder.absolute() / arguments.case
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        experiment = train(CASES[arguments.case], ".")  # config.pkl stores the folder that it was written to
        (made / "checkpoints").mkdir(parents=True)
        shutil.copy(experiment.folder_name / "config.pkl", made)
        (checkpoint,) = (experiment.folder_name / "checkpoints").iterdir()
        shutil.copy(checkpoint, made / "checkpoints")
        np.savez_compressed(made / "expected.npz", **expected(experiment))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
