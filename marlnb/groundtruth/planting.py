"""planted: a policy with a circuit in it, and the answer key. Circuits are functions, registered by a decorator."""

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
from marlnb.groundtruth.answer_key import AnswerKey, NetworkName, Question
from marlnb.groundtruth.circuit_builder import Draft
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.recorder import record
from marlnb.recording.capture.sources import LabelFn
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.agents import Agents

NETWORKS: tuple[NetworkName, ...] = ("mlp", "gru")


@dataclass(frozen=True)
class Circuit:
    """A kind of circuit: `env` gives the environment for a network, `plant` draws an instance up; `analyses` are those
    that it was made for, empty for all."""

    name: str
    env: Callable[[NetworkName], EnvConfig]
    plant: Callable[[Draft], None]
    analyses: tuple[str, ...] = ()


FIRST_EPISODE, EPISODES_APART = 3000, 100_000

CIRCUITS: dict[str, Circuit] = {}


def circuit(
    name: str, env: Callable[[NetworkName], EnvConfig], *, analyses: tuple[str, ...] = ()
) -> Callable[[Callable[[Draft], None]], Callable[[Draft], None]]:
    """Registers a function that plants a circuit into a draft.

    Args:
        analyses: that the benchmark asks of it; empty: all.
    Raises:
        ConfigError: another module's circuit has that name.
    """

    def enter(plant: Callable[[Draft], None]) -> Callable[[Draft], None]:
        there = CIRCUITS.get(name)
        if there is not None and there.plant.__module__ != plant.__module__:
            raise ConfigError(f"circuit {name!r} is registered already, by {there.plant.__module__}")
        CIRCUITS[name] = Circuit(name, env, plant, analyses)
        return plant

    return enter


@dataclass(frozen=True)
class Planted:
    """Agents with a circuit in them.

    Attributes:
        agents: to be recorded, evaluated and explained as any others.
        key: where the circuit is; question: what may be told to whoever looks for it.
        labels: what recordings hold beside the environment's labels, for `record(..., labels=)`.
    """

    agents: Agents
    key: AnswerKey
    question: Question
    labels: dict[str, LabelFn]

    @property
    def policies(self) -> dict[str, Policy]:
        return self.agents.by_group

    def record(self, episodes: int = 60, *, seed: int | None = None, name: str = "recording") -> Recording:
        """`marlnb.record` of these agents with their labels; a recording that is there is opened.

        Args:
            seed: of the episodes; None: drawn from the instance's, so that no two seeds of the grid share episodes.
        """
        seed = FIRST_EPISODE + EPISODES_APART * self.key.seed if seed is None else seed
        return record(
            self.agents, episodes=episodes, seed=seed, name=name, labels=self.labels, exist="open", progress=False
        )


def circuit_names() -> list[str]:
    """The circuits there are."""
    package = importlib.import_module("marlnb.groundtruth.circuits")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return sorted(CIRCUITS)


def asked_of(circuit_name: str, analysis: str) -> bool:
    """Whether the benchmark asks an analysis of a circuit."""
    only = CIRCUITS[circuit_name].analyses
    return not only or analysis in only


def planted(
    name: str,
    network: NetworkName = "mlp",
    *,
    shared: bool = True,
    seed: int = 0,
    path: str | os.PathLike[str] = "runs/groundtruth",
) -> Planted:
    """An instance of a circuit; the seed says which agent, units, subspace, features and actions it is made of.

    Args:
        name: of a circuit; network: mlp or gru; shared: whether the agents of a group share weights.
        path: folder; the instance's recordings lie in one of its own below it.
    Raises:
        UnknownNameError: there is no such circuit; ConfigError: no such network, or a negative seed.
    """
    if name not in circuit_names():
        raise UnknownNameError(unknown("circuit", name, circuit_names()))
    if network not in NETWORKS or seed < 0:
        raise ConfigError(f"network is one of {NETWORKS} and seed 0 or more; got {network!r} and {seed}")
    kind = CIRCUITS[name]
    env = kind.env(network)
    with env.build(1) as one:
        spec = one.spec
    rng = np.random.default_rng([seed, NETWORKS.index(network), int(shared), *name.encode()])
    draft = Draft(name, network, shared, seed, env, spec, rng)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # the critics', which nothing here looks at
        kind.plant(draft)
        draft.add_minor()
        policies: dict[str, Policy] = {group: wiring.build() for group, wiring in draft.wirings.items()}
    key = draft.key()
    instance = f"{name}-{network}-{'shared' if shared else 'unshared'}-{seed}"
    networks = {} if shared else {group.name: list(range(group.n_agents)) for group in spec.groups}
    agents = Agents(policies, env, Path(path) / instance, source=f"groundtruth: {instance}", networks=networks)
    return Planted(agents, key, draft.question(key), draft.labels)
