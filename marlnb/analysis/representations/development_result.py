"""What became readable, alike or tuned, when in training, and where in the network."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.results import doubts, shown_as_html


@dataclass(frozen=True)
class Development:
    """A score of each place at each checkpoint.

    Attributes:
        what: as `goal decoded (balanced accuracy)`; places: names of sites (and agents, where there are several).
        iterations: `[checkpoint]`, ascending.
        values, low, high, control: `[place, checkpoint]`; control: what the observation alone gives (decoding), or
            chance (tuning, similarity).
        control_name: in words.
        returns: by group, `[checkpoint]`, mean return of the recorded episodes; NaN where none ended.
    """

    what: str
    places: tuple[str, ...]
    iterations: np.ndarray
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    control: np.ndarray
    control_name: str
    returns: dict[str, np.ndarray]
    warnings: tuple[str, ...] = ()

    def table(self) -> pd.DataFrame:
        """One line a place and checkpoint."""
        arrays = {"value": self.values, "low": self.low, "high": self.high, self.control_name: self.control}
        return pd.DataFrame(
            [
                {"place": place, "iteration": int(c), **{name: array[i, j] for name, array in arrays.items()}}
                for i, place in enumerate(self.places)
                for j, c in enumerate(self.iterations)
            ]
        )

    def to_json(self) -> dict[str, Any]:
        found = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(self).items()}
        return {**found, "returns": {name: values.tolist() for name, values in self.returns.items()}}

    def __repr__(self) -> str:
        flag = doubts(self.warnings)
        first, last = self.values[:, 0], self.values[:, -1]
        where = int(np.nanargmax(last))
        return (
            f"Development({self.what}: {len(self.places)} places, checkpoints {self.iterations[0]} to "
            f"{self.iterations[-1]}; {self.places[where]} {first[where]:.2f} to {last[where]:.2f}{flag})"
        )

    def _repr_html_(self) -> str:
        square = pd.DataFrame(self.values, index=list(self.places), columns=[int(c) for c in self.iterations])
        return shown_as_html(repr(self), self.warnings, square, index=True)
