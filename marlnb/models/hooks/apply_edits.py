"""edited: a block inside which policies act with edits applied. Each edit is one forward hook at one site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import EllipsisType
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from marlnb.errors import ShapeError, SiteError, unknown
from marlnb.models.hooks import episode_context
from marlnb.models.hooks.edit import Edit, EditTarget, edit_target
from marlnb.models.hooks.sites import OBSERVATION, match_sites

if TYPE_CHECKING:
    from marlnb.models.policies.policy import Policy

Index = slice | Tensor


@contextmanager
def edited(policies: Policy | Mapping[str, Policy], edits: Iterable[Edit]) -> Iterator[None]:
    """Inside the block the policies act with the edits, in the given order. Afterwards no hook remains.

    Raises:
        SiteError: no policy has the site of an edit.
        ShapeError: the site has no such unit or agent.
        ConfigError: the recording that an edit needs is not the one that it was made with.
    """
    hooks: list[EditHook] = []
    n_earlier: Counter[tuple[str, str]] = Counter()
    for edit in edits:
        for target in edit_targets(policies, edit):
            key = target.site.name, edit.name
            hooks.append(EditHook(edit, replace(target, n_earlier=n_earlier[key])))
            n_earlier[key] += 1
    with ExitStack() as stack:
        for hook in reversed(hooks):  # prepended, so that `capture` sees the edited values
            stack.callback(hook.target.site.module.register_forward_hook(hook, prepend=True).remove)
        yield


def edit_targets(policies: Policy | Mapping[str, Policy], edit: Edit) -> list[EditTarget]:
    """Where an edit would apply.

    Raises:
        SiteError, ShapeError: as `edited`.
    """
    members = list(policies.values()) if isinstance(policies, Mapping) else [policies]
    of_observation = edit.site.endswith(f"/{OBSERVATION}")
    sites = [
        (policy, site)
        for policy in members
        for site in ([policy.observation_site] if of_observation else policy.sites())
    ]
    names = {site.name for site in match_sites([site for _, site in sites], edit.site)}
    matches = [(policy, site) for policy, site in sites if site.name in names]
    known_agents = {agent for policy, _ in matches for agent in policy.group.agents}
    for agent in edit.agents or ():
        if isinstance(agent, str) and agent not in known_agents:
            raise ShapeError(unknown(f"agent at {edit.site!r}", agent, known_agents))
    targets = [target for policy, site in matches if (target := edit_target(edit, policy, site)) is not None]
    if not targets:
        raise SiteError(
            f"the edit of {edit.site!r} matches no agent; requested {edit.agents}; valid: {sorted(known_agents)}"
        )
    return targets


class EditHook:
    """A forward hook: receives a module's output `[..., row, unit]`, returns the edited output or None (no change).

    Indices and tensors are prepared beforehand, since a rollout calls the hook at every step.
    """

    def __init__(self, edit: Edit, target: EditTarget) -> None:
        self.edit, self.target = edit, target
        self._change = edit.bind(target)
        self._rows, self._units = _index(target.rows), _index(target.units)
        self._all_units = target.units == tuple(range(target.site.n_units))

    def __call__(self, module: nn.Module, inputs: object, output: Tensor) -> Tensor | None:
        if not self.target.units:
            return None
        in_window = True if self.edit.t is None else self._in_window(output)
        if in_window is False:
            return None
        whole_output = self._all_units and self.target.rows == tuple(range(output.shape[-2]))
        index = None if whole_output else self._index_on(output.device)
        before = output if index is None else output[index]
        after = self._change(before, output)
        if isinstance(in_window, Tensor):
            after = torch.where(in_window, after, before)
        if index is None:
            return after
        changed = output.clone()
        changed[index] = after
        return changed

    def _in_window(self, output: Tensor) -> Tensor | bool:
        """Whether the edit applies: True or False for all environments, or bool `[env, 1, 1]`."""
        t = episode_context.now(f"the edit of {self.edit.site!r} with t={self.edit.t!r}").t
        check_one_time_step(output, t, self.target)
        start, stop = self.edit.window
        in_window = t >= start if stop is None else (t >= start) & (t < stop)
        if not bool(in_window.any()):
            return False
        return True if bool(in_window.all()) else in_window.to(output.device)[:, None, None]

    def _index_on(self, device: torch.device) -> tuple[EllipsisType, Index, Index]:
        for name in ("_rows", "_units"):
            index = getattr(self, name)
            if isinstance(index, Tensor) and index.device != device:
                setattr(self, name, index.to(device))
        rows, units = self._rows, self._units
        if isinstance(rows, Tensor) and isinstance(units, Tensor):
            rows = rows[:, None]
        return (..., rows, units)


def check_one_time_step(output: Tensor, t: Tensor, target: EditTarget) -> None:
    """Raises ShapeError unless `output` is `[env, row, unit]` with as many environments as the episode context."""
    if output.ndim != 3 or len(output) != len(t):
        raise ShapeError(
            f"{target.site.name!r} returned an output {list(output.shape)}; an edit that depends on time expects one "
            f"time step, [env, agent, unit], of {len(t)} environments"
        )


def _index(indices: tuple[int, ...]) -> Index:
    """A slice where the indices are consecutive: it reads a view, the cheapest way."""
    if indices and indices == tuple(range(indices[0], indices[0] + len(indices))):
        return slice(indices[0], indices[0] + len(indices))
    return torch.tensor(indices, dtype=torch.long)
