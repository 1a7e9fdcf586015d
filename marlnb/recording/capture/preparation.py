"""Everything between a request to record and the first row: checks, policies, environment and a dry run.

Whatever is wrong with a request is reported here, before a file exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from marlnb.codec import to_json
from marlnb.envs.external.interface import publish_evaluation
from marlnb.envs.vector import VectorEnv
from marlnb.errors import ConfigError, RecordingError, SiteError, unknown
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import all_sites, capture
from marlnb.models.hooks.sites import Site, match_sites
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.actors import is_hooked
from marlnb.recording.capture.config import RecordingConfig
from marlnb.recording.capture.dry_run import DryRun, dry_run
from marlnb.recording.capture.recompute import in_critic
from marlnb.recording.capture.sources import Selection
from marlnb.specs import EnvSpec
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.evaluation import action_generator, choose_n_envs
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source
from marlnb.training.runs.files import EVALUATION
from marlnb.training.runs.run import Origin
from marlnb.training.runs.saved_edits import edit_to_json


@dataclass(frozen=True)
class Prepared:
    """A checked request, ready to be recorded.

    Attributes:
        config: the options, of a single checkpoint.
        policy_source: the run or agents that are recorded.
        origin: the checkpoint.
        env: the environments that are stepped.
        policies: by group.
        sites: the recorded sites.
        activations: filled by hooks at every step while `prepare`'s block runs.
        dry_run: what a few steps showed.
    """

    config: RecordingConfig
    policy_source: PolicySource
    origin: Origin
    env: VectorEnv
    policies: Mapping[str, Policy]
    sites: Sequence[Site]
    activations: dict[str, Tensor]
    dry_run: DryRun

    @property
    def settings(self) -> dict[str, Any]:
        """What distinguishes this recording from others, as plain JSON."""
        config = self.config
        edits = [edit_to_json(edit, self.policy_source.path) for edit in config.edits]
        return {
            "env": self.env.spec.name,
            "checkpoint": self.origin.sha256,
            "sites": [site.name for site in self.sites],
            "agents": [agent for selection in self.dry_run.schema.selections for agent in selection.agents],
            "labels": sorted(config.labels),
            "n_envs": self.env.n_envs,
            **{
                name: getattr(config, name)
                for name in ("episodes", "every", "dtype", "seed", "explore", "values", "frames")
            },
            **({"fill": config.fill} if config.fill != "recomputed" else {}),
            **({"edits": edits} if edits else {}),
            **self._env_config(),
        }

    def _env_config(self) -> dict[str, Any]:
        """The environment's options where it is not the policy source's own; nothing where JSON cannot hold them."""
        experiment = self.policy_source.experiment
        try:
            env = to_json(self.config.env)
        except ConfigError:
            return {}
        is_own = env is None or (experiment is not None and env == to_json(experiment.env))
        return {} if is_own else {"env_config": env}

    def generator(self) -> torch.Generator:
        """For sampled actions: equal to an evaluation's with this seed."""
        return action_generator(self.env, self.policies, self.config.seed)


@contextmanager
def prepare(policy_source: PolicySourceLike, config: RecordingConfig) -> Iterator[Prepared]:
    """Opens what a recording of one checkpoint needs and dry-runs a few steps. The block's end closes everything.

    Raises:
        SiteError: a pattern matches no site, or a site never fires.
        RecordingError, ConfigError, RunError, EnvError: another option cannot be met.
    """
    policy_source = as_policy_source(policy_source)
    (origin,) = config.origins(policy_source)
    policies = policy_source.policies(origin.iteration, device=config.device)
    selections = select_agents(policy_source.spec, config.agents)
    sites = select_sites(policies, config.sites, selections)
    n_envs = choose_n_envs(policy_source, config.episodes, config.n_envs)
    with policy_source.build_env(n_envs, device=config.device, env=config.env) as env:
        check_fit(policy_source.spec, env.spec)
        publish_evaluation(env, policy_source.path / EVALUATION)
        with hooks_where_needed(env, policies, selections, sites, config) as (activations, result):
            yield Prepared(config, policy_source, origin, env, policies, sites, activations, result)


@contextmanager
def hooks_where_needed(
    env: VectorEnv,
    policies: Mapping[str, Policy],
    selections: Sequence[Selection],
    sites: Sequence[Site],
    config: RecordingConfig,
) -> Iterator[tuple[dict[str, Tensor], DryRun]]:
    """Does the dry run with hooks at all actor sites, then keeps only the hooks of groups that need them.

    Edits start again after the dry run, so that what they draw does not depend on how many steps it took.

    Yields:
        The activations that the hooks fill at every step, and the dry run.
    """
    hooked = {name for name, policy in policies.items() if config.edits or is_hooked(policy)}
    activations: dict[str, Tensor] = {}
    actor_sites = [site for site in sites if not in_critic(site.name)]
    with edited(policies, config.edits), _captured(policies, actor_sites, activations):
        result = dry_run(env, policies, selections, sites, activations, config, hooked)
    captured_sites = [site for site in actor_sites if site.group in result.captured]
    with edited(policies, config.edits), _captured(policies, captured_sites, activations):
        yield activations, result


@contextmanager
def _captured(policies: Mapping[str, Policy], sites: Sequence[Site], activations: dict[str, Tensor]) -> Iterator[None]:
    with ExitStack() as hooks:
        if sites:
            hooks.enter_context(capture(policies, [site.name for site in sites], into=activations))
        yield


def select_agents(spec: EnvSpec, patterns: str | Sequence[str] | None) -> list[Selection]:
    """The agents that match any of the names or globs, by group; None: all of them.

    Raises:
        RecordingError: a pattern matches no agent; the message has the nearest names.
    """
    globs = ["*"] if patterns is None else [patterns] if isinstance(patterns, str) else list(patterns)
    if not globs:
        raise RecordingError(f"agents must name at least one agent; valid: {', '.join(spec.agents)}")
    for pattern in globs:
        if not any(fnmatchcase(agent, pattern) for agent in spec.agents):
            raise RecordingError(unknown("agent", pattern, spec.agents))
    selections = []
    for group in spec.groups:
        indices = tuple(
            index for index, agent in enumerate(group.agents) if any(fnmatchcase(agent, pattern) for pattern in globs)
        )
        if indices:
            selections.append(Selection(group, indices))
    return selections


def select_sites(
    policies: Mapping[str, Policy], patterns: str | Sequence[str], selections: Sequence[Selection]
) -> list[Site]:
    """The sites that match a pattern and belong to a recorded agent; an empty list of patterns: none.

    Raises:
        SiteError: a pattern matches no site; the message has the nearest names.
    """
    recorded = {selection.group.name: selection for selection in selections}
    matches = match_sites(all_sites(policies), patterns) if patterns else []
    sites = []
    for site in matches:
        selection = recorded.get(site.group)
        if selection is not None and selection.of_site(site) is not None:
            sites.append(site)
    if matches and not sites:
        raise SiteError(f"the sites {[site.name for site in matches]} belong to none of the recorded agents")
    return sites
