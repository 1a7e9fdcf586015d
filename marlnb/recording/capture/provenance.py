"""What made a recording: the version and hash of the code, the experiment, the settings and the seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from marlnb.code_version import code_commit, code_sha256
from marlnb.recording.capture.preparation import Prepared
from marlnb.recording.capture.sources import Selection
from marlnb.recording.file.layout import FORMAT, VERSION
from marlnb.specs import EnvSpec, derive_seed
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.run import Origin
from marlnb.training.runs.spec_file import spec_to_json
from marlnb.version import __version__


def root_attributes(prepared: Prepared) -> dict[str, Any]:
    """Attributes of a recording's root: format, experiment, settings, code and seeds."""
    seed = prepared.config.seed
    attributes = source_attributes(prepared.policy_source, prepared.env.spec, prepared.origin, prepared.settings, seed)
    return attributes | {
        "code_sha256": code_sha256(),
        "code_commit": code_commit(),
        "generator_seed": derive_seed(seed, "actions"),
    }


def source_attributes(
    policy_source: PolicySource, spec: EnvSpec, origin: Origin, settings: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """The attributes of every recording, whichever policies played its episodes; `seed` is -1 where it is unknown."""
    experiment = policy_source.experiment
    return {
        "format": FORMAT,
        "version": VERSION,
        "experiment": "" if experiment is None else json.dumps(experiment.to_json()),
        "source": getattr(policy_source, "source", "marlnb"),
        "spec": json.dumps(spec_to_json(spec)),
        "settings": json.dumps(settings, sort_keys=True),
        "checkpoint": origin.sha256,
        "iteration": origin.iteration,
        "code_version": __version__,
        "seed": seed,
        "dtype": settings["dtype"],
        "every": settings["every"],
    }


def agent_columns(policy_source: PolicySource, spec: EnvSpec, selections: Sequence[Selection]) -> dict[str, list[Any]]:
    """Columns of `/agents`. `policy_index` numbers a group's networks; it is 0 for all agents that share one."""
    rows = []
    for group, indices in ((selection.group, selection.indices) for selection in selections):
        networks = policy_source.policy_index(group)
        for index in indices:
            agent = group.agents[index]
            rows.append((spec.agents.index(agent), agent, group.name, networks[index]))
    return {name: list(values) for name, values in zip(("id", "name", "group", "policy_index"), zip(*rows))}
