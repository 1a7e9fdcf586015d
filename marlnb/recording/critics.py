"""Values and critic sites of the recorded steps: the recorder runs the critics itself, since acting does not.

A feed-forward critic is run once an episode over all its rows, from the observations just recorded; a recurrent one
step by step, since its state must be carried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from marlnb.errors import SiteError
from marlnb.models.policy import Policy
from marlnb.models.sites import Site
from marlnb.recording.layout import Field
from marlnb.recording.sources import Selection, capture_if_any
from marlnb.training.rollout import carried


class GroupCritic:
    """One group's critic: its values and the chosen sites inside it.

    Attributes:
        fields: `steps/<group>/value`, then a field for each site; `evaluate` returns tensors in this order.
    """

    def __init__(self, policy: Policy, selection: Selection, sites: Sequence[Site], dtype: str) -> None:
        self.policy, self.selection, self.sites = policy, selection, list(sites)
        self.by_step = policy.critic_recurrent_shape is not None
        # one critic for all agents waits for none of them
        self._goes_on = any(site.once_for_all for site in policy.sites() if "/critic/" in site.name)
        self._recurrent: Tensor | None = None
        name, n = selection.group.name, len(selection.indices)
        self.fields = [Field(f"steps/{name}/value", ("agent",), (n,), "float32", name)]
        self._picks = [selection.pick]
        for site in self.sites:
            chosen = selection.of_site(site)
            assert chosen is not None  # `select_sites` leaves out those of other agents
            shape, own = (len(chosen.indices), site.n_units), () if site.agents is None else chosen.agents
            self.fields.append(Field(f"activations/{site.name}", ("agent", "unit"), shape, dtype, name, own))
            self._picks.append(chosen.pick)

    def evaluate(self, observations: Mapping[str, Tensor], state: Tensor | None) -> list[Tensor]:
        """A feed-forward critic's values and activations, `[row, agent, ...]`, from `[row, agent, *shape]` by group."""
        return self._run(observations, state, None)[0]

    def follow(
        self,
        observations: Mapping[str, Tensor],
        state: Tensor | None,
        begins: Tensor | None,
        acting: Tensor | None = None,
    ) -> list[Tensor]:
        """A recurrent critic's, one step of every copy; its state is zeroed where an episode `begins` `[env]`.

        acting: `[env, agent]`, where agents wait for one another: the state of one that waits stays; None for all.
        """
        before = self._recurrent
        if before is None:
            n_envs = len(next(iter(observations.values())))
            shape = self.policy.critic_recurrent_shape or ()
            device = next(self.policy.parameters()).device
            before = torch.zeros(n_envs, self.selection.group.n_agents, *shape, device=device)
        if begins is not None:
            before = before.masked_fill(begins.to(before.device)[:, None, None, None], 0.0)
        outputs, after = self._run(observations, state, before)
        holds = None if acting is None or self._goes_on else acting.to(before.device)
        self._recurrent = carried(before, after, holds)
        return outputs

    def _run(
        self, observations: Mapping[str, Tensor], state: Tensor | None, recurrent: Tensor | None
    ) -> tuple[list[Tensor], Tensor | None]:
        device = next((parameter.device for parameter in self.policy.parameters()), torch.device("cpu"))
        observations = {name: observation.to(device) for name, observation in observations.items()}
        state = None if state is None else state.to(device)
        names = [site.name for site in self.sites]
        with torch.no_grad(), capture_if_any(self.policy, names) as activations:
            value, after = self.policy.value(observations, state=state, recurrent=recurrent)
        silent = sorted(site.name for site in self.sites if site.name not in activations)
        if silent:
            raise SiteError(f"these sites never fired while the critic ran: {', '.join(silent)}")
        outputs = [value, *(activations[site.name] for site in self.sites)]
        return [x if pick is None else x[:, pick] for x, pick in zip(outputs, self._picks, strict=True)], after
