"""WithFeatures: a policy with a dictionary's features as an additional site, which can be recorded, decoded and edited.

The features are computed next to the site, as `<site>_features`, when a hook needs them. While no hook changes them the
policy is unchanged bit for bit. A change from features f to f' adds the decoded difference to the site's output, so
the part that the dictionary cannot express is kept:

    h' = h + scale * (f' - f) D      D: the decoder, `[feature, unit]`
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

from torch import Tensor, nn

from marlnb.errors import ShapeError
from marlnb.models.hooks.sites import Site, match_sites
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.models.policies.policy import ActContext, ActorOutput, Policy, Reads


class FeatureTap(nn.Module):
    """Features `[..., agent, feature]` of a site's output `[..., agent, unit]`; its hooks can replace them."""

    def __init__(self, autoencoder: SparseAutoencoder) -> None:
        super().__init__()
        self.autoencoder = autoencoder

    def forward(self, x: Tensor) -> Tensor:
        return self.autoencoder(x)  # type: ignore[no-any-return]


class WithFeatures(Policy):
    """A copy of `policy` with the features of one site as another site.

    Args:
        policy: the policy to copy.
        site: the site, such as `listener/actor/hidden_1`.
        autoencoder: the dictionary of its activations.
        agents: agents to compute features for, as indices within the group; None: all agents of the site.
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
        self.inner, self.group, self.greedy = deepcopy(policy), policy.group, policy.greedy
        self.recurrent_shape, self.critic_recurrent_shape = policy.recurrent_shape, policy.critic_recurrent_shape
        base = match_sites(self.inner.sites(), site)[0]
        if base.n_units != autoencoder.n_units:
            raise ShapeError(f"{site!r} has {base.n_units} units; this dictionary has {autoencoder.n_units}")
        self._base_name = site
        self._agents = base.agents if agents is None else agents
        self._rows = base.rows if agents is None else tuple(_row(base, agent) for agent in agents)
        self.tap = FeatureTap(autoencoder)
        base.module.register_forward_hook(self._replace)

    def _replace(self, module: nn.Module, inputs: object, output: Tensor) -> Tensor | None:
        if not self.tap._forward_hooks:
            return None
        edited, original = self.tap(output), self.tap.autoencoder(output)  # their gradients by `output` cancel out
        return output + (edited - original) @ self.tap.autoencoder.decoder * self.tap.autoencoder.scale

    def sites(self) -> list[Site]:
        """The policy's own sites, with the features after the site that they describe."""
        sites = []
        for site in self.inner.sites():
            sites.append(site)
            if site.name == self._base_name:
                n_agents = site.n_agents if self._agents is None else len(self._agents)
                described = replace(site, kind="hidden", agents=self._agents, rows=self._rows, n_agents=n_agents)
                name, n_units = f"{self._base_name}_features", self.tap.autoencoder.n_features
                sites.append(replace(described, name=name, module=self.tap, n_units=n_units))
        return sites

    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        return self.inner.choose(observation, context)

    def logits(self, observation: Tensor, *, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self.inner.logits(self.observe(observation), recurrent=recurrent)

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        return self.inner.value(observations, state=state, recurrent=recurrent)

    def scale_bytes(self, values: Tensor) -> Tensor:
        return self.inner.scale_bytes(values)

    def begin_episodes(self, done: Tensor) -> None:
        self.inner.begin_episodes(done)

    @property
    def values_by_state(self) -> bool:
        return self.inner.values_by_state

    @property
    def distribution(self) -> ActionDistribution | None:
        return self.inner.distribution

    @property
    def cross_agent(self) -> bool:
        return self.inner.cross_agent

    @property
    def has_critic(self) -> bool:
        return self.inner.has_critic

    @property
    def critic_reads(self) -> Reads:
        return self.inner.critic_reads


def _row(site: Site, agent: int) -> int:
    row = site.row_of(agent)
    if row is None:
        raise ShapeError(f"agent {agent} has no activation at {site.name!r}; its agents are {site.agents}")
    return row
