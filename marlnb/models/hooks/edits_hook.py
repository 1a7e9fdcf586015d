"""EditHook: the forward hook that makes one edit at one place. Everything that can be is worked out beforehand."""

from __future__ import annotations

from types import EllipsisType

import torch
from torch import Tensor, nn

from marlnb.errors import ShapeError
from marlnb.models.hooks import episode_context as clock
from marlnb.models.hooks.edit import Edit, Place

Index = slice | Tensor


class EditHook:
    """Called with a module's output `[..., row, unit]`; gives the changed output, None where nothing changes."""

    def __init__(self, edit: Edit, place: Place) -> None:
        self.edit, self.place = edit, place
        self._change = edit.begin(place)
        self._timed = edit.t is not None
        self._rows, self._units = _index(place.rows), _index(place.units)
        self._whole = place.units == tuple(range(place.site.n_units))
        self._nothing = not place.units

    def __call__(self, module: nn.Module, inputs: object, output: Tensor) -> Tensor | None:
        if self._nothing:
            return None
        within = self._within(output) if self._timed else None
        if within is False:
            return None
        all_rows = self._whole and self.place.rows == tuple(range(output.shape[-2]))
        before = output if all_rows else self._read(output)
        after = self._change(before, output)
        if isinstance(within, Tensor):
            after = torch.where(within, after, before)
        if all_rows:
            return after
        changed = output.clone()
        self._write(changed, after)
        return changed

    def _within(self, output: Tensor) -> Tensor | bool:
        """Whether the edit is in force: in no copy or every one, or of each `[env, 1, 1]`."""
        t = clock.now(f"the edit of {self.edit.site!r} with t={self.edit.t!r}").t
        check_moment(output, t, self.place)
        start, stop = self.edit.window
        within = t >= start if stop is None else (t >= start) & (t < stop)
        if not bool(within.any()):
            return False
        return True if bool(within.all()) else within.to(output.device)[:, None, None]

    def _read(self, output: Tensor) -> Tensor:
        return output[self._key(output.device)]

    def _write(self, output: Tensor, values: Tensor) -> None:
        output[self._key(output.device)] = values

    def _key(self, device: torch.device) -> tuple[EllipsisType, Index, Index]:
        for name in ("_rows", "_units"):
            index = getattr(self, name)
            if isinstance(index, Tensor) and index.device != device:
                setattr(self, name, index.to(device))
        rows, units = self._rows, self._units
        if isinstance(rows, Tensor) and isinstance(units, Tensor):
            rows = rows[:, None]
        return (..., rows, units)


def check_moment(output: Tensor, t: Tensor, place: Place) -> None:
    """Raises ShapeError unless `output` is `[env, row, unit]` with as many copies as the clock tells of."""
    if output.ndim != 3 or len(output) != len(t):
        raise ShapeError(
            f"{place.site.name!r} gave an output {list(output.shape)}; an edit in time takes one moment of each copy, "
            f"[env, agent, unit], and the clock tells of {len(t)} copies"
        )


def _index(indices: tuple[int, ...]) -> Index:
    """A slice where they are consecutive: it reads a view, and costs least."""
    if indices and indices == tuple(range(indices[0], indices[0] + len(indices))):
        return slice(indices[0], indices[0] + len(indices))
    return torch.tensor(indices, dtype=torch.long)
