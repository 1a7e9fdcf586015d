"""RecordingsList: the recordings of a run, each with what it holds, opened in the microscope."""

from __future__ import annotations

import time
from pathlib import Path

import ipywidgets as w

from marlnb.formatting import format_bytes
from marlnb.recording.capture.plan import recording_path
from marlnb.training.runs.run import Run
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.controls import Button
from marlnb.widgets.core.sizes import file_bytes
from marlnb.widgets.core.style import log_html, note_html, problem_html
from marlnb.widgets.core.table import ChoiceTable
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.recordings.checkpoint_usage import open_shared


class RecordingsList:
    """What lies in a run's `recordings/`.

    Attributes:
        box: the widget to show.
        microscope: the one that was opened last, None before.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.microscope: object = None
        self._opening = LatestOnly(wait_s=0)
        self.table = ChoiceTable(["recording", "size", "made"], label="recordings")
        self._told, self._place = w.HTML(), w.VBox()
        self._open = Button(description="Open in the microscope", icon="search", layout=w.Layout(width="17em"))
        self._open.on_click(lambda _: self.open())
        self._about = w.VBox([self._told, self._open, self._place], layout=w.Layout(display="none"))
        self.box = w.VBox([self.table, self._about])
        self.table.observe(lambda _: self._look(), "chosen")
        self.refresh()

    @with_ui_lock
    def refresh(self) -> None:
        """Reads the folder anew."""
        self.table.show(
            {
                name: [
                    name,
                    format_bytes(file_bytes(path)),
                    time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(path.stat().st_mtime)),
                ]
                for name, path in self.run.recordings.items()
            }
        )
        self.table.layout.display = "" if self.run.recordings else "none"

    @with_ui_lock
    def choose(self, name: str) -> None:
        """Looks at a recording."""
        self.refresh()
        if self.table.chosen == name:
            self._look()
        self.table.chosen = name

    @with_ui_lock
    def open(self) -> None:
        """Opens the chosen recording in the microscope, below."""
        from marlnb.widgets.microscope.microscope import microscope  # slow to import

        path = recording_path(self.run, self.table.chosen)
        self._place.children = (w.HTML(note_html("opening")),)

        def show(opened: object) -> None:
            self.microscope = opened
            self._place.children = (opened.widget,)  # type: ignore[attr-defined]

        self._opening.ask(lambda: microscope(open_shared(path)), show, self._failed)

    def _look(self) -> None:
        name = self.table.chosen
        self._about.layout.display = "" if name else "none"
        self._place.children = ()
        if name:
            path = recording_path(self.run, name)
            self._opening.ask(lambda: _described(path), self._describe, self._not_described)

    def _describe(self, text: str) -> None:
        self._told.value = log_html(text)
        self._open.disabled = False

    def _not_described(self, error: Exception) -> None:
        self._told.value = problem_html(str(error))
        self._open.disabled = True

    def _failed(self, error: Exception) -> None:
        self._place.children = (w.HTML(problem_html(str(error))),)


def _described(path: Path) -> str:
    with open_shared(path) as recording:
        return repr(recording)
