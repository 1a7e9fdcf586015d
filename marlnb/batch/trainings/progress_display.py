"""PlannedTraining, one of several training runs of a command or a benchmark; and their progress as one line of text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TextIO

from marlnb.display.status_line import StatusLine
from marlnb.experiment import Experiment
from marlnb.training.limits import Trained, expected_frames
from marlnb.training.reporting.progress import describe_progress
from marlnb.training.runs.files import is_run
from marlnb.training.runs.status import read_status


class PlannedTraining(Protocol):
    """One training run; `str` is its name in progress and messages."""

    @property
    def folder(self) -> str:
        """The run's folder, relative to the common folder."""

    @property
    def experiment(self) -> Experiment:
        """What is trained."""


class TrainingsProgress:
    """Counts the frames of all runs, also of earlier sessions; the time left follows from this session's rate."""

    def __init__(self, runs: Sequence[PlannedTraining], frames: dict[str, int], stream: TextIO | None = None) -> None:
        """Progress of some runs.

        Args:
            runs: the runs.
            frames: frames that each run already has, by its folder.
            stream: where it is shown; None: stderr, or the notebook.
        """
        self._total = sum(planned_frames(run) for run in runs)
        self._size = len(runs)
        self._frames = dict(frames)
        self._at_start = sum(self._frames.values())
        self._started = time.monotonic()
        self._running: list[str] = []
        self._ended = 0
        self._line = StatusLine(stream)

    def start(self, run: PlannedTraining) -> None:
        self._running.append(str(run))
        self.draw()

    def update(self, run: PlannedTraining, frames: int) -> None:
        """Notes a run's frames; updates the line unless it was updated a moment ago."""
        self._frames[run.folder] = min(frames, planned_frames(run))
        if self._line.due:
            self.draw()

    def end(self, run: PlannedTraining, outcome: str) -> None:
        """Prints a line that stays about the end of a run."""
        if str(run) in self._running:
            self._running.remove(str(run))
        self._ended += 1
        self._line.say(f"[{self._ended}/{self._size}] {run}: {outcome}")

    def say(self, text: str) -> None:
        self._line.say(text)

    def draw(self) -> None:
        elapsed = time.monotonic() - self._started
        done = sum(self._frames.values())
        rate = (done - self._at_start) / elapsed if elapsed > 0 else 0.0
        running = "; ".join(self._running) or "-"
        self._line.write(f"{describe_progress(done, self._total, rate, bar=self._line.live)}  running: {running}")

    def close(self) -> None:
        self._line.end()


def frames_done(folder: Path, planned: PlannedTraining) -> int:
    """Number of frames of a run; 0 if it has not started."""
    return min(int(read_status(folder).get("frames", 0)), planned_frames(planned)) if is_run(folder) else 0


def planned_frames(planned: PlannedTraining) -> int:
    """Number of frames of a whole training run; one that is limited in minutes may end before."""
    return expected_frames(planned.experiment, Trained(), 0.0)
