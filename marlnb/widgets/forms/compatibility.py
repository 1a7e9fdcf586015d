"""Which algorithms and networks are compatible with a group of an environment, and how large the networks are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marlnb.config import ALGORITHMS, MODELS, AlgorithmConfig, LearnerContext, ModelConfig
from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment
from marlnb.models.networks.building.build_network import build_network
from marlnb.models.policies.scripted import check_frozen_weights
from marlnb.specs import EnvSpec, GroupSpec, InputSpec
from marlnb.training.learners import build_learners

MISSING_OPTIONS = "set model."
"""In errors of networks that other options would avoid."""
FITTING_ROLLOUT_STEPS = 1024
"""Fits every default sequence length and number of minibatches: the user can still change the length of a rollout."""


@dataclass(frozen=True)
class NetworkSummary:
    """The networks of a group.

    Attributes:
        group: its name.
        parameters: by part of the policy (actor, critic, ...), the number of trainable parameters.
        sites: (name, agents, units, kind) of each site that can be recorded.
    """

    group: str
    parameters: Mapping[str, int]
    sites: list[tuple[str, int, int, str]]


def incompatible_algorithms(spec: EnvSpec, group: GroupSpec, actor: ModelConfig, critic: ModelConfig) -> dict[str, str]:
    """By name, why an algorithm cannot train a group with these networks. Compatible algorithms are not listed."""
    reasons = {}
    for name, kind in ALGORITHMS.items():
        algorithm = _with_defaults(kind)
        try:
            if algorithm is not None:
                algorithm.check_fit(LearnerContext(group, spec, actor, critic, rollout_steps=FITTING_ROLLOUT_STEPS))
        except MarlnbError as error:
            reasons[name] = str(error)
    return reasons


def incompatible_models(group: GroupSpec, algorithm: AlgorithmConfig) -> dict[str, str]:
    """By name, why a kind of network cannot be a group's actor. Compatible kinds are not listed."""
    reasons = {}
    inputs = InputSpec((group.observation.shape,))
    for name, kind in MODELS.items():
        model = _with_defaults(kind)
        if model is None:
            continue
        try:
            if model.recurrent and not algorithm.recurrent:
                reasons[name] = f"{algorithm.name} trains feed-forward networks only"
            else:
                build_network(model, group.n_agents, inputs, group.action.n_logits or 1)
        except MarlnbError as error:
            if MISSING_OPTIONS not in str(error):  # with other options it may work, so it stays available
                reasons[name] = str(error)
    return reasons


def build_networks(experiment: Experiment, spec: EnvSpec) -> list[NetworkSummary]:
    """Builds the networks of each group and counts their parameters.

    Raises:
        CheckpointError: the weights of a frozen group cannot be read. Others as `build_learners`.
    """
    summaries = []
    for name, learner in build_learners(experiment, spec, "cpu").items():
        policy = learner.policy
        check_frozen_weights([policy])
        counts: dict[str, int] = {}
        for path, parameter in policy.named_parameters():
            part = path.split(".")[0]
            counts[part] = counts.get(part, 0) + parameter.numel()
        sites = [(site.name, site.n_agents, site.n_units, str(site.kind)) for site in policy.sites()]
        summaries.append(NetworkSummary(name, counts, sites))
    return summaries


def _with_defaults(kind: type[Any]) -> Any:
    """A part with its default options; None if some options have no default."""
    try:
        return kind()
    except (MarlnbError, TypeError):
        return None
