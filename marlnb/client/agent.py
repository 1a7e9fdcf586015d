"""Agent: what one agent of a simulator observes and does; the client and the server check messages against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .messages import InvalidReport


@dataclass(frozen=True)
class Agent:
    """One agent's observations and actions; both ends check messages against it.

    Attributes:
        name: of the agent.
        group: the name of its group.
        shape: of an observation.
        dtype: of an observation.
        kind: discrete (an int in `[0, n[0])`), multi_discrete (`[component]`, component k in `[0, n[k])`) or
            continuous (`[component]` in `[low, high]`).
        n: number of choices of each discrete component.
        low: of each continuous component.
        high: of each continuous component.
        has_mask: whether each request comes with an action mask of `sum(n)` booleans.
    """

    name: str
    group: str
    shape: tuple[int, ...]
    dtype: str
    kind: str
    n: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    has_mask: bool

    def observation(self, value: Any) -> np.ndarray:
        """The observation in the agent's shape and dtype.

        Raises:
            InvalidReport: another shape, or values that the dtype cannot hold.
        """
        expected = f"{self.dtype} of shape {list(self.shape)}"
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InvalidReport(f"observation of {self.name!r}: {error}; expected {expected}") from None
        got = f"{array.dtype.name} of shape {list(array.shape)}"
        if array.shape != self.shape or array.dtype.kind not in ("fiub" if self.dtype == "float32" else "iub"):
            raise InvalidReport(f"observation of {self.name!r}: got {got}; expected {expected}")
        if self.dtype != "float32" and array.dtype.name != self.dtype:
            bounds = (0, 1) if self.dtype == "bool" else (np.iinfo(self.dtype).min, np.iinfo(self.dtype).max)
            if array.size and (int(array.min()) < bounds[0] or int(array.max()) > bounds[1]):
                raise InvalidReport(f"observation of {self.name!r}: values beyond {bounds}; expected {expected}")
        with np.errstate(over="ignore"):  # an overflow becomes infinite, which is checked next
            array = array.astype(self.dtype, copy=False)
        if self.dtype == "float32" and not np.isfinite(array).all():
            raise InvalidReport(f"observation of {self.name!r}: some numbers are not finite; expected {expected}")
        return array

    def mask(self, value: Any) -> np.ndarray:
        """The action mask `[sum(n)]` of bool, with at least one allowed choice for each component.

        Raises:
            InvalidReport: another shape, or a component without an allowed choice.
        """
        array = np.asarray(value)
        if not self.has_mask:
            raise InvalidReport(f"action mask of {self.name!r}: its group {self.group!r} has none")
        if array.shape != (sum(self.n),):
            shape = list(array.shape)
            raise InvalidReport(f"action mask of {self.name!r}: got shape {shape}; expected [{sum(self.n)}]")
        array = array.astype(bool)
        if not all(part.any() for part in np.split(array, np.cumsum(self.n)[:-1])):
            raise InvalidReport(f"action mask of {self.name!r}: a component has no allowed choice")
        return array

    def action(self, array: np.ndarray) -> Any:
        return int(array) if self.kind == "discrete" else array.copy()
