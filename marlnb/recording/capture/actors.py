"""Actor sites of the recorded steps, computed for an episode's rows at once from what was just recorded.

Only where a few steps have shown that the policy is a function of what it sees and of the state that enters the step,
and where nothing is hooked into it: otherwise hooks keep what fires (`marlnb.recording.capture.sources`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor

from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.recompute import TOLERANCE, in_critic, recompute, recomputing
from marlnb.recording.capture.sources import Selection
from marlnb.recording.file.layout import Field


class GroupActor:
    """The chosen sites of one group's actor.

    Attributes:
        fields: one for each site; what `evaluating` gives returns tensors in this order.
    """

    def __init__(self, policy: Policy, selection: Selection, sites: Sequence[Site], dtype: str) -> None:
        self.policy, self.selection = policy, selection
        self.names = [site.name for site in sites]
        self.fields: list[Field] = []
        self._chosen = []
        for site in sites:
            chosen = selection.of_site(site)
            assert chosen is not None  # `select_sites` leaves out those of other agents
            self.fields.append(chosen.field_of(site, dtype))
            self._chosen.append((site.name, chosen.pick))

    @contextmanager
    def evaluating(self) -> Iterator[Callable[[Tensor, Tensor | None], list[Tensor]]]:
        """A function that gives activations `[row, agent, unit]` of observations `[row, agent, *shape]` and of the
        states that entered, while the block runs."""
        with recomputing(self.policy, self.names) as run:

            def evaluate(observation: Tensor, recurrent: Tensor | None) -> list[Tensor]:
                found = run({self.selection.group.name: observation}, recurrent=recurrent)
                return [found[name] if pick is None else found[name][:, pick] for name, pick in self._chosen]

            yield evaluate


def is_hooked(policy: Policy) -> bool:
    """Whether somebody has hung hooks into a policy, as edits do."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in policy.modules())


def agrees(policy: Policy, fired: Mapping[str, Tensor], observation: Tensor, recurrent: Tensor | None) -> bool:
    """Whether what has just fired in the actor is what `recompute` makes of its inputs, to its tolerance."""
    names = [name for name in fired if not in_critic(name)]
    if not names:
        return True
    found = recompute(policy, names, {policy.group.name: observation}, recurrent=recurrent)
    return all(
        found[name].shape == fired[name].shape
        and float((found[name] - fired[name]).abs().max()) <= TOLERANCE * max(1.0, float(fired[name].abs().max()))
        for name in names
    )
