"""capture: reads the activations of chosen sites inside a block, and leaves no hook behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from torch import Tensor, nn

from marlnb.models.hooks.sites import OBSERVATION, Site, match_sites

if TYPE_CHECKING:
    from marlnb.models.policies.policy import Policy


@contextmanager
def capture(
    policies: Policy | Mapping[str, Policy],
    sites: str | Iterable[str] = "*",
    *,
    into: dict[str, Tensor] | None = None,
) -> Iterator[dict[str, Tensor]]:
    """Inside the block, the returned dict holds each site's latest activation, detached, `[..., agent, unit]`.

    A critic with one shared forward pass appears on every agent's row. Where agents have networks of different kinds,
    each agent's sites have an agent axis of 1. The tensors are the network's own: clone them before changing them.
    Inside `edited` they hold the edited values.

    Args:
        policies: one policy, or policies by group.
        sites: globs over site names, as `"*/actor/hidden_*"`. `<group>/observation` has to be named as such: it is what
            the group's actor receives, and not one of `Policy.sites`.
        into: an existing dict to fill.
    Raises:
        SiteError: a glob matches nothing.
    """
    patterns = [sites] if isinstance(sites, str) else list(sites)
    candidates = all_sites(policies)
    if any(pattern.endswith(f"/{OBSERVATION}") for pattern in patterns):
        candidates = [policy.observation_site for policy in _members(policies)] + candidates
    activations: dict[str, Tensor] = {} if into is None else into
    with ExitStack() as hooks:
        for site in match_sites(candidates, patterns):
            hooks.callback(site.module.register_forward_hook(_store_in(activations, site)).remove)
        yield activations


def all_sites(policies: Policy | Mapping[str, Policy]) -> list[Site]:
    """The sites of one policy, or of policies by group, in order."""
    return [site for policy in _members(policies) for site in policy.sites()]


def _members(policies: Policy | Mapping[str, Policy]) -> list[Policy]:
    return list(policies.values()) if isinstance(policies, Mapping) else [policies]


def _store_in(activations: dict[str, Tensor], site: Site) -> Callable[[nn.Module, object, Tensor], None]:
    def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
        activations[site.name] = site.select_agents(output.detach())

    return hook
