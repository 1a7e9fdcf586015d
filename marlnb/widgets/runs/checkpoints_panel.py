"""CheckpointsPanel: a run's checkpoints listed, marked on its curve, evaluated, compared, noted, loaded and removed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import ipywidgets as w

from marlnb.errors import MarlnbError
from marlnb.models.policies.policy import Policy
from marlnb.training.runs.checkpoint import Checkpoint
from marlnb.training.runs.checkpoint_notes import CheckpointNotes
from marlnb.training.runs.checkpoint_removal import ALIVE, remove_checkpoint, why_not
from marlnb.training.runs.run import METRICS, Run, read_lines
from marlnb.widgets.core.controls import Accordion, Text, button_for
from marlnb.widgets.core.curves import LiveCurves
from marlnb.widgets.core.poller import Poller
from marlnb.widgets.core.snapshot import figure_of_run, with_picture
from marlnb.widgets.core.style import LABEL, code_html, note_html, problem_html, styled
from marlnb.widgets.core.table import ChoiceTable
from marlnb.widgets.core.ui_lock import in_turn
from marlnb.widgets.core.worker import Newest
from marlnb.widgets.recordings.checkpoint_usage import recordings_of
from marlnb.widgets.runs.checkpoint_code import code_of, command_of
from marlnb.widgets.runs.checkpoint_evaluation import CheckpointEvaluation
from marlnb.widgets.runs.checkpoint_rows import HEADER, CheckpointRows
from marlnb.widgets.runs.run_lines import lines_of

LIVE_S, IDLE_S = 1.0, 5.0  # between two looks at the folder
WIDTH = "8em"  # of a button


class CheckpointsPanel:
    """The checkpoints of a run.

    Attributes:
        widget: what a notebook displays.
        checkpoints: those that are there, oldest first.
        notes: what is kept of them, with the run.
        policies: by group, of the checkpoint that was loaded last; None before.
    """

    def __init__(self, run: str | os.PathLike[str] | Run, *, curves: LiveCurves | None = None) -> None:
        """
        Args:
            curves: a learning curve shown elsewhere, in which checkpoints are marked; None: one of its own.
        Raises:
            RunError: the folder holds no run.
        """
        self.run = run if isinstance(run, Run) else Run.open(run)
        self.notes = CheckpointNotes(self.run)
        self.checkpoints: list[Checkpoint] = []
        self.policies: dict[str, Policy] | None = None
        self._rows = CheckpointRows(self.notes)
        self._listeners: list[Callable[[], None]] = []
        self._seen: object = None
        self._loading = Newest(wait_s=0)
        self._own_curves = curves is None
        self.curves = curves or LiveCurves(title=f"{self.run.experiment.env.name}: returns")
        self._make()
        self.refresh()
        self._poller = Poller(self._look, self._look_anew, self._trouble)

    def _make(self) -> None:
        self.table = ChoiceTable(HEADER, label="checkpoints")
        self.evaluation = CheckpointEvaluation(self.notes, on_change=self._changed, on_kept=self._show)
        self._heading, self._line, self._code, self._command = w.HTML(), w.HTML(), w.HTML(), w.HTML()
        placeholder, wide = "what is it good for?", w.Layout(width="34em")
        self._note = Text(description="note", placeholder=placeholder, style=LABEL, layout=wide)
        keep = button_for(self.save_note, "Keep note", "pencil", "kept with the run", width=WIDTH)
        self.buttons = {
            "load": button_for(self.load, "Load", "folder-open", "its policies, as panel.policies", width=WIDTH),
            "delete": button_for(self.ask_to_delete, "Delete", "trash", "asks first", width=WIDTH),
        }
        self._question = w.HTML()
        self._yes = button_for(self.delete, "Delete it", "trash", "for good", width=WIDTH, button_style="danger")
        self._no = button_for(self._forget_question, "Keep it", "undo", "nothing is deleted", width=WIDTH)
        question, unseen = [self._question, w.HBox([self._yes, self._no])], w.Layout(display="none")
        self._asking = w.VBox(question, layout=unseen, _dom_classes=["marlnb-question"])
        said = Accordion([self._code, self._command], titles=["as code", "as a command"], selected_index=None)
        noted = w.HBox([self._note, keep, *self.buttons.values()], layout=w.Layout(flex_flow="row wrap"))
        about = [self._heading, noted, self._line, self._asking, self.evaluation.box, said]
        self._about = w.VBox(about, layout=w.Layout(display="none"))
        own = [self.curves] if self._own_curves else []
        self.widget = styled(*own, self.table, self._about, name="marlnb-checkpoints")
        self.table.observe(lambda _: self._chosen_changed(), "chosen")

    @property
    def chosen(self) -> Checkpoint | None:
        """The checkpoint that is looked at."""
        found = [one for one in self.checkpoints if str(one.iteration) == self.table.chosen]
        return found[0] if found else None

    @in_turn
    def choose(self, iteration: int) -> None:
        """Looks at a checkpoint. Raises CheckpointError: there is none of this iteration."""
        self.run.checkpoint(iteration)
        self.refresh()
        self.table.chosen = str(iteration)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when another checkpoint is chosen, or something else is known of it."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Looks no more."""
        self._poller.end()

    @in_turn
    def refresh(self) -> None:
        """Reads the folder anew."""
        self.checkpoints = self._rows.measured(self.run.checkpoints)
        if self._own_curves:
            self.curves.clear()
            self.curves.add(lines_of(read_lines(self.run.path / METRICS), agents=False))
            self.curves.settle()
        self._show()

    @in_turn
    def save_note(self, text: str | None = None) -> None:
        """Keeps what stands in the field, or `text`, as the note of the chosen checkpoint."""
        if self.chosen is None:
            return
        self._note.value = self._note.value if text is None else text
        try:
            self.notes.write(self.chosen, self._note.value)
        except (MarlnbError, OSError) as error:
            self._line.value = problem_html(str(error))
        else:
            self._line.value = note_html("noted")
        self._show()

    @in_turn
    def load(self) -> None:
        """Reads the policies of the chosen checkpoint in a thread, as `policies`."""
        if self.chosen is None:
            return
        iteration = self.chosen.iteration
        self._line.value = note_html(f"loading checkpoint {iteration}")

        def loaded(policies: dict[str, Policy]) -> None:
            self.policies = policies
            self._line.value = note_html(
                f"loaded checkpoint {iteration}, as .policies of this panel: {', '.join(policies)}"
            )

        self._loading.ask(lambda: self.run.policies(iteration), loaded, self._failed)

    @in_turn
    def ask_to_delete(self) -> None:
        """Shows the question, with what depends on the chosen checkpoint; nothing is deleted yet."""
        chosen = self.chosen
        if chosen is None:
            return
        refused = why_not(self.run, chosen)
        if refused:
            self._line.value = problem_html(refused)
            return
        self._question.value = note_html(f"Delete checkpoint {chosen.iteration} for good? {self._consequences(chosen)}")
        self._asking.layout.display = ""

    @in_turn
    def delete(self) -> None:
        """Deletes the chosen checkpoint, if that was asked for before."""
        chosen = self.chosen
        if chosen is None or self._asking.layout.display == "none":
            return
        self._forget_question()
        try:
            remove_checkpoint(self.run, chosen.iteration)
        except MarlnbError as error:
            self._line.value = problem_html(str(error))
            return
        self.refresh()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return with_picture(self.widget, repr(self), lambda: figure_of_run(self.run))

    def __repr__(self) -> str:
        return "\n".join(
            [f"CheckpointsPanel({str(self.run.path)!r})", *map("  ".join, self._rows.of(self.checkpoints).values())]
        )

    def _consequences(self, chosen: Checkpoint) -> str:
        told = []
        names = recordings_of(self.run, chosen)
        if names:
            told.append(
                f"Made with it: {', '.join(names)}. These stay readable, but no more activations can be computed for "
                f"them, and no interventions made."
            )
        if len(self.checkpoints) == 1:
            told.append("It is the only one: the run can then be neither resumed nor evaluated.")
        elif chosen == self.checkpoints[-1] and self.run.status()["state"] != "complete":
            told.append(f"It is the newest: the run then goes on from {self.checkpoints[-2].iteration}.")
        return " ".join(told) or "No recording of this run was made with it."

    def _forget_question(self) -> None:
        self._asking.layout.display = "none"

    def _look(self) -> tuple[object, bool]:
        """A mark that changes with the folder, and whether the run is trained."""
        folder = self.run.path / "checkpoints"
        return folder.stat().st_mtime_ns if folder.is_dir() else None, self.run.status()["state"] in ALIVE

    def _look_anew(self, found: tuple[object, bool]) -> float:
        """Shows checkpoints that came or went."""
        seen, is_trained = found
        if seen != self._seen:
            self._seen = seen
            self.refresh()
        return LIVE_S if is_trained else IDLE_S

    def _trouble(self, error: Exception) -> None:
        self._line.value = problem_html(f"the checkpoints cannot be read any more: {error}")

    def _failed(self, error: Exception) -> None:
        self._line.value = problem_html(str(error))

    def _show(self) -> None:
        self.table.show(self._rows.of(self.checkpoints))
        self._changed()

    def _chosen_changed(self) -> None:
        self._forget_question()
        self._line.value = ""
        if self.chosen is not None:
            self._note.value = self.notes.note(self.chosen)
        self._changed()

    def _changed(self) -> None:
        """What follows from what is chosen: marks, evaluations, code."""
        chosen = self.chosen
        self._about.layout.display = "none" if chosen is None else ""
        if chosen is not None:
            self.evaluation.look_at(chosen, self.checkpoints)
            self._heading.value = f"<b>Checkpoint {chosen.iteration}</b>"
            self._say(chosen)
        strong = [] if chosen is None else [str(chosen.iteration), str(self.evaluation.other)]
        self.curves.mark({str(one.iteration): one.frames for one in self.checkpoints}, strong=strong)
        for listener in self._listeners:
            listener()

    def _say(self, chosen: Checkpoint) -> None:
        """As code and as a command; nothing while an option cannot be used."""
        self._code.value = self._command.value = ""
        if not self.evaluation.form.problems:
            options, other = self.evaluation.form.values, self.evaluation.other
            self._code.value = code_html(code_of(self.run, chosen, options, self.notes.note(chosen), other))
            self._command.value = code_html(command_of(self.run, chosen, options, other))
