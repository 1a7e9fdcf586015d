"""ObservationGate: makes what a group's actors see a site, `<group>/observation`, while edits of it are in force.

Critics are left as they are: they see what the environment shows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from marlnb.models.hooks.edit import OBSERVATION
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import ActorOutput, Policy


class ObservationGate:
    """While it is entered, a policy's observations pass through `site.module`, flattened: `[..., agent, feature]`."""

    def __init__(self, policy: Policy) -> None:
        self.policy, group = policy, policy.group
        self.site = Site(f"{group.name}/{OBSERVATION}", nn.Identity(), group.n_agents, group.observation.size, "hidden")
        self._before: dict[str, Any] = {}

    def __enter__(self) -> ObservationGate:
        act, logits = self.policy.act, self.policy.logits
        own = self.policy.__dict__

        def act_on_edited(
            observation: Tensor,
            *,
            recurrent: Tensor | None = None,
            action_mask: Tensor | None = None,
            explore: bool = True,
            generator: torch.Generator | None = None,
        ) -> ActorOutput:
            seen = self.pass_through(observation)
            return act(seen, recurrent=recurrent, action_mask=action_mask, explore=explore, generator=generator)

        def logits_of_edited(observation: Tensor, *, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
            return logits(self.pass_through(observation), recurrent=recurrent)

        self._before = {name: own[name] for name in ("act", "logits") if name in own}
        own.update(act=act_on_edited, logits=logits_of_edited)
        return self

    def __exit__(self, *exception: object) -> None:
        for name in ("act", "logits"):
            del self.policy.__dict__[name]
        self.policy.__dict__.update(self._before)

    def pass_through(self, observation: Tensor) -> Tensor:
        """The observation `[..., agent, *shape]` as the edits leave it, in its own dtype."""
        axes = len(self.policy.group.observation.shape)
        flat = observation.flatten(-axes) if axes else observation.unsqueeze(-1)
        changed: Tensor = self.site.module(flat if flat.is_floating_point() else flat.float())
        if not observation.is_floating_point():
            info = torch.iinfo(observation.dtype)
            changed = changed.round().clamp(info.min, info.max).to(observation.dtype)
        return changed.reshape(observation.shape)
