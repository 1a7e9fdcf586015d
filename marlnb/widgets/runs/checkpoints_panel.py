"""CheckpointsPanel: a run's checkpoints as a table; evaluate, compare, annotate, load and delete them."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import ipywidgets as w
from markupsafe import Markup

from marlnb.errors import MarlnbError
from marlnb.models.policies.policy import Policy
from marlnb.training.runs.checkpoints.checkpoint import Checkpoint
from marlnb.training.runs.checkpoints.notes import CheckpointNotes
from marlnb.training.runs.checkpoints.removal import remove_checkpoint, why_not
from marlnb.training.runs.curves import return_curves
from marlnb.training.runs.files import METRICS
from marlnb.training.runs.metrics_rows import read_rows
from marlnb.training.runs.run import Run
from marlnb.training.runs.states import RUNNING_STATES
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.controls import Accordion, Text, button_for
from marlnb.widgets.core.curves import LiveCurves
from marlnb.widgets.core.panel import Panel
from marlnb.widgets.core.poller import Poller
from marlnb.widgets.core.snapshot import learning_curve_figure, with_snapshot
from marlnb.widgets.core.style import HTML, LABEL, Message, code_html, problem_html, row, styled
from marlnb.widgets.core.table import ChoiceTable
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.recordings.checkpoint_usage import recordings_made_with
from marlnb.widgets.runs.checkpoint_code import code_of, command_of
from marlnb.widgets.runs.checkpoint_evaluation import CheckpointEvaluation
from marlnb.widgets.runs.checkpoint_rows import HEADER, CheckpointRows

LIVE_S, IDLE_S = 1.0, 5.0  # minimum time between two readings of the folder


class CheckpointsPanel(Panel):
    """The checkpoints of a run. It changes when another one is chosen, and with the notes and evaluations.

    Attributes:
        widget: what a notebook displays.
        checkpoints: of the run, oldest first.
        notes: the notes and evaluations that are stored in the run.
        policies: by group, of the checkpoint that was loaded last; None before.
    """

    def __init__(self, run: str | os.PathLike[str] | Run, *, curves: LiveCurves | None = None) -> None:
        """
        Args:
            curves: a learning curve that is shown elsewhere, to mark checkpoints in; None: the panel draws one.
        Raises:
            RunError: the folder is not a run.
        """
        self.run = run if isinstance(run, Run) else Run.open(run)
        self.notes = CheckpointNotes(self.run)
        self.checkpoints: list[Checkpoint] = []
        self.policies: dict[str, Policy] | None = None
        self._rows = CheckpointRows(self.notes)
        self._folder_mtime: int | None = None
        self._loading = LatestOnly(wait_s=0)
        self._draws_curves = curves is None
        self.curves = curves or LiveCurves(title=f"{self.run.experiment.env.name}: returns")
        self._make()
        self.refresh()
        self._poller = Poller(self._look, self._show_changes, self._fail)

    def _make(self) -> None:
        self.table = ChoiceTable(HEADER, label="checkpoints")
        self.evaluation = CheckpointEvaluation(self.notes, on_change=self._changed, on_stored=self._show)
        self._error, self._damaged, self._heading, self._line = Message(), Message(), HTML(), Message()
        self._code, self._command = HTML(), HTML()
        placeholder, wide = "what this checkpoint is good for", w.Layout(width="34em")
        self._note = Text(description="note", placeholder=placeholder, style=LABEL, layout=wide)
        button = partial(button_for, width="8em")
        keep = button(self.save_note, "Save note", "pencil", "stored in the run")
        self.buttons = {
            "load": button(self.load, "Load", "folder-open", "load its policies as panel.policies"),
            "delete": button(self.ask_to_delete, "Delete", "trash", "asks for confirmation"),
        }
        self._yes = button(self.delete, "Delete permanently", "trash", "this cannot be undone", width="12em")
        self._yes.button_style = "danger"
        self._no = button(self._hide_question, "Cancel", "undo", "delete nothing")
        self._question, hidden = Message(), w.Layout(display="none")
        question = [self._question, w.HBox([self._yes, self._no])]
        self._confirmation = w.VBox(question, layout=hidden, _dom_classes=["marlnb-question"])
        texts = Accordion([self._code, self._command], titles=["as code", "as a command"], selected_index=None)
        note = row(self._note, keep, *self.buttons.values())
        details = [self._heading, note, self._line, self._confirmation, self.evaluation.box, texts]
        self._details = w.VBox(details, layout=w.Layout(display="none"))
        curves = [self.curves] if self._draws_curves else []
        self.widget = styled(*curves, self._error, self.table, self._damaged, self._details, name="marlnb-checkpoints")
        self.table.observe(lambda _: self._chosen_changed(), "chosen")

    @property
    def chosen(self) -> Checkpoint | None:
        """The chosen checkpoint."""
        return next((item for item in self.checkpoints if str(item.iteration) == self.table.chosen), None)

    @with_ui_lock
    def choose(self, iteration: int) -> None:
        """Chooses a checkpoint. Raises CheckpointError: the run has none of this iteration."""
        self.run.checkpoint(iteration)
        self.refresh()
        self.table.chosen = str(iteration)

    def close(self) -> None:
        """Stops reading the folder."""
        self._poller.end()

    @with_ui_lock
    def refresh(self) -> None:
        """Reads the folder again."""
        self.checkpoints = self._rows.measured(self.run.checkpoints)
        damaged = "\n".join(f"not listed: {reason}" for reason in self.run.damaged_checkpoints.values())
        self._damaged.value = problem_html(damaged) if damaged else ""
        if self._draws_curves:
            self.curves.clear()
            self.curves.add(return_curves(read_rows(self.run.path / METRICS), agents=False))
            self.curves.settle()
        self._show()

    @with_ui_lock
    def save_note(self, text: str | None = None) -> None:
        """Stores `text`, or else the text in the field, as the note of the chosen checkpoint."""
        if self.chosen is None:
            return
        self._note.value = self._note.value if text is None else text
        try:
            self.notes.write(self.chosen, self._note.value)
        except (MarlnbError, OSError) as error:
            self._line.show_problem(error)
        else:
            self._line.show_note("note saved")
        self._show()

    @with_ui_lock
    def load(self) -> None:
        """Reads the policies of the chosen checkpoint in a thread, as `policies`."""
        if self.chosen is None:
            return
        iteration = self.chosen.iteration
        self._line.show_note(f"loading checkpoint {iteration}")

        def loaded(policies: dict[str, Policy]) -> None:
            self.policies = policies
            self._line.show_note(f"loaded checkpoint {iteration}, as .policies of this panel: {', '.join(policies)}")

        self._loading.request(lambda: self.run.policies(iteration), loaded, self._line.show_problem)

    @with_ui_lock
    def ask_to_delete(self) -> None:
        """Asks for confirmation and lists what depends on the chosen checkpoint; nothing is deleted yet."""
        chosen = self.chosen
        if chosen is None:
            return
        if reason := why_not(self.run, chosen):
            self._line.show_problem(reason)
            return
        self._question.show_note(f"Delete checkpoint {chosen.iteration} permanently? {self._consequences(chosen)}")
        self._confirmation.layout.display = ""

    @with_ui_lock
    def delete(self) -> None:
        """Deletes the chosen checkpoint after `ask_to_delete`; does nothing otherwise."""
        chosen = self.chosen
        if chosen is None or self._confirmation.layout.display == "none":
            return
        self._hide_question()
        try:
            remove_checkpoint(self.run, chosen.iteration)
        except MarlnbError as error:
            self._line.show_problem(error)
            return
        self.refresh()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return with_snapshot(self.widget, repr(self), lambda: learning_curve_figure(self.run))

    def __repr__(self) -> str:
        rows = map("  ".join, self._rows.of(self.checkpoints).values())
        return "\n".join([f"CheckpointsPanel({self.run.shown_path!r})", *rows])

    def _consequences(self, chosen: Checkpoint) -> str:
        consequences = []
        names = recordings_made_with(self.run, chosen)
        if names:
            consequences.append(
                f"Recordings made with it: {', '.join(names)}. They stay readable, but more activations and "
                f"interventions will not be possible for them."
            )
        if len(self.checkpoints) == 1:
            consequences.append("It is the only one: the run can then be neither resumed nor evaluated.")
        elif chosen == self.checkpoints[-1] and self.run.status()["state"] != "complete":
            consequences.append(f"It is the latest: the run will resume from {self.checkpoints[-2].iteration}.")
        return " ".join(consequences) or "No recording of this run was made with it."

    def _hide_question(self) -> None:
        self._confirmation.layout.display = "none"

    def _look(self) -> tuple[int | None, bool]:
        """The time of the last change of the folder, and whether the run trains."""
        folder = self.run.path / "checkpoints"
        return folder.stat().st_mtime_ns if folder.is_dir() else None, self.run.status()["state"] in RUNNING_STATES

    def _show_changes(self, state: tuple[int | None, bool]) -> float:
        """Shows new and removed checkpoints. Returns the time until the next reading."""
        mtime, is_training = state
        self._error.value = ""
        if mtime != self._folder_mtime:
            self.refresh()
            self._folder_mtime = mtime
        return LIVE_S if is_training else IDLE_S

    def _fail(self, error: Exception) -> None:
        self._error.show_problem(f"the checkpoints cannot be read: {error}. The panel tries again every few seconds.")

    def _show(self) -> None:
        self.table.show(self._rows.of(self.checkpoints))
        self._changed()

    def _chosen_changed(self) -> None:
        self._hide_question()
        self._line.value = ""
        if self.chosen is not None:
            self._note.value = self.notes.note(self.chosen)
        self._changed()

    def _changed(self) -> None:
        """Shows markers, evaluations and code of the chosen checkpoint."""
        chosen = self.chosen
        self._details.layout.display = "none" if chosen is None else ""
        if chosen is not None:
            self.evaluation.set_checkpoint(chosen, self.checkpoints)
            self._heading.value = Markup("<b>Checkpoint {}</b>").format(chosen.iteration)
            self._code.value = self._command.value = ""
            if not self.evaluation.form.problems:
                options, other = self.evaluation.form.values, self.evaluation.other
                self._code.value = code_html(code_of(self.run, chosen, options, self.notes.note(chosen), other))
                self._command.value = code_html(command_of(self.run, chosen, options, other))
        strong = [] if chosen is None else [str(chosen.iteration), str(self.evaluation.other)]
        markers = {str(checkpoint.iteration): checkpoint.frames for checkpoint in self.checkpoints}
        self.curves.mark(markers, strong=strong)
        self._notify()
