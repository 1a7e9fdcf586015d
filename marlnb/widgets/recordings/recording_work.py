"""RecordingWork: a recording made in a thread, which tells its rows, its file's size, its rate and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from marlnb.formatting import format_bytes, format_clock
from marlnb.recording.capture.progress import RecordingProgress
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from marlnb.widgets.core.background import BackgroundTask
from marlnb.widgets.core.sizes import file_bytes
from marlnb.widgets.core.ui_lock import UI_LOCK

TELL_EVERY_S = 0.2


@dataclass(frozen=True)
class Told:
    """How far a recording is.

    Attributes:
        share: of its episodes, 0 to 1. words: the same for people.
    """

    share: float
    words: str


class RecordingWork:
    """Records in a thread.

    Args:
        options: as `record` takes them.
        tell: called some times a second. done: called with the recording. failed: with what ended it; what had been
            recorded until then stays in the file, marked incomplete. All in turn.
    """

    def __init__(
        self,
        run: Run,
        options: Mapping[str, Any],
        *,
        tell: Callable[[Told], None],
        done: Callable[[Recording], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.name = str(options["name"])
        self._run, self._options, self._tell = run, options, tell
        self._told_at, self._began = 0.0, time.monotonic()
        self.work = BackgroundTask(self._record, done=done, failed=failed)

    def _record(self, work: BackgroundTask) -> Recording:
        def on_step(progress: RecordingProgress) -> None:
            work.check()
            now = time.monotonic()
            if now - self._told_at > TELL_EVERY_S:
                self._told_at = now
                told = _told(progress, now - self._began)
                with UI_LOCK:
                    self._tell(told)

        return record(self._run, progress=False, on_step=on_step, **self._options)


def _told(progress: RecordingProgress, seconds: float) -> Told:
    share = progress.episodes / progress.total
    words = [
        f"{progress.episodes:,} of {progress.total:,} episodes",
        f"{progress.rows:,} rows",
        f"{format_bytes(file_bytes(progress.path))} on disk",
        f"{progress.rows / seconds:,.0f} rows a second",
    ]
    if share > 0:
        words.append(f"{format_clock(seconds * (1 - share) / share)} left")
    return Told(share, ", ".join(words))
