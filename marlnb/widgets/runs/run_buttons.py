"""RunButtons: start, pause, save and stop a run; each but the first leaves a request in the run's folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as w

from marlnb.training.control import RequestKind, cancel_request, is_requested, request
from marlnb.training.runs.run import Run
from marlnb.widgets.core.controls import Button, button_for
from marlnb.widgets.core.style import note_html, problem_html
from marlnb.widgets.runs.run_status import ALIVE

ASKED: dict[RequestKind, str] = {
    "pause": "pausing after the iteration under way",
    "stop": "stopping after the iteration under way, saved",
    "save": "saving after the iteration under way",
}


class RunButtons:
    """The buttons of a run that may be trained in this process, another one or on another node.

    Attributes:
        buttons: start, pause (or resume), save, stop.
        request: what was asked for and is not yet heeded.
    """

    def __init__(self, run: Run, line: w.HTML, problem: w.HTML, *, start: Callable[[], None]) -> None:
        """
        Args:
            line: where it is said what was asked for. problem: where, that it could not be asked for.
            start: trains in this process.
        """
        self.request: RequestKind | None = None
        self._run, self._line, self._problem = run, line, problem
        self._state = run.status()["state"]
        self.buttons = {
            "start": _button("Start", "play", "train, or go on from the last checkpoint", start),
            "pause": _button("Pause", "pause", "wait after the iteration under way", self._pause),
            "save": _button("Checkpoint", "save", "save after the iteration under way", lambda: self._ask("save")),
            "stop": _button("Stop", "stop", "end after the iteration under way, saved", lambda: self._ask("stop")),
        }

    def show(self, status: Mapping[str, Any]) -> None:
        """What can be done in this state; a request that was heeded is forgotten."""
        self._state = status["state"]
        if self.request is not None and self._is_heeded(self.request):
            self.request = None
        alive = self._state in ALIVE
        self.buttons["start"].disabled = alive or self._state == "complete"
        self.buttons["start"].description = "Start" if self._state == "created" else "Go on"
        for name in ("pause", "save", "stop"):
            self.buttons[name].disabled = not alive
        self._show_pause()

    def _show_pause(self) -> None:
        waiting = self._state == "paused" or is_requested(self._run.path, "pause")
        self.buttons["pause"].description = "Resume" if waiting else "Pause"
        self.buttons["pause"].icon = "play" if waiting else "pause"

    def _pause(self) -> None:
        if self._state == "paused" or is_requested(self._run.path, "pause"):
            cancel_request(self._run.path, "pause")
            self.request = None
            self._line.value = note_html("going on")
            self._state = "running"
        else:
            self._ask("pause")
        self._show_pause()

    def _ask(self, kind: RequestKind) -> None:
        try:
            request(self._run.path, kind)
        except OSError as error:
            self._problem.value = problem_html(f"{self._run.path} cannot be written to: {error.strerror or error}")
            return
        self.request = kind
        self._line.value = note_html(ASKED[kind])

    def _is_heeded(self, kind: RequestKind) -> bool:
        """Whether a request was met; one to pause lies there for as long as the pause."""
        return not is_requested(self._run.path, kind) or (kind == "pause" and self._state == "paused")


def _button(name: str, icon: str, tooltip: str, act: Callable[[], None]) -> Button:
    return button_for(act, name, icon, tooltip, width="8.5em", _dom_classes=[f"marlnb-{name.lower()}"])
