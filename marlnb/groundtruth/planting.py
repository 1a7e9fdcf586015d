"""planted: builds policies with a planted circuit, and the answer key. `@circuit` registers a circuit."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from marlnb.config import EnvConfig
from marlnb.errors import ConfigError, UnknownNameError, unknown
from marlnb.groundtruth.answer_key import AnswerKey, NetworkName, PublicTask
from marlnb.groundtruth.circuit_builder import CircuitBuilder
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.recorder import record
from marlnb.recording.capture.sources import LabelFn
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.agents import Agents

NETWORKS: tuple[NetworkName, ...] = ("mlp", "gru")
FIRST_EPISODE_SEED, EPISODE_SEEDS_APART = 3000, 100_000

Plant = Callable[[CircuitBuilder], None]


@dataclass(frozen=True)
class Circuit:
    """A registered circuit.

    Attributes:
        name: name of the circuit.
        env: maps the network's name to the environment.
        plant: plants the circuit with a CircuitBuilder.
        analyses: analyses that the benchmark runs on it; empty: all.
    """

    name: str
    env: Callable[[NetworkName], EnvConfig]
    plant: Plant
    analyses: tuple[str, ...] = ()


CIRCUITS: dict[str, Circuit] = {}


def circuit(
    name: str, env: Callable[[NetworkName], EnvConfig], *, analyses: tuple[str, ...] = ()
) -> Callable[[Plant], Plant]:
    """Decorator that registers a function as a circuit.

    Args:
        name: name of the circuit.
        env: maps the network's name to the environment.
        analyses: analyses that the benchmark runs on it; empty: all.
    Raises:
        ConfigError: another module already registered this name.
    """

    def register(plant: Plant) -> Plant:
        registered = CIRCUITS.get(name)
        if registered is not None and registered.plant.__module__ != plant.__module__:
            raise ConfigError(f"circuit {name!r} is already registered by {registered.plant.__module__}")
        CIRCUITS[name] = Circuit(name, env, plant, analyses)
        return plant

    return register


@dataclass(frozen=True)
class Planted:
    """Agents with a planted circuit.

    Attributes:
        agents: can be recorded, evaluated and explained like trained agents.
        key: the answer key: location and effects of the circuit.
        task: what an analysis may know.
        labels: labels besides the environment's, for `record(..., labels=)`.
    """

    agents: Agents
    key: AnswerKey
    task: PublicTask
    labels: dict[str, LabelFn]

    @property
    def policies(self) -> dict[str, Policy]:
        return self.agents.by_group

    def record(self, episodes: int = 60, *, seed: int | None = None, name: str = "recording") -> Recording:
        """Records the agents with their labels, or opens an existing recording.

        Args:
            episodes: number of episodes.
            seed: seed of the episodes; None: derived from the instance's seed, so different seeds share no episodes.
            name: name of the recording.
        """
        seed = FIRST_EPISODE_SEED + EPISODE_SEEDS_APART * self.key.seed if seed is None else seed
        return record(
            self.agents, episodes=episodes, seed=seed, name=name, labels=self.labels, exist="open", progress=False
        )


def circuit_names() -> list[str]:
    """Names of the registered circuits."""
    package = importlib.import_module("marlnb.groundtruth.circuits")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return sorted(CIRCUITS)


def runs_on(circuit_name: str, analysis: str) -> bool:
    """Whether the benchmark runs an analysis on a circuit."""
    selected = CIRCUITS[circuit_name].analyses
    return not selected or analysis in selected


def planted(
    name: str,
    network: NetworkName = "mlp",
    *,
    shared: bool = True,
    seed: int = 0,
    path: str | os.PathLike[str] = "runs/groundtruth",
) -> Planted:
    """Builds an instance of a circuit. The seed determines its agent, units, subspace, features and actions.

    Args:
        name: name of a circuit.
        network: mlp or gru.
        shared: whether the agents of a group share weights.
        seed: the instance's seed.
        path: folder; the instance's recordings go to a subfolder.
    Raises:
        UnknownNameError: no circuit has this name.
        ConfigError: unknown network, or negative seed.
    """
    if name not in circuit_names():
        raise UnknownNameError(unknown("circuit", name, circuit_names()))
    if network not in NETWORKS or seed < 0:
        raise ConfigError(f"expected a network in {NETWORKS} and a seed >= 0, got {network!r} and {seed}")
    env = CIRCUITS[name].env(network)
    with env.build(1) as built_env:
        spec = built_env.spec
    rng = np.random.default_rng([seed, NETWORKS.index(network), int(shared), *name.encode()])
    builder = CircuitBuilder(name, network, shared, seed, env, spec, rng)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # for the critics' weights, which no analysis reads
        CIRCUITS[name].plant(builder)
        builder.add_minor()
        policies: dict[str, Policy] = {group: wiring.build() for group, wiring in builder.wirings.items()}
    key = builder.key()
    instance = f"{name}-{network}-{'shared' if shared else 'unshared'}-{seed}"
    networks = {} if shared else {group.name: list(range(group.n_agents)) for group in spec.groups}
    agents = Agents(policies, env, Path(path) / instance, source=f"groundtruth: {instance}", networks=networks)
    return Planted(agents, key, builder.task(key), builder.labels)
