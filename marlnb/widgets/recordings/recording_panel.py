"""RecordingPanel: choose sites and options, see the estimated cost, record, and open the recording."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import ipywidgets as w
from markupsafe import Markup

from marlnb.display.formatting import format_count
from marlnb.errors import ConfigError, MarlnbError
from marlnb.models.hooks.capture import all_sites
from marlnb.models.hooks.sites import Site
from marlnb.recording.capture.config import RecordingConfig
from marlnb.recording.capture.plan import RecordingPlan, plan_recording
from marlnb.recording.capture.sources import LabelFn
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.checkpoints.checkpoint import competing_groups, returns_text
from marlnb.training.runs.run import Run
from marlnb.training.runs.run_folder import Which
from marlnb.widgets.core.background import LatestOnly, TaskStopped
from marlnb.widgets.core.controls import Accordion, Checkbox, SelectMultiple, button_for
from marlnb.widgets.core.panel import Panel
from marlnb.widgets.core.site_tree import SiteTree
from marlnb.widgets.core.style import HTML, LABEL, Message, code_html, note_html, problem_html, row, styled, table_html
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.form import ConfigForm
from marlnb.widgets.recordings.recording_options import FORM_OPTIONS, code_of, command_of
from marlnb.widgets.recordings.recording_task import RecordingTask
from marlnb.widgets.recordings.recordings_list import RecordingsList


class RecordingPanel(Panel):
    """What to record of a run, and the recording of it.

    Attributes:
        widget: what a notebook displays.
        tree: the sites.
        form: the options.
        plan: the estimate for the current choices; None before it is known and if they are not valid.
        recording: the last one that this panel made; None before.
        task: the recording that runs, or the last one.
    """

    def __init__(self, run: str | os.PathLike[str] | Run, *, labels: Mapping[str, LabelFn] | None = None) -> None:
        """
        Args:
            labels: custom labels to choose from: functions of a time step by name, as `record` takes them. The
                environment's own labels are always recorded.
        Raises:
            RunError: the folder is not a run.
        """
        self.run = run if isinstance(run, Run) else Run.open(run)
        self.labels = dict(labels or {})
        self.plan: RecordingPlan | None = None
        self.recording: Recording | None = None
        self.task: RecordingTask | None = None
        self._is_busy = self._is_updating = self._are_sites_known = False
        self._planning, self._finding = LatestOnly(), LatestOnly(wait_s=0)
        self._make()
        self.refresh()

    def _make(self) -> None:
        self.tree, self.list = SiteTree(), RecordingsList(self.run)
        self.form = ConfigForm(RecordingConfig, only=FORM_OPTIONS, on_change=self._changed)
        self._label_boxes = {name: Checkbox(value=True, description=name, indent=False) for name in self.labels}
        shape = {"rows": 4, "style": LABEL, "layout": {"width": "34em"}}
        self.checkpoint = SelectMultiple(options=("last",), value=("last",), description="checkpoint", **shape)
        button = partial(button_for, width="9em")
        refresh = button(self.refresh, "Refresh", "refresh", "find new checkpoints and recordings")
        self._record = button(self._clicked, "Record", "circle", "play the episodes and write the file")
        self._record.button_style = "primary"
        self._stop = button(self.stop, "Stop", "stop", "stop; what was recorded stays", disabled=True)
        self._bar = w.FloatProgress(min=0.0, max=1.0, layout=w.Layout(width="20em", visibility="hidden"))
        self._line, self._sites, self._estimate = Message(), Message(), Message()
        self._fields, self._code, self._command = HTML(), HTML(), HTML()
        titles = ["what is written", "as code", "as a command"]
        texts = Accordion([self._fields, self._code, self._command], titles=titles, selected_index=None)
        heading = [HTML(Markup("<b>Custom labels</b>"))] if self._label_boxes else []
        labels = w.VBox([*heading, *self._label_boxes.values()])
        checkpoints = row(self.checkpoint, refresh)
        parts = [HTML(Markup("<b>Sites</b>")), self.tree, self._sites, checkpoints, self.form.box, labels]
        below = [self._estimate, row(self._record, self._stop, self._bar), self._line, texts, self.list.box]
        self.widget = styled(*parts, *below, name="marlnb-recording")
        self.tree.observe(lambda _: self._changed(), "chosen")
        for box in (self.checkpoint, *self._label_boxes.values()):
            box.observe(lambda _: self._changed(), "value")

    @property
    def choices(self) -> dict[str, Any]:
        """The current choices, as `record` takes them.

        Raises:
            ConfigError: an option is not valid.
        """
        if not self._are_sites_known:
            raise ConfigError("the sites are not known yet")
        names = list(self.checkpoint.value)
        if not names:
            raise ConfigError("checkpoint: choose at least one")
        checkpoints: list[Which] = [int(name) if name.isdigit() else name for name in names]
        if len(checkpoints) > 1 and "all" in checkpoints:
            raise ConfigError("checkpoint: choose all, or some of them; not both")
        labels = {name: self.labels[name] for name, box in self._label_boxes.items() if box.value}
        checkpoint = checkpoints[0] if len(checkpoints) == 1 else checkpoints
        return {"sites": self.tree.patterns, "checkpoint": checkpoint, **self.form.values, "labels": labels}

    @with_ui_lock
    def refresh(self) -> None:
        """Finds new checkpoints, sites and recordings."""
        checkpoints = self.run.checkpoints
        best = [f"best:{group}" for group in competing_groups(checkpoints)] or ["best"]
        options = [(name, name) for name in ("last", *best, "all")]
        for checkpoint in reversed(checkpoints):
            facts = [f"{format_count(checkpoint.frames)} frames", *filter(None, [returns_text(checkpoint)])]
            title = f"{checkpoint.iteration}: {', return '.join(facts)}"
            options.append((title, str(checkpoint.iteration)))
        chosen = self.checkpoint.value
        self._is_updating = True
        self.checkpoint.options = options
        self.checkpoint.value = tuple(name for name in chosen if name in [value for _, value in options])
        self._is_updating = False
        self.list.refresh()
        if self.form.fields["name"].raw in self.run.recordings:
            self.form.set({"name": self._unused_name()})
        if not self._are_sites_known:
            self._record.disabled = True
            self._sites.show_note("finding the sites")
            self._finding.request(lambda: all_sites(self.run.policies()), self._show_sites, self._finding_failed)
        else:
            self._changed()

    def close(self) -> None:
        """Drops the estimate that is being computed; a recording continues."""
        self._planning.cancel()

    @with_ui_lock
    def record(self) -> RecordingTask:
        """Records the current choices in a thread. What `record` raises is shown in the panel.

        Raises:
            ConfigError: an option is not valid.
        """
        if self.task is not None and self._is_busy:
            return self.task
        choices = self.choices
        self._is_busy = True
        self._planning.cancel()
        self._record.disabled, self._stop.disabled = True, False
        self._bar.value, self._bar.layout.visibility = 0.0, "visible"
        self._line.show_note("starting")
        self.task = RecordingTask(self.run, choices, show=self._show_progress, done=self._done, failed=self._failed)
        return self.task

    def stop(self) -> None:
        """Stops the recording; what was recorded stays in the file, marked incomplete."""
        if self.task is not None:
            self.task.task.stop()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = {**self.widget._repr_mimebundle_(**options), "text/plain": repr(self)}
        return bundle

    def __repr__(self) -> str:
        plan = [str(self.plan)] if self.plan is not None else []
        recording = [repr(self.recording)] if self.recording is not None else []
        return "\n".join([f"RecordingPanel({self.run.shown_path!r})", *plan, *recording])

    def _show_sites(self, sites: list[Site]) -> None:
        self._is_updating = True
        self.tree.show(sites, RecordingConfig().sites)
        self._is_updating, self._are_sites_known = False, True
        labels = [label.name for label in self.run.spec.labels]
        note = f"The environment's own labels are always recorded: {', '.join(labels)}." if labels else ""
        self._sites.show_note(note)
        self._changed()

    def _finding_failed(self, error: Exception) -> None:
        self._sites.show_problem(f"{error}\nRecording needs a checkpoint: train, save one, then click Refresh.")

    def _changed(self) -> None:
        """Shows the choices as code and as a command, and their estimated cost; or why they are not valid."""
        if self._is_updating or not self._are_sites_known:
            return
        self.plan = None
        try:
            choices = self.choices
        except MarlnbError as error:
            self._planning.cancel()
            self._planning_failed(error)
            return
        labels = list(choices["labels"] or ())
        self._code.value = code_html(code_of(self.run, choices, labels))
        self._command.value = code_html(command_of(self.run, choices, labels))
        self._record.disabled = self._is_busy
        if not self._is_busy:
            self._estimate.show_note("estimating")
            self._planning.request(lambda: plan_recording(self.run, **choices), self._show_plan, self._planning_failed)
        self._notify()

    def _show_plan(self, plan: RecordingPlan) -> None:
        self.plan = plan
        self._fields.value = table_html(["dataset", "axes", "type", "size"], plan.table())
        problem = f"{plan.path} exists already: choose another name" if plan.path.exists() else ""
        try:
            plan.check()
        except MarlnbError as error:
            problem = str(error)
        self._record.disabled = bool(problem) or self._is_busy
        self._estimate.value = note_html(plan.summary()) + (problem_html(problem) if problem else "")

    def _planning_failed(self, error: Exception) -> None:
        self._estimate.show_problem(error)
        self._record.disabled = True

    def _clicked(self) -> None:
        try:
            self.record()
        except MarlnbError as error:
            self._line.show_problem(error)

    def _show_progress(self, share: float, text: str) -> None:
        self._bar.value, self._line.value = share, note_html(text)

    def _done(self, recording: Recording) -> None:
        self.recording = recording
        self._finish(note_html(f"recorded {recording.path}"), recording.path.stem)

    def _failed(self, error: Exception) -> None:
        name = "" if self.task is None else self.task.name
        if isinstance(error, TaskStopped):
            self._finish(note_html(f"stopped: {name} has the finished episodes, marked incomplete"), name)
        else:
            self._finish(problem_html(str(error)), name if name in self.run.recordings else "")

    def _finish(self, message: str, name: str) -> None:
        """Shows the message, and the recording with this name if it is not empty."""
        self._is_busy = False
        self._line.value, self._bar.layout.visibility = message, "hidden"
        self._record.disabled, self._stop.disabled = False, True
        if name:
            self.list.choose(name)
        self.form.set({"name": self._unused_name()})
        self._changed()

    def _unused_name(self) -> str:
        """The default name of a recording, numbered if it exists already."""
        default = RecordingConfig().name
        names = (default if number == 1 else f"{default}_{number}" for number in range(1, 10**6))
        return next(name for name in names if name not in self.run.recordings)
