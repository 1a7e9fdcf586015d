"""RunButtons: start, pause, save and stop a run; all but the first write a request into the run's folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from marlnb.training.control import RequestKind, cancel_request, is_requested, request
from marlnb.training.runs.run import Run
from marlnb.training.runs.states import RUNNING_STATES
from marlnb.widgets.core.controls import Button, button_for
from marlnb.widgets.core.style import Message

REQUESTED: dict[RequestKind, str] = {
    "pause": "pausing after this iteration",
    "stop": "stopping after this iteration, with a checkpoint",
    "save": "saving after this iteration",
}


class RunButtons:
    """The buttons of a run, which may train in this process, in another one or on another node.

    Attributes:
        buttons: start, pause (or resume), save, stop.
        request: what was requested and has not happened yet.
    """

    def __init__(self, run: Run, line: Message, problem: Message, *, start: Callable[[], None]) -> None:
        """
        Args:
            line: shows what was requested.
            problem: shows why a request failed.
            start: trains in this process.
        """
        self.request: RequestKind | None = None
        self._run, self._line, self._problem = run, line, problem
        self._state = run.status()["state"]
        self.buttons = {
            "start": _button("Start", "play", "train, or resume from the last checkpoint", start),
            "pause": _button("Pause", "pause", "pause after this iteration", self._pause),
            "save": _button("Checkpoint", "save", "save after this iteration", lambda: self._send("save")),
            "stop": _button("Stop", "stop", "save and stop after this iteration", lambda: self._send("stop")),
        }

    def show(self, status: Mapping[str, Any]) -> None:
        """Enables what is possible in this state, and drops a request that was handled."""
        self._state = status["state"]
        if self.request is not None:
            # a request to pause stays in the folder for as long as the pause
            is_handled = self.request == "pause" and self._state == "paused"
            if is_handled or not is_requested(self._run.path, self.request):
                self.request = None
        is_alive = self._state in RUNNING_STATES
        self.buttons["start"].disabled = is_alive or self._state in ("complete", "missing")
        self.buttons["start"].description = "Start" if self._state == "created" else "Resume"
        for name in ("pause", "save", "stop"):
            self.buttons[name].disabled = not is_alive
        self._show_pause()

    @property
    def _is_pausing(self) -> bool:
        return self._state == "paused" or is_requested(self._run.path, "pause")

    def _show_pause(self) -> None:
        self.buttons["pause"].description = "Continue" if self._is_pausing else "Pause"
        self.buttons["pause"].icon = "play" if self._is_pausing else "pause"

    def _pause(self) -> None:
        if self._is_pausing:
            cancel_request(self._run.path, "pause")
            self.request = None
            self._line.show_note("continuing")
            self._state = "running"
        else:
            self._send("pause")
        self._show_pause()

    def _send(self, kind: RequestKind) -> None:
        try:
            request(self._run.path, kind)
        except OSError as error:
            self._problem.show_problem(f"cannot write to {self._run.shown_path}: {error.strerror or error}")
            return
        self.request = kind
        self._line.show_note(REQUESTED[kind])


def _button(name: str, icon: str, tooltip: str, action: Callable[[], None]) -> Button:
    return button_for(action, name, icon, tooltip, width="8.5em", _dom_classes=[f"marlnb-{name.lower()}"])
