"""RecordingTask: makes a recording in a thread and reports its progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from marlnb.display.formatting import count, format_bytes, format_clock
from marlnb.recording.capture.progress import RecordingProgress
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from marlnb.widgets.core.background import BackgroundTask
from marlnb.widgets.core.ui_lock import UI_LOCK

UPDATE_EVERY_S = 0.2


class RecordingTask:
    """Records in a thread.

    Attributes:
        name: of the recording.
        task: the thread.
    """

    def __init__(
        self,
        run: Run,
        options: Mapping[str, Any],
        *,
        show: Callable[[float, str], None],
        done: Callable[[Recording], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """
        Args:
            options: as `record` takes them.
            show: called a few times a second under UI_LOCK with the share of episodes that are recorded, 0 to 1, and
                the progress as text.
            done: called under UI_LOCK with the recording.
            failed: called under UI_LOCK with the exception. What was recorded stays in the file, marked incomplete.
        """
        self.name = str(options["name"])
        self._run, self._options, self._show = run, options, show
        self._shown_at, self._started = 0.0, time.monotonic()
        self.task = BackgroundTask(self._record, done=done, failed=failed)

    def _record(self, task: BackgroundTask) -> Recording:
        def on_step(progress: RecordingProgress) -> None:
            task.check()
            now = time.monotonic()
            if now - self._shown_at > UPDATE_EVERY_S:
                self._shown_at = now
                share, text = describe_progress(progress, now - self._started)
                with UI_LOCK:
                    self._show(share, text)

        return record(self._run, progress=False, on_step=on_step, **self._options)


def describe_progress(progress: RecordingProgress, seconds: float) -> tuple[float, str]:
    """The share of episodes that are recorded, and a text with rows, size, speed and time left.

    Args:
        seconds: since the recording was started.
    """
    share = progress.episodes / progress.total
    parts = [
        f"{progress.episodes:,} of {count(progress.total, 'episode')}",
        f"{progress.rows:,} rows",
        f"{format_bytes(file_bytes(progress.path))} on disk",
        f"{progress.rows / seconds:,.0f} rows a second",
    ]
    if share > 0:
        parts.append(f"{format_clock(seconds * (1 - share) / share)} left")
    return share, ", ".join(parts)


def file_bytes(path: Path) -> int:
    """The size of a file; 0 if it does not exist (yet)."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
