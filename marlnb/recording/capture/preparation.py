"""Everything that stands between a request to record and the first row: checks, policies, environment, a trial step.

Whatever can be wrong with a request is found here, before a file exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from marlnb.envs.vector import VectorEnv
from marlnb.errors import RecordingError, SiteError, unknown
from marlnb.models.hooks.capture import all_sites, capture
from marlnb.models.hooks.edits import edited
from marlnb.models.hooks.sites import Site, match_sites
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.actors import is_hooked
from marlnb.recording.capture.dry_run import Trial, try_steps
from marlnb.recording.capture.recompute import in_critic
from marlnb.recording.capture.request import Request
from marlnb.recording.capture.sources import Selection
from marlnb.specs import EnvSpec
from marlnb.training.collect.seeds import derive_seed
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.policy_source import PolicySource, as_policy_source
from marlnb.training.runs.run import EVALUATION, Origin

MOST_COPIES = 32


@dataclass(frozen=True)
class Prepared:
    """A request that can be carried out; `activations` is live while `prepare`'s block runs."""

    request: Request
    subject: PolicySource
    origin: Origin
    env: VectorEnv
    policies: Mapping[str, Policy]
    sites: Sequence[Site]
    activations: dict[str, Tensor]
    trial: Trial

    @property
    def settings(self) -> dict[str, Any]:
        """What makes two recordings the same one, as plain JSON."""
        request = self.request
        return {
            "env": self.env.spec.name,
            "checkpoint": self.origin.sha256,
            "sites": [site.name for site in self.sites],
            "agents": [agent for selection in self.trial.contents.selections for agent in selection.agents],
            "labels": sorted(request.labels),
            "n_envs": self.env.n_envs,
            **{name: getattr(request, name) for name in ("episodes", "every", "dtype", "seed", "explore", "values")},
            "frames": int(request.frames),
            **({"fill": request.fill} if request.fill != "recomputed" else {}),
            **({"edits": [edit.to_json() for edit in request.edits]} if request.edits else {}),
        }

    def generator(self) -> torch.Generator:
        """Of sampled actions: the same as an evaluation's with this seed."""
        device = next((p.device for policy in self.policies.values() for p in policy.parameters()), self.env.device)
        return torch.Generator(device=device).manual_seed(derive_seed(self.request.seed, "actions"))


@contextmanager
def prepare(subject: PolicySource | str | os.PathLike[str], request: Request) -> Iterator[Prepared]:
    """Opens what a recording needs and tries a few steps; hooks and environment are gone after the block.

    Raises:
        SiteError: a pattern that matches no site, or a site that never fires.
        RecordingError, ConfigError, RunError, EnvError: whatever else is wrong with the request.
    """
    subject = as_policy_source(subject)
    (origin,) = request.origins(subject)
    policies = subject.policies(origin.iteration, device=request.device)
    selections = select_agents(subject.spec, request.agents)
    sites = select_sites(policies, request.sites, selections)
    n_envs = request.n_envs or min(subject.n_envs, MOST_COPIES)
    copies = min(n_envs, request.episodes)
    with subject.build_env(copies, device=request.device, env=request.env) as env:
        check_fit(subject.spec, env.spec)
        env.announce(subject.path / EVALUATION)
        with hooks_where_needed(env, policies, selections, sites, request) as (activations, trial):
            yield Prepared(request, subject, origin, env, policies, sites, activations, trial)


@contextmanager
def hooks_where_needed(
    env: VectorEnv,
    policies: Mapping[str, Policy],
    selections: Sequence[Selection],
    sites: Sequence[Site],
    request: Request,
) -> Iterator[tuple[dict[str, Tensor], Trial]]:
    """A trial, and what hooks capture afterwards: only of groups whose activations cannot be told later."""
    hooked = {name for name, policy in policies.items() if request.edits or is_hooked(policy)}
    activations: dict[str, Tensor] = {}
    acting = [site.name for site in sites if not in_critic(site.name)]
    with edited(policies, request.edits), ExitStack() as all_hooks:
        hooks: dict[str, ExitStack] = {}
        for name, policy in policies.items():
            own = [site for site in acting if site.startswith(f"{name}/")]
            hooks[name] = all_hooks.enter_context(ExitStack())
            if own:
                hooks[name].enter_context(capture(policy, own, into=activations))
        trial = try_steps(env, policies, selections, sites, activations, request, hooked)
        for name in policies.keys() - trial.captured:
            hooks[name].close()
        yield activations, trial


def select_agents(spec: EnvSpec, patterns: str | Sequence[str] | None) -> list[Selection]:
    """The agents that match any of the names or globs, group by group; None: all of them.

    Raises:
        RecordingError: a pattern that matches no agent, with the nearest names.
    """
    wanted = ["*"] if patterns is None else [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in wanted:
        if not any(fnmatchcase(agent, pattern) for agent in spec.agents):
            raise RecordingError(unknown("agent", pattern, spec.agents))
    found = []
    for group in spec.groups:
        indices = tuple(
            index for index, agent in enumerate(group.agents) if any(fnmatchcase(agent, pattern) for pattern in wanted)
        )
        if indices:
            found.append(Selection(group, indices))
    return found


def select_sites(
    policies: Mapping[str, Policy], patterns: str | Sequence[str], selections: Sequence[Selection]
) -> list[Site]:
    """The sites that match, of which an agent is recorded; an empty list of patterns: none.

    Raises:
        SiteError: a pattern that matches nothing, with the nearest names.
    """
    recorded = {selection.group.name: selection for selection in selections}
    matched = match_sites(all_sites(policies), patterns) if patterns else []
    of_groups = [(site, recorded.get(site.name.split("/")[0])) for site in matched]
    found = [site for site, selection in of_groups if selection is not None and selection.of_site(site) is not None]
    if matched and not found:
        raise SiteError(f"the sites {[site.name for site in matched]} belong to none of the recorded agents")
    return found
