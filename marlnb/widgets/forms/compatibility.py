"""What fits an environment: which algorithms can learn on a group, why the others cannot, what a choice comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marlnb.config import ALGORITHMS, MODELS, AlgorithmConfig, LearnerContext, ModelConfig
from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment
from marlnb.specs import EnvSpec, GroupSpec, InputSpec
from marlnb.training.learners import build_learners

OPTIONS = "give model."  # an error that names options which would mend it


@dataclass(frozen=True)
class Network:
    """A group's networks, built once to be counted.

    Attributes:
        parameters: by part of the policy (actor, critic, ...), numbers that are learnt.
        sites: (name, agents, units, kind) of each place that can be recorded.
    """

    group: str
    parameters: Mapping[str, int]
    sites: list[tuple[str, int, int, str]]


def incompatible_algorithms(spec: EnvSpec, group: GroupSpec, actor: ModelConfig, critic: ModelConfig) -> dict[str, str]:
    """By name, why an algorithm cannot learn on a group with these networks; those that can are left out."""
    found = {}
    for name, kind in ALGORITHMS.items():
        algorithm = default_of(kind)
        try:
            if algorithm is not None:
                algorithm.check_fit(LearnerContext(group, spec, actor, critic))
        except MarlnbError as error:
            found[name] = str(error)
    return found


def incompatible_models(group: GroupSpec, algorithm: AlgorithmConfig) -> dict[str, str]:
    """By name, why a kind of network cannot be a group's actor."""
    found = {}
    inputs = InputSpec((group.observation.shape,))
    for name, kind in MODELS.items():
        model = default_of(kind)
        if model is None:
            continue
        try:
            if model.recurrent and not algorithm.recurrent:
                found[name] = f"{algorithm.name} learns feed-forward networks"
            else:
                model.build(group.n_agents, inputs, group.action.n_logits or 1)
        except MarlnbError as error:
            if OPTIONS not in str(error):  # with other options it may fit: it can be chosen, and says so then
                found[name] = str(error)
    return found


def build_networks(experiment: Experiment, spec: EnvSpec) -> list[Network]:
    """Each group's networks. Raises as `build_learners`."""
    found = []
    for name, learner in build_learners(experiment, spec, "cpu").items():
        policy = learner.policy
        counts: dict[str, int] = {}
        for path, parameter in policy.named_parameters():
            part = path.split(".")[0]
            counts[part] = counts.get(part, 0) + parameter.numel()
        sites = [(site.name, site.n_agents, site.n_units, str(site.kind)) for site in policy.sites()]
        found.append(Network(name, counts, sites))
    return found


def default_of(kind: type[Any]) -> Any:
    """A part with its default options; None where it needs some that have no default."""
    try:
        return kind()
    except (MarlnbError, TypeError):
        return None
