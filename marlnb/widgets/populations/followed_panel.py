"""FollowedPanel: what the panels of leagues and populations share: they follow files, and play for the microscope."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from marlnb.training.runs.run import Run
from marlnb.widgets.core.controls import Button
from marlnb.widgets.core.panel import Panel
from marlnb.widgets.core.poller import Poller
from marlnb.widgets.core.style import Message

LIVE_S, IDLE_S = 1.0, 5.0  # minimum time between two readings; the poller waits longer if they cost much
EPISODES = 8  # that are played before the microscope opens
Now = TypeVar("Now")


class FollowedPanel(Panel, ABC, Generic[Now]):
    """Abstract: a panel whose content `Now` is read from a run's files again and again.

    Attributes:
        run: the run.
        open_button: plays episodes in a thread and opens the first in the microscope.
    """

    _nothing: ClassVar[str]  # what `_line` says where the files hold nothing yet
    run: Run
    open_button: Button
    _line: Message
    _error: Message
    _about: Message
    _poller: Poller[Now | None]

    def refresh(self) -> None:
        """Reads the files again."""
        self._poller.now()

    def catch_up(self) -> None:
        """Shows the current content of the files."""
        self._poller.catch_up()

    def close(self) -> None:
        """Stops reading the files."""
        self._poller.end()

    @abstractmethod
    def _show_now(self, now: Now) -> None:
        """Shows what the files hold now."""

    def _show(self, now: Now | None) -> float:
        """Shows what is new. Returns the time until the next reading."""
        self._error.value = ""
        if now is not None:
            self._show_now(now)
        elif not self._line.value:
            self._line.show_note(self._nothing)
        return LIVE_S if self.run.status()["state"] == "running" else IDLE_S

    def _fail(self, error: Exception) -> None:
        self._error.show_problem(
            f"{self.run.shown_path} cannot be read: {error}. The panel tries again every few seconds."
        )

    def _not_opened(self, error: Exception) -> None:
        self._about.show_problem(error)
        self.open_button.disabled = False
