"""transplant: puts an ancestor's units into a descendant, to see whether it still uses them as the ancestor did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from marlnb.analysis.data.trajectories import Trajectories, evaluate_on, roll_out
from marlnb.analysis.interventions.outcomes import action_distance, mean_over_time
from marlnb.analysis.populations.transplant_result import Transplant
from marlnb.analysis.stats.bootstrap import bootstrap_weights, percentile_interval
from marlnb.analysis.stats.divergence import total_variation
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.envs.external.interface import publish_evaluation
from marlnb.envs.vector import VectorEnv
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import AnalysisError, SiteError, unknown
from marlnb.models.hooks.sites import Site, group_of, part_of
from marlnb.models.networks.network import Network
from marlnb.models.policies.policy import Policy
from marlnb.training.policies.compatibility import check_group_fit
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source
from marlnb.training.runs.files import EVALUATION
from marlnb.training.shared_return import is_zero_sum
from marlnb.values import checked_number

MIN_EPISODES = 10
N_BOOTSTRAP = 2000


@closing_pools()
def transplant(
    donor: PolicySourceLike,
    recipient: PolicySourceLike,
    *,
    site: str,
    units: Sequence[int] | None = None,
    episodes: int = 100,
    seed: int = 1000,
) -> Transplant:
    """Replaces units of one network by those of another, at every step, computed from the same observation.

    If the recipient inherited the donor's circuit, its later layers still read these units, and its actions hardly
    change. If it learned the same thing again, with other units, they change as much as with the control: the donor's
    units in another order, which hold the same information in places where nothing expects it. With d the total
    variation distance of actions on the same states (for continuous actions, their distance), averaged over agents and
    steps of an episode,

        kept = 1 - mean(d with the donor's units) / mean(d with the control)

    Args:
        donor: whose units are taken, such as an ancestor: `population["2-1"]`.
        recipient: in whose network they are put, such as its descendant: `population.best`.
        site: a layer of a feed-forward actor that both have, such as `agent/actor/hidden_2`.
        units: of the donor; None: all. A descendant that grew has them at the same places.
        episodes: that are played by the recipient; those with other units start from the same seeds.
        seed: of the episodes, and of the control's order.
    Raises:
        SiteError: a network has no such site.
        ConfigError: the donor's group has other observations or actions than the recipient's, there are too few
            episodes, or a number is not whole.
        AnalysisError: the site is of a critic or a recurrent network, the donor has more units than the recipient, or
            no such unit.
    Source: activation patching (Vig et al. 2020, arXiv:2004.12265), between networks as in model stitching (Bansal et
        al. 2021, arXiv:2106.07682), without a layer that is trained to translate.
    """
    episodes = checked_number(episodes, int, "episodes", ge=MIN_EPISODES)
    seed = checked_number(seed, int, "seed", ge=0)
    donor, recipient = as_policy_source(donor), as_policy_source(recipient)
    group = group_of(site)
    n_units = _check(donor, recipient, group, site)
    chosen = list(range(n_units)) if units is None else [int(unit) for unit in units]
    if not chosen or not all(0 <= unit < n_units for unit in chosen):
        raise AnalysisError(f"units must be among 0 to {n_units - 1}, those of the donor at {site}; got {chosen}")
    if n_units < 2:
        raise AnalysisError(f"{site} of the donor has one unit, so there is no other order as a control")
    next_of = _next_units(n_units, seed)
    control = [next_of[unit] for unit in chosen]
    original = recipient.policies()
    grafted = [_grafted(donor, recipient, site, chosen, sources) for sources in (chosen, control)]
    with recipient.build_env(min(episodes, recipient.n_envs)) as env:
        publish_evaluation(env, recipient.path / EVALUATION)
        changes, by_agent = _play(env, [original, *grafted], group, episodes, seed)
    returns = by_agent.mean(-1)
    kept, low, high = _kept(changes, seed)
    return Transplant(
        donor=donor.path.name,
        recipient=recipient.path.name,
        site=site,
        units=tuple(chosen),
        kept=kept,
        low=low,
        high=high,
        change=float(changes[1].mean()),
        control_change=float(changes[2].mean()),
        return_before=float(returns[0].mean()),
        return_change=paired_test(returns[1] - returns[0]),
        control_return_change=paired_test(returns[2] - returns[0]),
        zero_sum=is_zero_sum(by_agent.sum(-1).flat, float(np.abs(by_agent).max())),
        n_episodes=episodes,
    )


def _check(donor: PolicySource, recipient: PolicySource, group: str, site: str) -> int:
    """The donor's number of units. Raises SiteError, ConfigError and AnalysisError as `transplant`."""
    sites = []
    for source in (donor, recipient):
        policies = source.policies()
        if group not in policies:
            raise AnalysisError(f"{source.path.name}: {unknown('group', group, policies)}")
        policy = policies[group]
        matched = _site(policy, site, source.path.name)
        if part_of(site) != "actor" or policy.recurrent_shape is not None:
            raise AnalysisError(f"{site} of {source.path.name}: units can be moved between feed-forward actors only")
        if matched.agents is not None:
            raise AnalysisError(f"{site} of {source.path.name} belongs to single agents; choose one of the whole group")
        sites.append(matched)
    check_group_fit(donor.spec.group(group), donor.spec.name, recipient.spec.group(group), recipient.spec.name)
    if sites[0].n_units > sites[1].n_units:
        raise AnalysisError(
            f"{site} has {sites[0].n_units} units in {donor.path.name} and {sites[1].n_units} in "
            f"{recipient.path.name}; the donor must not have more, as an ancestor has not"
        )
    return sites[0].n_units


def _next_units(n_units: int, seed: int) -> dict[int, int]:
    """By unit, the next one in a random cycle of all units."""
    order = np.random.default_rng(seed).permutation(n_units)
    return dict(zip(order.tolist(), np.roll(order, 1).tolist()))


def _grafted(
    donor: PolicySource, recipient: PolicySource, site: str, places: Sequence[int], sources: Sequence[int]
) -> Mapping[str, Policy]:
    """The recipient's policies, with the donor's units `sources` at `places` of the site."""
    policies, group = recipient.policies(), group_of(site)
    _graft(policies[group], donor.policies()[group], site, places, sources)
    return policies


def _play(
    env: VectorEnv, arms: Sequence[Mapping[str, Policy]], group: str, episodes: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Plays the episodes with the policies of each arm.

    Args:
        arms: the first one's states are those on which actions are compared.
    Returns:
        How far each arm's actions are from the first one's on the same states, `[arm, episode]`, and the returns of
        the group's agents, `[arm, episode, agent]`.
    """
    parts: list[tuple[list[np.ndarray], list[np.ndarray]]] = []
    for first in range(0, episodes, env.n_envs):
        n = min(env.n_envs, episodes - first)
        played = [roll_out(env, policies, (), seed=seed, first=first, episodes=n) for policies in arms]
        changed = [_change(policies[group], played[0]) for policies in arms]
        parts.append((changed, [each.table.returns[group] for each in played]))
    changes, returns = (np.concatenate([part[k] for part in parts], axis=1) for k in (0, 1))
    return changes, returns


def _kept(changes: np.ndarray, seed: int) -> tuple[float, float, float]:
    """`1 - mean(d with the donor's units) / mean(d with the control)`, and its bootstrap interval.

    Args:
        changes: d, `[arm, episode]`: original, donor's units, control.
    """
    kept = 1 - changes[1].mean() / max(changes[2].mean(), 1e-12)
    weights = bootstrap_weights(changes.shape[1], N_BOOTSTRAP, np.random.default_rng(seed))
    samples = 1 - (weights @ changes[1]) / np.maximum(weights @ changes[2], 1e-12)
    low, high = percentile_interval(samples)
    return float(kept), float(low), float(high)


def _site(policy: Policy, site: str, name: str) -> Site:
    sites = {candidate.name: candidate for candidate in policy.sites()}
    if site not in sites:
        raise SiteError(f"{name}: {unknown('site', site, sites)}")
    return sites[site]


def _graft(recipient: Policy, donor: Policy, site: str, places: Sequence[int], sources: Sequence[int]) -> None:
    """The recipient's units at `places` become the donor's units `sources` from now on."""
    ours, theirs = _site(recipient, site, "recipient").module, _site(donor, site, "donor").module
    network, other = _network_with(recipient, ours), _network_with(donor, theirs)
    into, out_of = torch.tensor(places), torch.tensor(sources)
    values: dict[str, Tensor] = {}

    def compute(module: nn.Module, inputs: tuple[Tensor, ...], options: dict[str, Tensor]) -> None:
        other(*inputs, **options)

    def keep(module: nn.Module, inputs: object, output: Tensor) -> None:
        values["now"] = output

    def replace(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        replaced = output.clone()
        replaced[..., into] = values["now"][..., out_of]
        return replaced

    theirs.register_forward_hook(keep)
    network.register_forward_pre_hook(compute, with_kwargs=True)
    ours.register_forward_hook(replace)


def _network_with(policy: Policy, module: nn.Module) -> Network:
    """The network that a site's module is in."""
    networks = [each for each in policy.modules() if isinstance(each, Network)]
    return next(each for each in networks if any(own is module for _, own, *_ in each.site_modules()))


def _change(policy: Policy, states: Trajectories) -> np.ndarray:
    """`[episode]`: how far a policy's actions are from those that were taken, on the same states."""
    name, distribution = policy.group.name, policy.distribution
    logits = evaluate_on({name: policy}, states, values=False).logits[name]
    if logits is None or distribution is None:
        raise AnalysisError(f"the policy of {name!r} has no distribution of actions")
    distance = total_variation(distribution, states.logits[name], logits)
    if distance is None:
        before, after = (distribution.mode(parameters).action for parameters in (states.logits[name], logits))
        distance = action_distance(before, after, policy)[0]
    return np.nanmean(mean_over_time(distance, states.acting[name]), axis=1)
