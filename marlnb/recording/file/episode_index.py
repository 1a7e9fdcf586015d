"""EpisodeIndex: where each episode of a recording lies among its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from marlnb.envs.vector import SEED_SPAN
from marlnb.errors import RecordingError
from marlnb.recording.file.array import Selector

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("start", "length", "n_steps", "seed")


@dataclass(frozen=True)
class EpisodeIndex:
    """Episodes by number, ascending.

    Attributes:
        number, start, length, n_steps, seed: `[episode]` int64; start and length count rows, n_steps steps.
        returns: `[episode, agent]`, of the recorded agents; NaN for an episode that broke off.
        iteration: `[episode]` int64, of the checkpoint that played it.
        finished: `[episode]` bool, False for the one that a kill cut short.
        n_rows: rows of all of them.
    """

    number: np.ndarray
    start: np.ndarray
    length: np.ndarray
    n_steps: np.ndarray
    seed: np.ndarray
    returns: np.ndarray
    iteration: np.ndarray
    finished: np.ndarray
    n_rows: int

    @staticmethod
    def read(file: h5py.File, n_rows: int) -> EpisodeIndex:
        """The episodes among the first `n_rows` rows; an entry is written before the last of its rows is."""
        table = file["episodes"]
        columns = {name: table[name][:] for name in ("episode", "return", *COLUMNS)}
        whole = columns["start"] + columns["length"] <= n_rows
        columns = {name: values[whole] for name, values in columns.items()}
        told = table["finished"][:].astype(bool) if "finished" in table else np.ones(len(whole), bool)
        finished = told[whole]
        last = int((columns["start"] + columns["length"]).max(initial=0))
        if last < n_rows:
            broken = _broken_off(file, last, n_rows)
            columns = {name: np.append(values, [broken[name]], axis=0) for name, values in columns.items()}
            finished = np.append(finished, False)
        order = np.argsort(columns["episode"], kind="stable")
        return EpisodeIndex(
            number=columns["episode"][order],
            start=columns["start"][order],
            length=columns["length"][order],
            n_steps=columns["n_steps"][order],
            seed=columns["seed"][order],
            returns=columns["return"][order],
            iteration=_iterations(file, columns["start"][order]),
            finished=finished[order],
            n_rows=n_rows,
        )

    def __len__(self) -> int:
        return len(self.number)

    def frame(self, agents: Sequence[str]) -> pd.DataFrame:
        """A table with a column for each agent's return, by its name."""
        import pandas as pd

        columns = {name: getattr(self, name) for name in (*COLUMNS, "finished")}
        columns["checkpoint"] = self.iteration
        return pd.DataFrame(
            {**columns, **dict(zip(agents, self.returns.T))}, index=pd.Index(self.number, name="episode")
        )

    def rows(self, among: np.ndarray, selectors: Mapping[str, Selector], times: Callable[[], np.ndarray]) -> np.ndarray:
        """The rows of `among` that are of the chosen episodes and times, in the episodes' order.

        Raises:
            RecordingError: an episode that is not there, or a time at which nothing was recorded.
        """
        rows = among
        if "episode" in selectors or "checkpoint" in selectors:
            chosen = self._episodes(selectors.get("episode", slice(None)))
            if "checkpoint" in selectors:
                of_checkpoints = self._of_checkpoints(selectors["checkpoint"])
                chosen = [index for index in chosen if of_checkpoints[index]]
            parts = [np.arange(self.start[i], self.start[i] + self.length[i]) for i in chosen]
            rows = np.concatenate(parts) if parts else np.empty(0, np.int64)
            if len(among) < self.n_rows or not _is_everything(among):
                rows = rows[np.isin(rows, among)]
        if "t" in selectors:
            rows = _at_times(rows, selectors["t"], times())
        return rows

    def _of_checkpoints(self, selector: Selector) -> np.ndarray:
        """`[episode]`: whether it was played by one of these checkpoints, told by their iterations."""
        have = sorted(set(self.iteration.tolist()))
        if isinstance(selector, (slice, str)):
            raise RecordingError(f"a checkpoint is chosen by its iteration; got {selector!r}, it has {have}")
        wanted = [int(selector)] if isinstance(selector, (int, np.integer)) else [int(item) for item in selector]
        missing = sorted(set(wanted) - set(have))
        if missing:
            raise RecordingError(f"no rows of checkpoint {missing} in this recording; it has {have}")
        return np.isin(self.iteration, wanted)

    def _episodes(self, selector: Selector) -> list[int]:
        if isinstance(selector, slice):
            last = int(self.number.max(initial=-1)) + 1
            wanted = range(last)[selector]
            return [int(index) for index in np.flatnonzero(np.isin(self.number, wanted))]
        if isinstance(selector, str):
            raise RecordingError(f"an episode is chosen by its number; got {selector!r}")
        numbers = [int(selector)] if isinstance(selector, (int, np.integer)) else [int(n) for n in selector]
        missing = sorted(set(numbers) - set(self.number.tolist()))
        if missing:
            have = f"{self.number.min()} to {self.number.max()}" if len(self) else "none"
            raise RecordingError(f"no episode {', '.join(map(str, missing[:5]))} in this recording; it has {have}")
        return [int(index) for index in np.searchsorted(self.number, numbers)]


def _iterations(file: h5py.File, starts: np.ndarray) -> np.ndarray:
    """The iteration of the checkpoint that played the episodes which begin at these rows."""
    firsts, iterations = file["checkpoints/row_start"][:], file["checkpoints/iteration"][:]
    if not len(firsts):
        return np.full(len(starts), int(file.attrs.get("iteration", 0)))
    return np.asarray(iterations[np.searchsorted(firsts, starts, side="right") - 1])


def _broken_off(file: h5py.File, start: int, n_rows: int) -> dict[str, Any]:
    """What is known of the episode whose end was not recorded, with rows from `start` on."""
    number = int(file["steps/episode"][start])
    return {
        "episode": number,
        "start": start,
        "length": n_rows - start,
        "n_steps": int(file["steps/t"][n_rows - 1]) + 1,
        "seed": (int(file.attrs["seed"]) + number % _episodes_each(file)) % SEED_SPAN,
        "return": np.full(file["episodes/return"].shape[1], np.nan),
    }


def _episodes_each(file: h5py.File) -> int:
    """Episodes of each checkpoint, which are played under the same seeds."""
    settings = json.loads(file.attrs.get("settings", "{}"))
    return int(settings.get("episodes", SEED_SPAN))


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
