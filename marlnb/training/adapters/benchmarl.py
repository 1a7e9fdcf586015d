"""agents_from_benchmarl: opens a BenchMARL 1.5 experiment without BenchMARL and without executing its pickles."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import torch

from marlnb.config import ENVIRONMENTS, EnvConfig
from marlnb.errors import CheckpointError, ConfigError
from marlnb.models.adapters.benchmarl import Experiment, experiment_of, policy_of
from marlnb.models.adapters.safe_unpickle import read_records
from marlnb.paths import expanded
from marlnb.training.adapters.environment import EnvLike, env_maker, spec_of
from marlnb.training.adapters.torchrl import policy_numbers
from marlnb.training.policies.agents import Agents


def agents_from_benchmarl(
    folder: str | os.PathLike[str],
    env: EnvLike | None = None,
    *,
    group_map: Mapping[str, str] | None = None,
    path: str | os.PathLike[str] | None = None,
    n_envs: int = 32,
) -> Agents:
    """The agents of a BenchMARL experiment: its policies, critics and environment.

    BenchMARL need not be installed. `config.pkl` is read as data; nothing in it is executed.

    Args:
        folder: the experiment's folder, whose last checkpoint is used; or the file of one `checkpoint_<frames>.pt`.
        env: the environment; None: the experiment's VMAS or PettingZoo task (MPE tasks as marlnb's `mpe/...`).
        group_map: {group in the environment: group in the experiment}, if their names differ.
        path: folder of the agents' recordings; None: the experiment's folder.
        n_envs: default number of environments stepped at once.
    Raises:
        CheckpointError: files are missing or damaged, or contain more than data.
        ConfigError: an unsupported task, algorithm, model or distribution; the message lists the supported ones.
    """
    home, weights = _files(expanded(folder))
    experiment = experiment_of(read_records(home / "config.pkl"))
    states = _states(weights)
    maker = _environment(experiment, sorted(states)) if env is None else env_maker(env)
    spec = spec_of(maker)
    names = {group: (group_map or {}).get(group, group) for group in spec.group_names}
    if set(names.values()) != set(states):
        raise ConfigError(
            f"{spec.name} has the groups {list(spec.group_names)}, the experiment {sorted(states)}; use "
            "group_map={environment's group: experiment's group}"
        )
    policies = {group.name: policy_of(experiment, group, spec, states[names[group.name]]) for group in spec.groups}
    networks = {group.name: policy_numbers(policies[group.name].network, group) for group in spec.groups}
    source = f"BenchMARL {experiment.algorithm.kind.removesuffix('Config').lower()} {weights.name}"
    return Agents(policies, maker, home if path is None else path, source=source, n_envs=n_envs, networks=networks)


def _files(path: Path) -> tuple[Path, Path]:
    """The experiment's folder and the checkpoint."""
    if path.is_file():
        home, weights = path.parent.parent, path
    else:
        by_frames = {int(file.stem.rpartition("_")[2]): file for file in path.glob("checkpoints/checkpoint_*.pt")}
        if not by_frames:
            raise CheckpointError(
                f"no checkpoints/checkpoint_<frames>.pt in {path}; expected the folder of a BenchMARL experiment"
            )
        home, weights = path, by_frames[max(by_frames)]
    if not (home / "config.pkl").is_file():
        raise CheckpointError(f"no config.pkl in {home}; {weights.name} cannot be opened without it")
    return home, weights


def _states(weights: Path) -> dict[str, dict[str, Any]]:
    """The state dict of each group's loss, by group."""
    try:
        loaded = torch.load(weights, weights_only=True, map_location="cpu")
        return {name.removeprefix("loss_"): dict(state) for name, state in loaded.items() if name.startswith("loss_")}
    except (pickle.UnpicklingError, RuntimeError, EOFError, AttributeError, OSError, ValueError) as error:
        raise CheckpointError(f"{weights} cannot be read as plain tensors: {error!s:.300}") from error


def _environment(experiment: Experiment, groups: list[str]) -> EnvConfig:
    kind, task = experiment.task.kind, str(experiment.task.get("name", "")).lower()
    options = dict(experiment.options)
    if kind == "VmasClass":
        build: Any = ENVIRONMENTS.get(f"vmas/{task}")
        max_steps = options.pop("max_steps", None)
        return _grouped(build(kwargs=options, max_steps=max_steps, continuous_actions=experiment.continuous), groups)
    if kind == "PettingZooClass":
        return _pettingzoo(options, task, experiment.continuous)
    raise ConfigError(
        f"tasks of {kind.removesuffix('Class')} cannot be built by name; valid: VMAS and PettingZoo; pass env= for "
        f"{task!r}"
    )


def _grouped(config: EnvConfig, groups: list[str]) -> EnvConfig:
    """The config with all agents in the experiment's only group, if the environment names its group differently."""
    spec = spec_of(config)
    if len(groups) == 1 and set(groups) != set(spec.group_names):
        return replace(config, groups={groups[0]: spec.agents})  # type: ignore[call-arg]
    return config


def _pettingzoo(options: dict[str, Any], task: str, continuous: bool) -> EnvConfig:
    name = str(options.pop("task", task)).rpartition("_v")[0] or task
    if f"mpe/{name}" not in dict(ENVIRONMENTS.items()):
        env_class: Any = ENVIRONMENTS.get(f"pettingzoo/{name}")
        return cast(EnvConfig, env_class(kwargs=options))
    kind: Any = ENVIRONMENTS.get(f"mpe/{name}")
    valid = {item.name for item in fields(kind)}
    unknown = sorted(set(options) - valid - {"render_mode"})
    if unknown:
        raise ConfigError(f"mpe/{name} has no options {unknown}; it has {sorted(valid)}; or pass env=")
    known = {key: value for key, value in options.items() if key in valid}
    return cast(EnvConfig, kind(**known, continuous_actions=continuous, state=True))
