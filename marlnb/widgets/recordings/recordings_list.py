"""RecordingsList: the recordings of a run with their contents; opens them in the microscope."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import ipywidgets as w

from marlnb.display.formatting import format_bytes
from marlnb.recording.capture.plan import recording_path
from marlnb.training.runs.run import Run
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.closing import replace_children
from marlnb.widgets.core.controls import button_for
from marlnb.widgets.core.style import HTML, log_html, note_html, problem_html
from marlnb.widgets.core.table import ChoiceTable
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.recordings.checkpoint_usage import open_shared
from marlnb.widgets.recordings.recording_task import file_bytes


class RecordingsList:
    """The recordings in a run's folder `recordings/`.

    Attributes:
        box: the widget to display.
        microscope: the one that was opened last; None before.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.microscope: object = None
        self._reading, self._opening = LatestOnly(wait_s=0), LatestOnly(wait_s=0)
        self.table = ChoiceTable(["recording", "size", "made"], label="recordings")
        self._summary, self._microscope_box = HTML(), w.VBox()
        self._open = button_for(self.open, "Open in the microscope", "search", width="17em")
        self._details = w.VBox([self._summary, self._open, self._microscope_box], layout=w.Layout(display="none"))
        self.box = w.VBox([self.table, self._details])
        self.table.observe(lambda _: self._show_chosen(), "chosen")
        self.refresh()

    @with_ui_lock
    def refresh(self) -> None:
        """Reads the folder again."""
        rows = {}
        for name, path in self.run.recordings.items():
            with suppress(FileNotFoundError):  # it was just deleted
                made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(path.stat().st_mtime))
                rows[name] = [name, format_bytes(file_bytes(path)), made]
        self.table.show(rows)
        self.table.layout.display = "" if rows else "none"

    @with_ui_lock
    def choose(self, name: str) -> None:
        """Chooses a recording, and shows its contents again if it was chosen already."""
        self.refresh()
        if self.table.chosen == name:
            self._show_chosen()
        self.table.chosen = name

    @with_ui_lock
    def open(self) -> None:
        """Opens the chosen recording in the microscope, below the table."""
        from marlnb.widgets.microscope.microscope import Microscope, microscope  # slow to import: only when opened

        path = recording_path(self.run, self.table.chosen)
        replace_children(self._microscope_box, [HTML(note_html("opening"))])

        def show(opened: Microscope) -> None:
            self.microscope = opened
            replace_children(self._microscope_box, [opened.widget])

        def fail(error: Exception) -> None:
            replace_children(self._microscope_box, [HTML(problem_html(str(error)))])

        self._opening.request(lambda: microscope(open_shared(path)), show, fail)

    def _show_chosen(self) -> None:
        name = self.table.chosen
        self._details.layout.display = "" if name else "none"
        self._opening.cancel()
        replace_children(self._microscope_box, [])
        if name:
            self._summary.value = note_html("reading")
            path = recording_path(self.run, name)
            self._reading.request(lambda: _describe(path), self._show_summary, self._reading_failed)

    def _show_summary(self, text: str) -> None:
        self._summary.value = log_html(text)
        self._open.disabled = False

    def _reading_failed(self, error: Exception) -> None:
        self._summary.value = problem_html(str(error))
        self._open.disabled = True


def _describe(path: Path) -> str:
    with open_shared(path) as recording:
        return repr(recording)
