"""Actor sites of the recorded steps, computed for many rows at once from the recorded observations.

This is used only where a dry run showed that the policy is a function of its observation and its entering state, and
where nothing is hooked into it. Otherwise hooks capture what fires (`marlnb.recording.capture.sources`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor

from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.recompute import TOLERANCE, in_critic, recompute, recomputing
from marlnb.recording.capture.sources import Selection, take_agents


class GroupActor:
    """The chosen sites of one group's actor.

    Attributes:
        fields: one field per site, in the order of the tensors that `evaluating`'s function returns.
    """

    def __init__(self, policy: Policy, selection: Selection, sites: Sequence[Site], dtype: str) -> None:
        self.policy, self.selection = policy, selection
        self.names = [site.name for site in sites]
        fields = [selection.field_of(site, dtype) for site in sites]
        self.fields, self._picks = [item for item, _ in fields], [pick for _, pick in fields]

    @contextmanager
    def evaluating(self) -> Iterator[Callable[[Tensor, Tensor | None], list[Tensor]]]:
        """While the block runs, a function from observations `[row, agent, *shape]` and entering states to activations
        `[row, agent, unit]`."""
        with recomputing(self.policy, self.names) as run:

            def evaluate(observation: Tensor, recurrent: Tensor | None) -> list[Tensor]:
                activations = run({self.selection.group.name: observation}, recurrent=recurrent)
                return [take_agents(activations[name], pick) for name, pick in zip(self.names, self._picks)]

            yield evaluate


def is_hooked(policy: Policy) -> bool:
    """Whether any module of a policy has forward hooks, as edits install them."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in policy.modules())


def agrees(policy: Policy, fired: Mapping[str, Tensor], observation: Tensor, recurrent: Tensor | None) -> bool:
    """Whether the activations that just fired in the actor equal the recomputed ones, within `TOLERANCE`."""
    names = [name for name in fired if not in_critic(name)]
    if not names:
        return True
    recomputed = recompute(policy, names, {policy.group.name: observation}, recurrent=recurrent)
    return all(
        recomputed[name].shape == fired[name].shape
        and float((recomputed[name] - fired[name]).abs().max()) <= TOLERANCE * max(1.0, float(fired[name].abs().max()))
        for name in names
    )
