"""RecordingPanel: sites chosen in a tree, what they cost told before, recorded while one looks, opened afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as w

from marlnb.errors import ConfigError, MarlnbError
from marlnb.formatting import format_count
from marlnb.models.hooks.capture import all_sites
from marlnb.models.hooks.sites import Site
from marlnb.recording.capture.plan import RecordingPlan, plan_recording
from marlnb.recording.capture.recorder import record
from marlnb.recording.capture.sources import LabelFn
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run, Which
from marlnb.widgets.core.background import LatestOnly, TaskStopped
from marlnb.widgets.core.controls import Accordion, Checkbox, SelectMultiple, button_for
from marlnb.widgets.core.site_tree import SiteTree
from marlnb.widgets.core.style import LABEL, code_html, note_html, problem_html, styled, table_html
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.form import ConfigForm
from marlnb.widgets.forms.verb_options import default_of_verb
from marlnb.widgets.recordings.recording_options import RecordingOptions, code_of, command_of
from marlnb.widgets.recordings.recording_work import RecordingWork, Told
from marlnb.widgets.recordings.recordings_list import RecordingsList

SEVERAL = ("last", "best", "all")
WIDTH = "9em"  # of a button


class RecordingPanel:
    """What of a run is recorded, and the recording of it.

    Attributes:
        widget: what a notebook displays.
        tree: the sites. form: the options.
        plan: the estimate of what is chosen, None until it is known and where it cannot be made.
        recording: the last one that this panel finished, None before.
        work: the recording under way, or the last one.
    """

    def __init__(self, run: str | os.PathLike[str] | Run, *, labels: Mapping[str, LabelFn] | None = None) -> None:
        """
        Args:
            labels: functions of a moment by name, as `record` takes them, to choose from. The environment's own labels
                are recorded in any case.
        Raises:
            RunError: the folder holds no run.
        """
        self.run = run if isinstance(run, Run) else Run.open(run)
        self.labels = dict(labels or {})
        self.plan: RecordingPlan | None = None
        self.recording: Recording | None = None
        self.work: RecordingWork | None = None
        self._busy = self._quiet = self._sites_known = False
        self._listeners: list[Callable[[], None]] = []
        self._planning, self._finding = LatestOnly(), LatestOnly(wait_s=0)
        self._make()
        self.refresh()

    def _make(self) -> None:
        self.tree, self.list = SiteTree(), RecordingsList(self.run)
        self.form = ConfigForm(RecordingOptions, on_change=self._changed)
        self._own_labels = {name: Checkbox(value=True, description=name, indent=False) for name in self.labels}
        self.checkpoint = SelectMultiple(
            options=SEVERAL,
            value=("last",),
            rows=4,
            description="checkpoint",
            style=LABEL,
            layout=w.Layout(width="34em"),
        )
        self._refresh = button_for(
            self.refresh, "EnvPreview again", "refresh", "for checkpoints and recordings", width=WIDTH
        )
        self._record = button_for(
            self._clicked,
            "Record",
            "circle",
            "play the episodes and write the file",
            width=WIDTH,
            button_style="primary",
        )
        self._stop = button_for(
            self.stop, "Stop", "stop", "end it; what was recorded stays", width=WIDTH, disabled=True
        )
        self._bar = w.FloatProgress(min=0.0, max=1.0, layout=w.Layout(width="20em", visibility="hidden"))
        self._line, self._sites, self._estimate = w.HTML(), w.HTML(), w.HTML()
        self._fields, self._code, self._command = w.HTML(), w.HTML(), w.HTML()
        titles = ["what is written", "as code", "as a command"]
        said = Accordion([self._fields, self._code, self._command], titles=titles, selected_index=None)
        which = w.HBox([self.checkpoint, self._refresh], layout=w.Layout(flex_flow="row wrap"))
        own = [w.VBox([w.HTML("<b>labels of your own</b>"), *self._own_labels.values()])] if self._own_labels else []
        buttons = w.HBox([self._record, self._stop, self._bar], layout=w.Layout(flex_flow="row wrap"))
        parts = [w.HTML("<b>Sites</b>"), self.tree, self._sites, which, self.form.box, *own]
        below = [self._estimate, buttons, self._line, said, self.list.box]
        self.widget = styled(*parts, *below, name="marlnb-recording")
        self.tree.observe(lambda _: self._changed(), "chosen")
        self.checkpoint.observe(lambda _: self._changed(), "value")
        for box in self._own_labels.values():
            box.observe(lambda _: self._changed(), "value")

    @property
    def choices(self) -> dict[str, Any]:
        """What is chosen, as `record` takes it.

        Raises:
            ConfigError: an option cannot be used.
        """
        if not self._sites_known:
            raise ConfigError("the sites are not known yet")
        chosen = list(self.checkpoint.value)
        if not chosen:
            raise ConfigError("checkpoint: none is chosen")
        which: list[Which] = [name if name in SEVERAL else int(name) for name in chosen]
        if len(which) > 1 and "all" in which:
            raise ConfigError("checkpoint: all, or some of them; not both")
        labels = {name: self.labels[name] for name, box in self._own_labels.items() if box.value}
        checkpoint = which[0] if len(which) == 1 else which
        return {"sites": self.tree.patterns, "checkpoint": checkpoint, **self.form.values, "labels": labels or None}

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each change of what is chosen."""
        self._listeners.append(listener)

    @with_ui_lock
    def refresh(self) -> None:
        """Looks for checkpoints, sites and recordings anew."""
        options = [(name, name) for name in SEVERAL]
        for one in reversed(self.run.checkpoints):
            score = "" if one.score is None else f", score {one.score:.2f}"
            options.append((f"{one.iteration}: {format_count(one.frames)} frames{score}", str(one.iteration)))
        chosen = self.checkpoint.value
        self._quiet = True
        self.checkpoint.options = options
        self.checkpoint.value = tuple(name for name in chosen if name in [value for _, value in options])
        self._quiet = False
        self.list.refresh()
        if self.form.fields["name"].raw in self.run.recordings:
            self.form.set({"name": self._free_name()})
        if not self._sites_known:
            self._record.disabled = True
            self._sites.value = note_html("looking for the sites")
            self._finding.ask(self._find_sites, self._show_sites, self._no_sites)
        else:
            self._changed()

    @with_ui_lock
    def record(self) -> RecordingWork:
        """Records what is chosen in a thread.

        Raises:
            ConfigError: an option cannot be used. What `record` raises is shown.
        """
        if self.work is not None and self._busy:
            return self.work
        choices = self.choices
        self._busy = True
        self._planning.forget()
        self._record.disabled, self._stop.disabled = True, False
        self._bar.value, self._bar.layout.visibility = 0.0, "visible"
        self._line.value = note_html("beginning")
        self.work = RecordingWork(self.run, choices, tell=self._tell, done=self._recorded, failed=self._failed)
        return self.work

    def stop(self) -> None:
        """Ends the recording under way; what had been recorded stays, marked incomplete."""
        if self.work is not None:
            self.work.work.stop()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = {**self.widget._repr_mimebundle_(**options), "text/plain": repr(self)}
        return bundle

    def __repr__(self) -> str:
        told = [f"RecordingPanel({str(self.run.path)!r})", *([str(self.plan)] if self.plan is not None else [])]
        return "\n".join([*told, *([repr(self.recording)] if self.recording is not None else [])])

    def _find_sites(self) -> list[Site]:
        return all_sites(self.run.policies())

    def _show_sites(self, sites: list[Site]) -> None:
        self._quiet = True
        self.tree.show(sites, default_of_verb(record, "sites"))
        self._quiet, self._sites_known = False, True
        labels = [label.name for label in self.run.spec.labels]
        told = f"The environment's own labels are recorded too: {', '.join(labels)}." if labels else ""
        self._sites.value = note_html(told)
        self._changed()

    def _no_sites(self, error: Exception) -> None:
        self._sites.value = problem_html(
            f"{error}\nA checkpoint is needed to record: train, save one, and EnvPreview again."
        )
        self._record.disabled = True

    def _changed(self) -> None:
        """What is chosen as code, as a command, and what it will cost; or why it cannot be recorded."""
        if self._quiet or not self._sites_known:
            return
        self.plan = None
        try:
            choices = self.choices
        except MarlnbError as error:
            self._planning.forget()
            self._estimate.value = problem_html(str(error))
            self._record.disabled = True
            return
        own = list(choices["labels"] or ())
        self._code.value = code_html(code_of(self.run, choices, own))
        self._command.value = code_html(command_of(self.run, choices, own))
        self._record.disabled = self._busy
        if not self._busy:
            self._estimate.value = note_html("estimating")
            self._planning.ask(lambda: plan_recording(self.run, **choices), self._planned, self._not_planned)
        for listener in self._listeners:
            listener()

    def _planned(self, plan: RecordingPlan) -> None:
        self.plan = plan
        self._fields.value = table_html(["dataset", "axes", "type", "size"], plan.table())
        problem = f"{plan.path} is there already: give another name" if plan.path.exists() else ""
        try:
            plan.check()
        except MarlnbError as error:
            problem = str(error)
        self._record.disabled = bool(problem) or self._busy
        self._estimate.value = note_html(plan.summary()) + (problem_html(problem) if problem else "")

    def _not_planned(self, error: Exception) -> None:
        self._estimate.value = problem_html(str(error))
        self._record.disabled = True

    def _clicked(self) -> None:
        try:
            self.record()
        except MarlnbError as error:
            self._line.value = problem_html(str(error))

    def _tell(self, told: Told) -> None:
        self._bar.value, self._line.value = told.share, note_html(told.words)

    def _recorded(self, recording: Recording) -> None:
        self.recording = recording
        self._ended(note_html(f"recorded {recording.path}"), recording.path.stem)

    def _failed(self, error: Exception) -> None:
        name = "" if self.work is None else self.work.name
        if isinstance(error, TaskStopped):
            self._ended(note_html(f"stopped: what had ended is in {name}, marked incomplete"), name)
        else:
            self._ended(problem_html(str(error)), name if name in self.run.recordings else "")

    def _ended(self, told: str, name: str) -> None:
        self._busy = False
        self._line.value, self._bar.layout.visibility = told, "hidden"
        self._record.disabled, self._stop.disabled = False, True
        if name:
            self.list.choose(name)
        self.form.set({"name": self._free_name()})
        self._changed()

    def _free_name(self) -> str:
        """`record`'s own name, numbered where there is such a recording."""
        default = str(default_of_verb(record, "name"))
        names = (default if number == 1 else f"{default}_{number}" for number in range(1, 10**6))
        return next(name for name in names if name not in self.run.recordings)
