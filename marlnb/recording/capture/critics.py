"""Values and critic sites of the recorded steps: the recorder runs the critics itself, since acting does not.

A feed-forward critic is run once an episode over all its rows, from the observations just recorded; a recurrent one
step by step, since its state must be carried, and so is one with edits in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from marlnb.errors import SiteError
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.recompute import device_of, fast_pass
from marlnb.recording.capture.sources import Selection, capture_if_any, recurrent_site
from marlnb.recording.file.layout import Field
from marlnb.training.collect.rollout import carried


class GroupCritic:
    """One group's critic: its values and the chosen sites inside it.

    Args:
        by_step: run it at every step even if it is feed-forward.
    Attributes:
        fields: `steps/<group>/value`, then a field for each site, then the recurrent state that enters the step, where
            there is one; what `evaluating` gives and `follow` return tensors in this order.
    """

    def __init__(
        self, policy: Policy, selection: Selection, sites: Sequence[Site], dtype: str, *, by_step: bool = False
    ) -> None:
        self.policy, self.selection, self.sites = policy, selection, list(sites)
        shape = policy.critic_recurrent_shape
        self.by_step = by_step or shape is not None
        # one critic for all agents waits for none of them
        self._goes_on = any(site.shared_forward for site in policy.sites() if "/critic/" in site.name)
        self._recurrent: Tensor | None = None
        name, n = selection.group.name, len(selection.indices)
        self.fields = [Field(f"steps/{name}/value", ("agent",), (n,), "float32", name)]
        self._picks = [selection.pick]
        for site in self.sites:
            chosen = selection.of_site(site)
            assert chosen is not None  # `select_sites` leaves out those of other agents
            self.fields.append(chosen.field_of(site, dtype))
            self._picks.append(chosen.pick)
        if shape is not None:
            path = f"recurrent/{name}/{recurrent_site(policy, 'critic')}"
            self.fields.append(Field(path, ("agent", "layer", "unit"), (n, *shape), dtype, name))
            self._picks.append(selection.pick)

    @contextmanager
    def evaluating(self) -> Iterator[Callable[[Mapping[str, Tensor], Tensor | None], list[Tensor]]]:
        """A function that gives a feed-forward critic's values and activations, `[row, agent, ...]`, of observations
        `[row, agent, *shape]` by group and of the environment's state, while the block runs."""
        with fast_pass(self.policy, device_of(self.policy)):
            yield lambda observations, state: self._run(observations, state, None)[0]

    def follow(
        self,
        observations: Mapping[str, Tensor],
        state: Tensor | None,
        begins: Tensor | None,
        acting: Tensor | None = None,
    ) -> list[Tensor]:
        """One step of every copy; a recurrent critic's state is zeroed where an episode `begins` `[env]`.

        acting: `[env, agent]`, where agents wait for one another: the state of one that waits stays; None for all.
        """
        if self.policy.critic_recurrent_shape is None:
            return self._run(observations, state, None)[0]
        before = self._recurrent
        if before is None:
            n_envs = len(next(iter(observations.values())))
            shape = (n_envs, self.selection.group.n_agents, *self.policy.critic_recurrent_shape)
            before = torch.zeros(shape, device=device_of(self.policy))
        if begins is not None:
            before = before.masked_fill(begins.to(before.device)[:, None, None, None], 0.0)
        outputs, after = self._run(observations, state, before)
        holds = None if acting is None or self._goes_on else acting.to(before.device)
        self._recurrent = carried(before, after, holds)
        return outputs

    def _run(
        self, observations: Mapping[str, Tensor], state: Tensor | None, recurrent: Tensor | None
    ) -> tuple[list[Tensor], Tensor | None]:
        device = device_of(self.policy)
        observations = {name: observation.to(device) for name, observation in observations.items()}
        state = None if state is None else state.to(device)
        names = [site.name for site in self.sites]
        with torch.no_grad(), capture_if_any(self.policy, names) as activations:
            value, after = self.policy.value(observations, state=state, recurrent=recurrent)
        silent = sorted(site.name for site in self.sites if site.name not in activations)
        if silent:
            raise SiteError(f"these sites never fired while the critic ran: {', '.join(silent)}")
        outputs = [value, *(activations[site.name] for site in self.sites)]
        if recurrent is not None:
            outputs.append(recurrent)
        return [x if pick is None else x[:, pick] for x, pick in zip(outputs, self._picks, strict=True)], after
