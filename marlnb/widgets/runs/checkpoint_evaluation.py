"""CheckpointEvaluation: evaluates checkpoints in a thread, stores the results in the run, compares two checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ipywidgets as w
import numpy as np

from marlnb.display.formatting import count
from marlnb.envs.vector import Step
from marlnb.errors import MarlnbError
from marlnb.training.collect.episodes import TimeStep
from marlnb.training.policies.evaluation import EvaluationOptions, evaluate, standard_error
from marlnb.training.runs.checkpoints.checkpoint import Checkpoint
from marlnb.training.runs.checkpoints.notes import CheckpointNotes, is_comparable, stored_form
from marlnb.training.shared_return import shared_return
from marlnb.widgets.core.background import BackgroundTask, TaskStopped
from marlnb.widgets.core.controls import Dropdown, button_for
from marlnb.widgets.core.style import HTML, LABEL, Message, note_html, row, table_html
from marlnb.widgets.core.ui_lock import UI_LOCK, with_ui_lock
from marlnb.widgets.forms.form import ConfigForm

NOT_CHOSEN = "(choose)"
UPDATE_EVERY_S = 0.2


class CheckpointEvaluation:
    """Evaluates the chosen checkpoint, and compares it with another one.

    Attributes:
        box: the widget to display.
        form: the options of an evaluation.
        task: the evaluation that runs, or the last one.
    """

    def __init__(self, notes: CheckpointNotes, *, on_change: Callable[[], None], on_stored: Callable[[], None]) -> None:
        """
        Args:
            on_change: called after other options or another checkpoint to compare with were chosen.
            on_stored: called under UI_LOCK after an evaluation was stored.
        """
        self.notes = notes
        self.task: BackgroundTask | None = None
        self._on_change, self._on_stored = on_change, on_stored
        self._checkpoint: Checkpoint | None = None
        self._others: dict[int, Checkpoint] = {}
        self.form = ConfigForm(EvaluationOptions, on_change=on_change)
        button = partial(button_for, width="11em")
        self._button = button(self._try, "Evaluate", "bar-chart", "play episodes with this checkpoint")
        self._both = button(self._try_both, "Evaluate both", "balance-scale", "play the same episodes with both")
        self._stop = button(self.stop, "Stop", "stop", "stop the evaluation; nothing is stored", disabled=True)
        self._bar = w.FloatProgress(min=0.0, max=1.0, layout=w.Layout(width="16em", visibility="hidden"))
        self._line, self._stored, self._comparison = Message(), HTML(), HTML()
        wide = {"style": LABEL, "layout": {"width": "26em"}}
        self._other = Dropdown(options=[NOT_CHOSEN], description="compare with", **wide)
        self._other.observe(self._other_chosen, "value")
        buttons, other = row(self._button, self._stop, self._bar), row(self._other, self._both)
        self.box = w.VBox([self.form.box, buttons, self._line, self._stored, other, self._comparison])

    @property
    def other(self) -> int | None:
        """The iteration of the checkpoint to compare with; None if none is chosen."""
        return None if self._other.value == NOT_CHOSEN else int(self._other.value)

    @with_ui_lock
    def set_checkpoint(self, checkpoint: Checkpoint, checkpoints: Sequence[Checkpoint]) -> None:
        """Shows the evaluations of a checkpoint, and offers the others to compare with."""
        if self._checkpoint != checkpoint:
            self._line.value = ""
        self._checkpoint = checkpoint
        self._others = {other.iteration: other for other in checkpoints if other.iteration != checkpoint.iteration}
        options = [NOT_CHOSEN, *map(str, self._others)]
        if list(self._other.options) != options:
            chosen = self._other.value
            self._other.options = options
            self._other.value = chosen if chosen in options else NOT_CHOSEN
        self.show()

    @with_ui_lock
    def evaluate(self, *iterations: int) -> BackgroundTask:
        """Evaluates checkpoints one after the other in a thread, and stores the results in the run.

        Args:
            iterations: of the checkpoints; none: of the chosen one.
        Raises:
            ConfigError: an option is not valid.
        """
        if self.task is not None and self.task.is_alive:
            return self.task
        options = self.form.values
        wanted = iterations or ((self._checkpoint.iteration,) if self._checkpoint is not None else ())
        self._bar.value, self._bar.layout.visibility = 0.0, "visible"
        self._line.show_note("starting")
        self._set_busy(True)
        self.task = BackgroundTask(lambda task: self._play(task, wanted, options), done=self._done, failed=self._failed)
        return self.task

    def stop(self) -> None:
        if self.task is not None:
            self.task.stop()

    @with_ui_lock
    def show(self) -> None:
        """Shows the stored evaluations of the checkpoint, and the comparison."""
        if self._checkpoint is None:
            return
        evaluations = self.notes.evaluations(self._checkpoint)
        self._stored.value = _evaluations_html(evaluations)
        self._both.disabled = self._button.disabled or self.other is None
        if self.other is None or self.other not in self._others:
            self._comparison.value = ""
            return
        others = self.notes.evaluations(self._others[self.other])
        self._comparison.value = _comparison_html(self._checkpoint.iteration, evaluations, self.other, others)

    def _try_both(self) -> None:
        if self._checkpoint is not None and self.other is not None:
            self._try(self._checkpoint.iteration, self.other)

    def _try(self, *iterations: int) -> None:
        try:
            self.evaluate(*iterations)
        except MarlnbError as error:
            self._line.show_problem(error)

    def _play(self, task: BackgroundTask, iterations: Sequence[int], options: Mapping[str, Any]) -> str:
        started, n_episodes, unstored = time.monotonic(), options["episodes"], []
        for index, iteration in enumerate(iterations):

            def show(n: int, index: int = index, iteration: int = iteration) -> None:
                self._bar.value = (index + n / n_episodes) / len(iterations)
                self._line.show_note(f"checkpoint {iteration}: {n:,} of {count(n_episodes, 'episode')}")

            counter = _EpisodeCounter(task, show)
            evaluation = evaluate(self.notes.run, checkpoint=iteration, callback=counter, **options)
            try:
                self.notes.keep(evaluation)
            except (MarlnbError, OSError) as error:  # as in a run that may only be read
                unstored.append(f"; return of {iteration}: {score_text(stored_form(evaluation))}, not stored: {error}")
        names = " and ".join(map(str, iterations))
        end = "".join(unstored) or ", stored"
        return f"checkpoint {names}: {count(n_episodes, 'episode')} in {time.monotonic() - started:.1f} s{end}"

    def _done(self, message: str) -> None:
        self._line.show_note(message)
        self._set_busy(False)
        self.show()
        self._on_stored()

    def _failed(self, error: Exception) -> None:
        if isinstance(error, TaskStopped):
            self._line.show_note("stopped: nothing was stored")
        else:
            self._line.show_problem(error)
        self._set_busy(False)

    def _set_busy(self, is_busy: bool) -> None:
        self._button.disabled, self._stop.disabled = is_busy, not is_busy
        self._both.disabled = is_busy or self.other is None
        if not is_busy:
            self._bar.layout.visibility = "hidden"

    def _other_chosen(self, change: Any) -> None:
        self.show()
        self._on_change()


class _EpisodeCounter:
    """A RolloutCallback that reports the number of finished episodes and stops when the task was stopped."""

    def __init__(self, task: BackgroundTask, show: Callable[[int], None]) -> None:
        self._task, self._show = task, show
        self._n, self._shown_at = 0, 0.0

    def before_step(self, time_step: TimeStep) -> None:
        self._task.check()

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        self._n += int((step.done.cpu() & (time_step.episode.cpu() >= 0)).sum())
        if time.monotonic() - self._shown_at > UPDATE_EVERY_S:
            self._shown_at = time.monotonic()
            with UI_LOCK:
                self._show(self._n)


def score_text(evaluation: Mapping[str, Any]) -> str:
    """The return of a stored evaluation with its standard error over episodes: `-7.61 ± 0.12`.

    Where groups are rewarded differently, that of each group; where a group's agents play against each other, of each.
    """
    returns = {name: _returns(evaluation, group, name) for group, name in _columns([evaluation])}
    first, *_ = returns.values()
    if shared_return({name: float(values.mean()) for name, values in returns.items()}) is not None:
        return _plus_minus(first)
    return "; ".join(f"{name} {_plus_minus(values)}" for name, values in returns.items())


def _evaluations_html(evaluations: Sequence[Mapping[str, Any]]) -> str:
    if not evaluations:
        return note_html("not evaluated yet")
    columns = _columns(evaluations)
    rows = [
        [
            time.strftime("%Y-%m-%d %H:%M", time.localtime(evaluation["made"])),
            evaluation["episodes"],
            evaluation["seed"],
            "sampled" if evaluation["explore"] else "most likely",
            *(_plus_minus(_returns(evaluation, group, name)) for group, name in columns),
        ]
        for evaluation in reversed(evaluations)
    ]
    return table_html(["evaluated", "episodes", "seed", "actions", *(f"return of {name}" for _, name in columns)], rows)


def _comparison_html(
    a: int, evaluations_a: Sequence[Mapping[str, Any]], b: int, evaluations_b: Sequence[Mapping[str, Any]]
) -> str:
    """Checkpoints a and b by their latest evaluations on the same episodes, and the difference for each episode."""
    pairs = [(x, y) for x in evaluations_a for y in evaluations_b if is_comparable(dict(x), dict(y))]
    if not pairs:
        return note_html(f"{a} and {b} have not been evaluated on the same episodes: use Evaluate both")
    pair = pairs[-1]
    rows = []
    for group, name in _columns(pair):
        first, second = (_returns(evaluation, group, name) for evaluation in pair)
        rows.append([name, *map(_plus_minus, (first, second, second - first))])
    episodes, seed = pair[0]["episodes"], pair[0]["seed"]
    note = f"The same {episodes} episodes from seed {seed}; ± is one standard error over episodes."
    header = ["return of", f"checkpoint {a}", f"checkpoint {b}", f"{b} minus {a}, episode by episode"]
    return table_html(header, rows) + note_html(note)


def _columns(evaluations: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(group, name) of each group, or of each agent where the agents of a group play against each other.

    An evaluation in which all of their returns are 0, as in drawn games, does not show whether they do.
    """
    columns: list[tuple[str, str]] = []
    for group in evaluations[-1]["returns"]:
        opponents = [each["opponent_returns"].get(group, ()) for each in evaluations]
        unclear = [not any(each["returns"][group]) for each in evaluations]
        is_each = any(opponents) and all(agents or no for agents, no in zip(opponents, unclear))
        columns += [(group, name) for name in (next(filter(None, opponents)) if is_each else [group])]
    return columns


def _returns(evaluation: Mapping[str, Any], group: str, name: str) -> np.ndarray:
    """`[episode]` of a column; NaN where it is not known."""
    returns = evaluation["opponent_returns"].get(group, {}).get(name, evaluation["returns"][group])
    return np.asarray(returns, float)


def _plus_minus(returns: np.ndarray) -> str:
    mean, error = returns.mean(), standard_error(returns)
    return f"{mean:.3f}" if error is None or math.isnan(error) else f"{mean:.3f} ± {error:.3f}"
