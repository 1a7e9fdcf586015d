"""Values and critic sites of the recorded steps. Acting does not run the critics, so the recorder does.

A feed-forward critic runs over all rows of finished episodes at once. A recurrent critic runs at every step, because
its state must be carried; so does a critic with edits in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from marlnb.errors import SiteError
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import Policy, device_of
from marlnb.recording.capture.recompute import fast_pass
from marlnb.recording.capture.sources import Selection, capture_if_any, recurrent_site, take_agents
from marlnb.recording.file.layout import Field
from marlnb.training.collect.rollout import next_recurrent


class GroupCritic:
    """One group's critic: its values and the chosen sites inside it.

    Args:
        by_step: run it at every step even if it is feed-forward.
    Attributes:
        by_step: whether it runs at every step.
        fields: `steps/<group>/value`, then one field per site, then the entering recurrent state where there is one.
            `evaluating`'s function and `run_step` return tensors in this order.
    """

    def __init__(
        self, policy: Policy, selection: Selection, sites: Sequence[Site], dtype: str, *, by_step: bool = False
    ) -> None:
        self.policy, self.selection, self.sites = policy, selection, list(sites)
        shape = policy.critic_recurrent_shape
        self.by_step = by_step or shape is not None
        # A critic that all agents share runs at every step, for all agents; otherwise waiting agents keep their state.
        self._is_shared = any(site.shared_forward for site in policy.sites() if site.part == "critic")
        self._recurrent: Tensor | None = None
        name, n_agents = selection.group.name, len(selection.indices)
        value = Field(f"steps/{name}/value", ("agent",), (n_agents,), "float32", name)
        fields = [(value, selection.pick), *(selection.field_of(site, dtype) for site in self.sites)]
        if shape is not None:
            path = f"recurrent/{name}/{recurrent_site(policy, 'critic')}"
            state = Field(path, ("agent", "layer", "unit"), (n_agents, *shape), dtype, name)
            fields.append((state, selection.pick))
        self.fields, self._picks = [item for item, _ in fields], [pick for _, pick in fields]

    @contextmanager
    def evaluating(self) -> Iterator[Callable[[Mapping[str, Tensor], Tensor | None], list[Tensor]]]:
        """While the block runs, a function that runs a feed-forward critic over rows.

        It takes observations `[row, agent, *shape]` by group and the environment's state, and returns values and
        activations `[row, agent, ...]`.
        """
        with fast_pass(self.policy, device_of(self.policy)):
            yield lambda observations, state: self._run(observations, state, None)[0]

    def run_step(
        self,
        observations: Mapping[str, Tensor],
        state: Tensor | None,
        starts: Tensor | None,
        acting: Tensor | None = None,
    ) -> list[Tensor]:
        """Runs one step of every env.

        Args:
            starts: `[env]` bool, where an episode starts and the recurrent state is reset; None: nowhere.
            acting: `[env, agent]` bool, in turn-based environments: agents that wait keep their state; None: all act.
        """
        if self.policy.critic_recurrent_shape is None:
            return self._run(observations, state, None)[0]
        before = self._recurrent
        if before is None:
            n_envs = len(next(iter(observations.values())))
            shape = (n_envs, self.selection.group.n_agents, *self.policy.critic_recurrent_shape)
            before = torch.zeros(shape, device=device_of(self.policy))
        if starts is not None:
            before = before.masked_fill(starts.to(before.device)[:, None, None, None], 0.0)
        outputs, after = self._run(observations, state, before)
        updates = None if acting is None or self._is_shared else acting.to(before.device)
        self._recurrent = next_recurrent(before, after, updates)
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
        return [take_agents(x, pick) for x, pick in zip(outputs, self._picks, strict=True)], after
