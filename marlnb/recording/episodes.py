"""EpisodeIndex: where each episode of a recording lies among its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h5py
import numpy as np

from marlnb.errors import RecordingError
from marlnb.recording.array import Selector

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("start", "length", "n_steps", "seed")


@dataclass(frozen=True)
class EpisodeIndex:
    """Episodes by number, ascending.

    Attributes:
        number, start, length, n_steps, seed: `[episode]` int64; start and length count rows, n_steps steps.
        returns: `[episode, agent]`, of the recorded agents.
        n_rows: rows of whole episodes; those after them are of an episode that broke off.
    """

    number: np.ndarray
    start: np.ndarray
    length: np.ndarray
    n_steps: np.ndarray
    seed: np.ndarray
    returns: np.ndarray
    n_rows: int

    @staticmethod
    def read(file: h5py.File, n_rows: int) -> EpisodeIndex:
        """The episodes of which all of the first `n_rows` rows are there."""
        table = file["episodes"]
        count = min(table[name].shape[0] for name in ("episode", "return", *COLUMNS))
        columns = {name: table[name][:count] for name in ("episode", *COLUMNS)}
        stops = columns["start"] + columns["length"]
        whole = np.flatnonzero(stops <= n_rows)
        order = whole[np.argsort(columns["episode"][whole], kind="stable")]
        number, *others = (columns[name][order] for name in ("episode", *COLUMNS))
        return EpisodeIndex(number, *others, table["return"][:count][order], int(stops[whole].max(initial=0)))

    def __len__(self) -> int:
        return len(self.number)

    def frame(self, agents: Sequence[str]) -> pd.DataFrame:
        """A table with a column for each agent's return, by its name."""
        import pandas as pd

        columns = {name: getattr(self, name) for name in COLUMNS}
        return pd.DataFrame(
            {**columns, **dict(zip(agents, self.returns.T))}, index=pd.Index(self.number, name="episode")
        )

    def rows(self, among: np.ndarray, selectors: Mapping[str, Selector], times: Callable[[], np.ndarray]) -> np.ndarray:
        """The rows of `among` that are of the chosen episodes and times, in the episodes' order.

        Raises:
            RecordingError: an episode that is not there, or a time at which nothing was recorded.
        """
        rows = among
        if "episode" in selectors:
            chosen = self._episodes(selectors["episode"])
            parts = [np.arange(self.start[i], self.start[i] + self.length[i]) for i in chosen]
            rows = np.concatenate(parts) if parts else np.empty(0, np.int64)
            if len(among) < self.n_rows or not _is_everything(among):
                rows = rows[np.isin(rows, among)]
        if "t" in selectors:
            rows = _at_times(rows, selectors["t"], times())
        return rows

    def _episodes(self, selector: Selector) -> list[int]:
        if isinstance(selector, slice):
            last = int(self.number.max(initial=-1)) + 1
            wanted = range(last)[selector]
            return np.flatnonzero(np.isin(self.number, wanted)).tolist()
        if isinstance(selector, str):
            raise RecordingError(f"an episode is chosen by its number; got {selector!r}")
        numbers = [int(selector)] if isinstance(selector, (int, np.integer)) else [int(n) for n in selector]
        missing = sorted(set(numbers) - set(self.number.tolist()))
        if missing:
            have = f"{self.number.min()} to {self.number.max()}" if len(self) else "none"
            raise RecordingError(f"no episode {', '.join(map(str, missing[:5]))} in this recording; it has {have}")
        return np.searchsorted(self.number, numbers).tolist()


def _is_everything(rows: np.ndarray) -> bool:
    return bool(len(rows)) and rows[0] == 0 and rows[-1] == len(rows) - 1


def _at_times(rows: np.ndarray, selector: Selector, times: np.ndarray) -> np.ndarray:
    t = times[rows]
    if isinstance(selector, slice):
        longest = int(t.max(initial=-1)) + 1
        return rows[np.isin(t, np.arange(longest)[selector])]
    if isinstance(selector, str):
        raise RecordingError(f"t is a number of steps; got {selector!r}")
    wanted = np.atleast_1d(np.asarray(selector))
    found = rows[np.isin(t, wanted)]
    if not len(found):
        raise RecordingError(
            f"nothing was recorded at t={selector}; times go from {t.min(initial=0)} to {t.max(initial=0)}"
        )
    return found
