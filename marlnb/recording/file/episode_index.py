"""EpisodeIndex: which rows of a recording belong to each episode."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from marlnb.errors import RecordingError
from marlnb.recording.file.array import Selector, listed, scalar_or_list
from marlnb.specs import SEED_SPAN

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("start", "length", "n_steps", "seed")


@dataclass(frozen=True)
class EpisodeIndex:
    """Episodes in ascending order of their numbers.

    Attributes:
        number: `[episode]` int64.
        start: `[episode]` int64, the first row.
        length: `[episode]` int64, in rows.
        n_steps: `[episode]` int64, in steps, recorded or not.
        seed: `[episode]` int64.
        returns: `[episode, agent]`, of the recorded agents; NaN for an interrupted episode.
        iteration: `[episode]` int64, of the checkpoint that played its first row.
        finished: `[episode]` bool, False for an interrupted episode.
        checkpoints: by row_start and iteration `[checkpoint]`, which iteration played the rows from there on.
        n_rows: rows of all episodes.
    """

    number: np.ndarray
    start: np.ndarray
    length: np.ndarray
    n_steps: np.ndarray
    seed: np.ndarray
    returns: np.ndarray
    iteration: np.ndarray
    finished: np.ndarray
    checkpoints: tuple[np.ndarray, np.ndarray]
    n_rows: int

    @staticmethod
    def read(file: h5py.File, n_rows: int) -> EpisodeIndex:
        """The episodes among the first `n_rows` rows. The table may have entries whose rows are not written yet."""
        table = file["episodes"]
        columns = {name: table[name][:] for name in ("episode", "return", *COLUMNS)}
        has_ends = "finished" in table
        columns["finished"] = table["finished"][:].astype(bool) if has_ends else np.ones(len(table["seed"]), bool)
        is_written = columns["start"] + columns["length"] <= n_rows
        columns = {name: values[is_written] for name, values in columns.items()}
        last = int((columns["start"] + columns["length"]).max(initial=0))
        if last < n_rows:
            entry = _interrupted_episode(file, last, n_rows)
            columns = {name: np.append(values, [entry[name]], axis=0) for name, values in columns.items()}
        order = np.argsort(columns["episode"], kind="stable")
        columns = {name: values[order] for name, values in columns.items()}
        number, returns = columns.pop("episode"), columns.pop("return")
        checkpoints = _checkpoints(file)
        iteration = _iterations(checkpoints, columns["start"])
        return EpisodeIndex(
            number=number, returns=returns, iteration=iteration, checkpoints=checkpoints, n_rows=n_rows, **columns
        )

    def __len__(self) -> int:
        return len(self.number)

    def frame(self, agents: Sequence[str]) -> pd.DataFrame:
        """A table of the episodes, with each agent's return in the column of its name."""
        import pandas as pd

        columns = {name: getattr(self, name) for name in (*COLUMNS, "finished")}
        columns["checkpoint"] = self.iteration
        return pd.DataFrame(
            {**columns, **dict(zip(agents, self.returns.T))}, index=pd.Index(self.number, name="episode")
        )

    def rows(self, among: np.ndarray, selectors: Mapping[str, Selector], times: Callable[[], np.ndarray]) -> np.ndarray:
        """The rows of `among` in the selected episodes, times and checkpoints, in the episodes' order.

        Raises:
            RecordingError: an episode or checkpoint does not exist, or nothing was recorded at these times.
        """
        rows = among
        if "episode" in selectors or "checkpoint" in selectors:
            chosen = np.searchsorted(self.number, self.numbers_of(selectors.get("episode", slice(None))))
            parts = [np.arange(self.start[i], self.start[i] + self.length[i]) for i in chosen]
            rows = np.concatenate(parts) if parts else np.empty(0, np.int64)
            if "checkpoint" in selectors:
                rows = rows[self._are_of_checkpoints(rows, selectors["checkpoint"])]
            if not np.array_equal(among, np.arange(self.n_rows)):
                rows = rows[np.isin(rows, among)]
        return self._at_times(rows, selectors["t"], times()) if "t" in selectors else rows

    def _at_times(self, rows: np.ndarray, selector: Selector, times: np.ndarray) -> np.ndarray:
        t = times[rows]
        if isinstance(selector, slice):
            end = self._ends(rows, t) if _counts_back(selector) else np.full(len(rows), t.max(initial=-1) + 1)
            is_selected = np.zeros(len(rows), bool)
            for n_steps in np.unique(end):
                is_selected |= (end == n_steps) & np.isin(t, np.arange(n_steps)[selector])
            return rows[is_selected]
        if isinstance(selector, str):
            raise RecordingError(f"t must be a number of steps, a list of them or a slice; got {selector!r}")
        selected = rows[np.isin(t, integers_of(selector, None, "t"))]
        if not len(selected):
            valid = f"{t.min(initial=0)} to {t.max(initial=0)}"
            raise RecordingError(f"nothing was recorded at t={selector}; valid: {valid}")
        return selected

    def _ends(self, rows: np.ndarray, t: np.ndarray) -> np.ndarray:
        """`[row]`: the step after the last of these rows' times `t` in its episode."""
        order = np.argsort(self.start)
        episode = order[np.searchsorted(self.start[order], rows, side="right") - 1]
        end = np.zeros(len(self), np.int64)
        np.maximum.at(end, episode, t + 1)
        return np.asarray(end[episode])

    def _are_of_checkpoints(self, rows: np.ndarray, selector: Selector) -> np.ndarray:
        """`[row]`: whether one of these checkpoints, given by iteration, played it."""
        recorded = sorted(set(_iterations(self.checkpoints, np.arange(self.n_rows)).tolist()))
        if isinstance(selector, (slice, str)):
            raise RecordingError(
                f"checkpoint must be an iteration or a list of them; got {selector!r}; valid: {recorded}"
            )
        iterations = integers_of(selector, None, "checkpoint")
        missing = sorted(set(iterations) - set(recorded))
        if missing:
            raise RecordingError(f"no rows of checkpoint {missing} in this recording; valid: {recorded}")
        return np.isin(_iterations(self.checkpoints, rows), iterations)

    def numbers_of(self, selector: Selector) -> list[int]:
        """The numbers of the episodes that a number, a list, a slice or a mask `[episode]` selects.

        Raises:
            RecordingError: one of them does not exist, or the selector is none of these.
        """
        if isinstance(selector, slice):
            numbers_in_slice = range(int(self.number.max(initial=-1)) + 1)[selector]
            return list(self.number[np.isin(self.number, numbers_in_slice)].tolist())
        if isinstance(selector, str):
            raise RecordingError(f"episode must be a number, a list of them or a slice; got {selector!r}")
        numbers = integers_of(selector, len(self), "episode")
        if np.asarray(selector).dtype == bool:
            return list(self.number[numbers].tolist())
        missing = sorted(set(numbers) - set(self.number.tolist()))
        if missing:
            valid = f"{self.number.min()} to {self.number.max()}" if len(self) else "none"
            raise RecordingError(f"no episode {', '.join(map(str, missing[:5]))} in this recording; valid: {valid}")
        return numbers


def integers_of(selector: Any, length: int | None, what: str) -> list[int]:
    """The integers of a number, a list or a mask `[length]`."""
    selector = scalar_or_list(selector)
    is_scalar = isinstance(selector, int | float | str)
    items = listed([selector] if is_scalar else selector, None if is_scalar else length, what)
    if any(isinstance(item, str) for item in items):
        raise RecordingError(f"{what} takes integers; got {selector!r}")
    return [int(item) for item in items]


def _checkpoints(file: h5py.File) -> tuple[np.ndarray, np.ndarray]:
    firsts, iterations = file["checkpoints/row_start"][:], file["checkpoints/iteration"][:]
    if len(firsts):
        return firsts, iterations
    return np.zeros(1, np.int64), np.array([int(file.attrs.get("iteration", 0))])


def _iterations(checkpoints: tuple[np.ndarray, np.ndarray], rows: np.ndarray) -> np.ndarray:
    """The iterations of the checkpoints that played these rows."""
    firsts, iterations = checkpoints
    return np.asarray(iterations[np.searchsorted(firsts, rows, side="right") - 1])


def seed_of(file: h5py.File, number: int) -> int:
    """The seed of an episode that `record` played; -1 in other recordings, whose numbers do not tell it."""
    settings = json.loads(file.attrs.get("settings", "{}"))
    if "episodes" not in settings or "derived" in file.attrs:
        return -1
    # each checkpoint plays `episodes` under the same seeds
    return (int(file.attrs["seed"]) + number % int(settings["episodes"])) % SEED_SPAN


def _interrupted_episode(file: h5py.File, start: int, n_rows: int) -> dict[str, Any]:
    """The entry of an episode whose end was not recorded, with rows from `start` on."""
    number = int(file["steps/episode"][start])
    return {
        "episode": number,
        "start": start,
        "length": n_rows - start,
        "n_steps": int(file["steps/t"][n_rows - 1]) + 1,
        "seed": seed_of(file, number),
        "return": np.full(file["episodes/return"].shape[1], np.nan),
        "finished": False,
    }


def _counts_back(selector: slice) -> bool:
    return any(bound is not None and bound < 0 for bound in (selector.start, selector.stop))
