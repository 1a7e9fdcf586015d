"""agents_from_benchmarl: opens an experiment of BenchMARL 1.5 without BenchMARL, and without running its pickles."""

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
    """The agents of a BenchMARL experiment: its policies, its critics, its environment.

    Neither BenchMARL nor the torchrl it was made with is needed. `config.pkl` is read as data: nothing in it is run.

    Args:
        folder: the experiment's folder, of which the last checkpoint is taken, or one `checkpoint_<frames>.pt` in it.
        env: where they act; None: VMAS's and PettingZoo's tasks are found by name (MPE's as marlnb's own `mpe/...`).
        group_map: where that environment calls a group otherwise: {environment's: experiment's}.
        path: folder of the recordings made of them; by default the experiment's.
    Raises:
        CheckpointError: files are missing, damaged, or hold more than data.
        ConfigError: a task, algorithm, model or distribution that cannot be read; the message says which can.
    """
    home, weights = _files(Path(folder).expanduser())
    experiment = experiment_of(read_records(home / "config.pkl"))
    states = _states(weights)
    maker = _environment(experiment, sorted(states)) if env is None else env_maker(env)
    spec = spec_of(maker)
    names = {group: (group_map or {}).get(group, group) for group in spec.group_names}
    if set(names.values()) != set(states):
        raise ConfigError(
            f"the groups of {spec.name} are {list(spec.group_names)}; the experiment's are {sorted(states)}: say which "
            "is which by group_map={environment's: experiment's}"
        )
    made = {group.name: policy_of(experiment, group, spec, states[names[group.name]]) for group in spec.groups}
    networks = {group.name: policy_numbers(made[group.name].network, group) for group in spec.groups}
    source = f"BenchMARL {experiment.algorithm.kind.removesuffix('Config').lower()} {weights.name}"
    return Agents(made, maker, home if path is None else path, source=source, n_envs=n_envs, networks=networks)


def _files(given: Path) -> tuple[Path, Path]:
    """The experiment's folder and the checkpoint."""
    if given.is_file():
        home, weights = given.parent.parent, given
    else:
        found = {int(file.stem.rpartition("_")[2]): file for file in given.glob("checkpoints/checkpoint_*.pt")}
        if not found:
            raise CheckpointError(f"no checkpoints/checkpoint_<frames>.pt in {given}; is it a BenchMARL experiment?")
        home, weights = given, found[max(found)]
    if not (home / "config.pkl").is_file():
        raise CheckpointError(f"no config.pkl in {home}; it says what the tensors of {weights.name} are")
    return home, weights


def _states(weights: Path) -> dict[str, dict[str, Any]]:
    """By group, the tensors of its loss."""
    try:
        loaded = torch.load(weights, weights_only=True, map_location="cpu")
        return {name.removeprefix("loss_"): dict(state) for name, state in loaded.items() if name.startswith("loss_")}
    except (pickle.UnpicklingError, RuntimeError, EOFError, AttributeError, OSError, ValueError) as error:
        raise CheckpointError(f"{weights} cannot be read as plain tensors: {error!s:.300}") from error


def _environment(experiment: Experiment, groups: list[str]) -> EnvConfig:
    kind, task = experiment.task.kind, str(experiment.task.get("name", "")).lower()
    options = dict(experiment.options)
    if kind == "VmasClass":
        return _grouped(_vmas(task, options, experiment.continuous), groups)
    if kind == "PettingZooClass":
        return _pettingzoo(options, task, experiment.continuous)
    raise ConfigError(
        f"BenchMARL's {kind.removesuffix('Class')} tasks are none that marlnb finds by itself (VMAS's and PettingZoo's "
        f"are); pass env= for {task!r}"
    )


def _vmas(task: str, options: dict[str, Any], continuous: bool) -> EnvConfig:
    max_steps = options.pop("max_steps", None)
    kind: Any = ENVIRONMENTS.get(f"vmas/{task}")
    return cast(EnvConfig, kind(kwargs=options, max_steps=max_steps, continuous_actions=continuous))


def _grouped(config: EnvConfig, groups: list[str]) -> EnvConfig:
    """The same with its agents in the experiment's one group, where that has another name."""
    spec = spec_of(config)
    if len(groups) == 1 and set(groups) != set(spec.group_names):
        return replace(config, groups={groups[0]: spec.agents})  # type: ignore[call-arg]
    return config


def _pettingzoo(options: dict[str, Any], task: str, continuous: bool) -> EnvConfig:
    name = str(options.pop("task", task)).rpartition("_v")[0] or task
    if f"mpe/{name}" not in dict(ENVIRONMENTS.items()):
        other: Any = ENVIRONMENTS.get(f"pettingzoo/{name}")
        return cast(EnvConfig, other(kwargs=options))
    kind: Any = ENVIRONMENTS.get(f"mpe/{name}")
    valid = {item.name for item in fields(kind)}
    unknown = sorted(set(options) - valid - {"render_mode"})
    if unknown:
        raise ConfigError(f"mpe/{name} has no options {unknown}; it has {sorted(valid)}; or pass env=")
    known = {key: value for key, value in options.items() if key in valid}
    return cast(EnvConfig, kind(**known, continuous_actions=continuous, state=True))
