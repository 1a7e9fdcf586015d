"""capture: sees what chosen sites output while the block runs, and leaves no hook behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from marlnb.models.hooks.sites import Site, match_sites
from marlnb.models.policies.policy import Policy


@contextmanager
def capture(
    policies: Policy | Mapping[str, Policy],
    sites: str | Iterable[str] = "*",
    *,
    into: dict[str, Tensor] | None = None,
) -> Iterator[dict[str, Tensor]]:
    """Inside the block, the returned dict holds each site's latest activation, detached, `[..., agent, unit]`.

    A critic that serves all agents with one pass is shown on every agent's row; where agents have networks of different
    kinds, an agent's sites have an agent axis of 1. The tensors are the network's own:
    clone what is to be changed. Inside `edited` they are the edited values.

    Args:
        policies: one policy, or policies by group.
        sites: globs over site names, as `"*/actor/hidden_*"`.
        into: the dict to fill, where there is one already.
    Raises:
        SiteError: a glob that matches nothing.
    """
    chosen = match_sites(all_sites(policies), sites)
    activations: dict[str, Tensor] = {} if into is None else into
    with ExitStack() as hooks:
        for site in chosen:
            hooks.callback(site.module.register_forward_hook(_keeper(site, activations)).remove)
        yield activations


def all_sites(policies: Policy | Mapping[str, Policy]) -> list[Site]:
    """The sites of one policy, or of policies by group, in order."""
    members = [policies] if isinstance(policies, Policy) else list(policies.values())
    return [site for policy in members for site in policy.sites()]


def _keeper(site: Site, activations: dict[str, Tensor]) -> Callable[[nn.Module, object, Tensor], None]:
    def keep(module: nn.Module, inputs: object, output: Tensor) -> None:
        activations[site.name] = site.own_rows(output.detach())

    return keep
