"""StatusLine: text that is rewritten in a terminal or notebook, and appended now and then to a log."""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

from marlnb.errors import printable

LIVE_INTERVAL_S = 0.25
NOTEBOOK_INTERVAL_S = 1.0
LOG_INTERVAL_S = 30.0
BAR_WIDTH = 20


class StatusLine:
    """A text that is rewritten in place, rarely enough to cost nothing.

    In a terminal its lines are rewritten, as many as fit. In a notebook the output is replaced, so that a notebook
    executed by papermill or nbconvert keeps the last state only. Elsewhere, for example in a batch job's log, a line is
    appended every half minute.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._notebook = stream is None and _in_notebook()
        self._terminal = not self._notebook and self._stream.isatty()
        self._interval = (
            NOTEBOOK_INTERVAL_S if self._notebook else LIVE_INTERVAL_S if self._terminal else LOG_INTERVAL_S
        )
        self._written_at, self._text = -float("inf"), ""
        self._handle: object | None = None
        self._rows = 1

    @property
    def live(self) -> bool:
        """Whether the text is rewritten in place, so that a bar makes sense."""
        return self._terminal or self._notebook

    @property
    def due(self) -> bool:
        """Whether enough time has passed since the last `write`."""
        return time.monotonic() - self._written_at >= self._interval

    def write(self, text: str) -> None:
        """Shows `text` now; names in it cannot control the terminal."""
        text = printable(text)
        self._written_at = time.monotonic()
        if self._notebook:
            self._write_in_notebook(text)
        elif self._terminal:
            columns, rows = _size(self._stream)
            lines = [line[: columns - 1] for line in text.split("\n")[: max(1, rows - 1)]]
            self._stream.write(self._erase() + "\n".join(lines))
            self._rows = len(lines)
        elif text != self._text:  # a log has each text once
            self._stream.write(text + "\n")
        self._text = text
        self._stream.flush()

    def say(self, text: str) -> None:
        """Writes a permanent line, above the one that is rewritten."""
        text = printable(text)
        self._stream.write(f"{self._erase()}{text}\n" if self._terminal else f"{text}\n")
        self._rows = 1
        self._stream.flush()

    def end(self) -> None:
        """Moves to a new line in a terminal."""
        if self._terminal and self._written_at > -float("inf"):
            self._stream.write("\n")
            self._stream.flush()

    def _erase(self) -> str:
        """Deletes the text and moves the cursor to its start."""
        return "\r\x1b[2K" + "\x1b[A\x1b[2K" * (self._rows - 1)

    def _write_in_notebook(self, text: str) -> None:
        from IPython.display import display

        bundle = {"text/plain": text}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)  # type: ignore[attr-defined]


def progress_bar(share: float) -> str:
    """A bar of BAR_WIDTH characters: `█████···············`."""
    filled = int(share * BAR_WIDTH)
    return "█" * filled + "·" * (BAR_WIDTH - filled)


def _in_notebook() -> bool:
    """Whether an IPython kernel runs this code. Does not import IPython."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _size(stream: TextIO) -> tuple[int, int]:
    """Columns and rows of the terminal."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24
