"""Variants: another edit in each part of the environments, so that one rollout tries many edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from marlnb.errors import ConfigError, unknown
from marlnb.models.hooks.apply_edits import EditHook, edit_targets
from marlnb.models.hooks.edit import Change, Edit, EditTarget

READ_EPISODES = ("patch", "permute_channel")
"""Kinds of edits whose change depends on which episode an environment plays, or on the other environments."""


@dataclass(frozen=True)
class Variants(Edit):
    """Edits the k-th of several equal parts of the environments by the k-th edit. It exists in memory only.

    Attributes:
        edits: of this site, each at all steps; None leaves its part unchanged.
    """

    name: ClassVar[str] = "variants"

    edits: tuple[Edit | None, ...] = ()

    def bind(self, target: EditTarget) -> Change:
        hooks = [None if edit is None else EditHook(edit, edit_targets(target.policy, edit)[0]) for edit in self.edits]
        module, rows, units = target.site.module, list(target.rows), list(target.units)

        def change_parts(values: Tensor, output: Tensor) -> Tensor:
            parts = []
            for hook, part in zip(hooks, output.chunk(len(hooks)), strict=True):
                changed = None if hook is None else hook(module, (), part)
                parts.append(part if changed is None else changed)
            joined = torch.cat(parts)
            return joined if joined.shape == values.shape else joined[..., rows, :][..., units]

        return change_parts


def variants(edits: Sequence[Edit | None]) -> Variants:
    """The edit whose k-th part is the k-th of `edits`, which are of one site and one time window.

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
    return Variants(site, edits=tuple(edit and replace(edit, t=None) for edit in edits), t=window)
