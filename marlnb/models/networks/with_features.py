"""WithFeatures: a policy in which a dictionary's features are a site of their own, to be recorded, decoded and edited.

The features are computed beside the site, `<site>_features`, when somebody looks. As long as nobody changes them the
policy is bit for bit what it was; a change of features adds the decoded difference to the site's output, so that what
the dictionary cannot express stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn

from marlnb.errors import ShapeError
from marlnb.models.hooks.sites import Site, match_sites
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.models.policies.policy import ActorOutput, Policy


class FeatureTap(nn.Module):
    """Features `[..., agent, feature]` of a site's output; what its hooks return is what the site goes on with."""

    def __init__(self, autoencoder: SparseAutoencoder) -> None:
        super().__init__()
        self.autoencoder = autoencoder

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.autoencoder(x)
        return found


class WithFeatures(Policy):
    """A copy of `policy` with the features of one site as another.

    Args:
        site: as `listener/actor/hidden_1`.
        agents: whose features, as indices within the group; None: all agents of the site.
    Raises:
        SiteError: the policy has no such site.
        ShapeError: the site has another number of units.
    """

    def __init__(
        self,
        policy: Policy,
        site: str,
        autoencoder: SparseAutoencoder,
        agents: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.inner, self.group = deepcopy(policy), policy.group
        self.recurrent_shape, self.critic_recurrent_shape = policy.recurrent_shape, policy.critic_recurrent_shape
        own = match_sites(self.inner.sites(), site)[0]
        if own.n_units != autoencoder.n_units:
            raise ShapeError(f"{site!r} has {own.n_units} units; this dictionary was made for {autoencoder.n_units}")
        self._after = site
        self._agents = own.agents if agents is None else agents
        self._rows = own.rows if agents is None else tuple(_row(own, agent) for agent in agents)
        self._once_for_all = own.shared_forward
        self.tap = FeatureTap(autoencoder)
        own.module.register_forward_hook(self._replace)

    def _replace(self, module: nn.Module, inputs: object, output: Tensor) -> Tensor | None:
        if not self.tap._forward_hooks:
            return None
        features, untouched = self.tap(output), self.tap.autoencoder(output)  # their gradients by `output` cancel out
        return output + (features - untouched) @ self.tap.autoencoder.decoder * self.tap.autoencoder.scale

    def sites(self) -> list[Site]:
        """The policy's own, and the features after the site that they are of."""
        found = []
        for site in self.inner.sites():
            found.append(site)
            if site.name == self._after:
                n_agents = site.n_agents if self._agents is None else len(self._agents)
                found.append(
                    Site(
                        f"{self._after}_features",
                        self.tap,
                        n_agents,
                        self.tap.autoencoder.n_features,
                        "hidden",
                        self._once_for_all,
                        self._agents,
                        self._rows,
                    )
                )
        return found

    def act(
        self,
        observation: Tensor,
        *,
        recurrent: Tensor | None = None,
        action_mask: Tensor | None = None,
        explore: bool = True,
        generator: torch.Generator | None = None,
    ) -> ActorOutput:
        return self.inner.act(
            observation, recurrent=recurrent, action_mask=action_mask, explore=explore, generator=generator
        )

    def logits(self, observation: Tensor, *, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self.inner.logits(observation, recurrent=recurrent)

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        return self.inner.value(observations, state=state, recurrent=recurrent)

    @property
    def distribution(self) -> ActionDistribution | None:
        return self.inner.distribution

    @property
    def cross_agent(self) -> bool:
        return self.inner.cross_agent

    @property
    def has_critic(self) -> bool:
        return self.inner.has_critic


def _row(site: Site, agent: int) -> int:
    row = site.row_of(agent)
    if row is None:
        raise ShapeError(f"agent {agent} has no activation at {site.name!r}; it has those of {site.agents}")
    return row
