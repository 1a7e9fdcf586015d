"""Variants: another edit in each part of the environments, so that one rollout tries many edits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from marlnb.errors import ConfigError, unknown
from marlnb.models.hooks.apply_edits import EditHook
from marlnb.models.hooks.edit import Change, Edit, EditTarget, edit_target

Parts = Callable[[Tensor], Tensor]
"""A site's output by part, `[part, env, row, unit]` -> the edited output."""
READ_EPISODES = ("patch", "permute_channel")
"""Kinds of edits whose change depends on which episode an environment plays, or on the other environments."""


@dataclass(frozen=True)
class Variants(Edit):
    """Edits the k-th of several equal parts of the environments by the k-th edit. It exists in memory only.

    Attributes:
        edits: of this site, each at all steps; None leaves its part unchanged.
        copies: each edit gets a copy of the site's whole output `[env, row, unit]`, so the network's output has an
            additional first axis, the edit. The layers after the site must accept it, as linear and hidden layers do.
    """

    name: ClassVar[str] = "variants"

    edits: tuple[Edit | None, ...] = ()
    copies: bool = False

    def bind(self, target: EditTarget) -> Change:
        policy, site = target.policy, target.site
        targets = [None if edit is None else edit_target(edit, policy, site) for edit in self.edits]
        change = _linear_parts(self.edits, targets) or _other_parts(self.edits, targets)
        rows, units = list(target.rows), list(target.units)

        def change_parts(values: Tensor, output: Tensor) -> Tensor:
            if self.copies:
                return change(output.expand(len(targets), *output.shape))
            joined = change(output.unflatten(0, (len(targets), -1))).flatten(0, 1)
            return joined if joined.shape == values.shape else joined[..., rows, :][..., units]

        return change_parts


def _linear_parts(edits: Sequence[Edit | None], targets: Sequence[EditTarget | None]) -> Parts | None:
    """All parts at once, where each change is h' = factor h + offset; None where one is not."""
    indices: list[tuple[int, int, int]] = []
    factors: list[Tensor] = []
    offsets: list[Tensor] = []
    for part, (edit, target) in enumerate(zip(edits, targets)):
        if edit is None or target is None:
            continue
        linear = edit.linear(target)
        if linear is None:
            return None
        indices += itertools.product([part], target.rows, target.units)
        for values, value in zip((factors, offsets), linear):
            values.append(value.expand(len(target.rows), len(target.units)).flatten())
    part_index, row, unit = torch.tensor(indices).unbind(1)
    factor, offset = torch.cat(factors)[:, None], torch.cat(offsets)[:, None]

    def change(output: Tensor) -> Tensor:
        changed = output.clone(memory_format=torch.contiguous_format)
        at = (part_index.to(output.device), slice(None), row.to(output.device), unit.to(output.device))
        by, to = factor.to(output), offset.to(output)
        changed[at] = torch.where(by == 0, to, changed[at] * by + to)
        return changed

    return change


def _other_parts(edits: Sequence[Edit | None], targets: Sequence[EditTarget | None]) -> Parts:
    """One part after the other."""
    hooks = [EditHook(edit, at) if edit is not None and at is not None else None for edit, at in zip(edits, targets)]

    def change(output: Tensor) -> Tensor:
        parts = []
        for hook, part in zip(hooks, output, strict=True):
            changed = None if hook is None else hook(hook.target.site.module, (), part)
            parts.append(part if changed is None else changed)
        return torch.stack(parts)

    return change


def variants(edits: Sequence[Edit | None], *, copies: bool = False) -> Variants:
    """The edit whose k-th part is the k-th of `edits`, which are of one site and one time window.

    Args:
        copies: as in `Variants`.
    Raises:
        ConfigError: edits of several sites or windows, or of a kind that reads the environments' episodes.
    """
    given = [edit for edit in edits if edit is not None]
    places = {(edit.site, edit.t) for edit in given}
    if len(places) != 1:
        raise ConfigError(f"variants of an edit have one site and time window; got {sorted(places, key=str)}")
    if wrong := [edit.name for edit in given if edit.name in READ_EPISODES]:
        raise ConfigError(f"{unknown('edit for parts of the envs', wrong[0], ('ablate', 'scale', 'noise', 'clamp'))}")
    ((site, window),) = places
    return Variants(site, edits=tuple(edit and replace(edit, t=None) for edit in edits), copies=copies, t=window)
