"""CheckpointEvaluation: how well a checkpoint does, played in a thread and kept with the run; two compared."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as w
import numpy as np

from marlnb.envs.vector import Step
from marlnb.errors import MarlnbError
from marlnb.training.collect.episodes import TimeStep
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.checkpoint import Checkpoint
from marlnb.training.runs.checkpoint_notes import CheckpointNotes, is_alike
from marlnb.widgets.core.controls import Dropdown, button_for
from marlnb.widgets.core.style import LABEL, note_html, problem_html, table_html
from marlnb.widgets.core.ui_lock import TURN, in_turn
from marlnb.widgets.core.work import Work, WorkStopped
from marlnb.widgets.forms.form import ConfigForm
from marlnb.widgets.forms.verb_options import options_of

EvaluationOptions = options_of(
    evaluate, {"episodes": (int, {"ge": 1}), "seed": (int, {"ge": 0}), "explore": (bool, {})}
)
NOBODY = "(choose)"
TELL_EVERY_S = 0.2
WIDTH = "11em"  # of a button


class CheckpointEvaluation:
    """Evaluates the checkpoint that is looked at, and compares it with another one.

    Attributes:
        box: the widget to show.
        other: the iteration that it is compared with, None where none is chosen.
        work: the evaluation under way, or the last one.
    """

    def __init__(self, notes: CheckpointNotes, *, on_change: Callable[[], None], on_kept: Callable[[], None]) -> None:
        """
        Args:
            on_change: called when other options or another checkpoint to compare with are chosen.
            on_kept: called when an evaluation was kept, from its thread.
        """
        self.notes = notes
        self._on_kept = on_kept
        self.work: Work | None = None
        self._on_change = on_change
        self._checkpoint: Checkpoint | None = None
        self._others: dict[int, Checkpoint] = {}
        self.form = ConfigForm(EvaluationOptions, on_change=on_change)
        self._button = button_for(
            self._clicked, "Evaluate", "bar-chart", "play episodes with this checkpoint", width=WIDTH
        )
        self._both = button_for(
            self._clicked_both, "Evaluate both", "balance-scale", "the same episodes with both", width=WIDTH
        )
        self._stop = button_for(
            self.stop, "Stop", "stop", "end the evaluation; nothing of it is kept", width=WIDTH, disabled=True
        )
        self._bar = w.FloatProgress(min=0.0, max=1.0, layout=w.Layout(width="16em", visibility="hidden"))
        self._line, self._kept, self._compared = w.HTML(), w.HTML(), w.HTML()
        self._with = Dropdown(options=[NOBODY], description="compare with", style=LABEL, layout=w.Layout(width="26em"))
        self._with.observe(self._other_chosen, "value")
        buttons = w.HBox([self._button, self._stop, self._bar], layout=w.Layout(flex_flow="row wrap"))
        against = w.HBox([self._with, self._both], layout=w.Layout(flex_flow="row wrap"))
        self.box = w.VBox([self.form.box, buttons, self._line, self._kept, against, self._compared])

    @property
    def other(self) -> int | None:
        return None if self._with.value == NOBODY else int(self._with.value)

    @in_turn
    def look_at(self, checkpoint: Checkpoint, all_of_them: Sequence[Checkpoint]) -> None:
        """Shows what is known of a checkpoint."""
        changed = self._checkpoint != checkpoint
        self._checkpoint = checkpoint
        self._others = {one.iteration: one for one in all_of_them if one.iteration != checkpoint.iteration}
        options = [NOBODY, *map(str, self._others)]
        if list(self._with.options) != options:
            chosen = self._with.value
            self._with.options = options
            self._with.value = chosen if chosen in options else NOBODY
        if changed:
            self._line.value = ""
        self.show()

    @in_turn
    def evaluate(self, *iterations: int) -> Work:
        """Evaluates checkpoints, one after the other, in a thread; what comes of it is kept with the run.

        Raises:
            ConfigError: an option cannot be used.
        """
        if self.work is not None and self.work.is_alive:
            return self.work
        options = self.form.values
        wanted = iterations or ((self._checkpoint.iteration,) if self._checkpoint is not None else ())
        self._bar.value, self._bar.layout.visibility = 0.0, "visible"
        self._line.value = note_html("beginning")
        self._busy(True)
        self.work = Work(lambda work: self._play(work, wanted, options), done=self._played, failed=self._failed)
        return self.work

    def stop(self) -> None:
        if self.work is not None:
            self.work.stop()

    @in_turn
    def show(self) -> None:
        """Shows what is kept of the checkpoint, and how it compares."""
        if self._checkpoint is None:
            return
        kept = self.notes.evaluations(self._checkpoint)
        self._kept.value = _table_of(kept)
        self._both.disabled = self.other is None
        if self.other is None or self.other not in self._others:
            self._compared.value = ""
            return
        theirs = self.notes.evaluations(self._others[self.other])
        self._compared.value = _comparison(self._checkpoint.iteration, kept, self.other, theirs)

    def _clicked(self) -> None:
        self._try()

    def _clicked_both(self) -> None:
        if self._checkpoint is not None and self.other is not None:
            self._try(self._checkpoint.iteration, self.other)

    def _try(self, *iterations: int) -> None:
        try:
            self.evaluate(*iterations)
        except MarlnbError as error:
            self._line.value = problem_html(str(error))

    def _play(self, work: Work, iterations: Sequence[int], options: Mapping[str, Any]) -> str:
        began, episodes = time.monotonic(), options["episodes"]
        for place, iteration in enumerate(iterations):

            def tell(n: int, place: int = place, iteration: int = iteration) -> None:
                self._bar.value = (place + n / episodes) / len(iterations)
                self._line.value = note_html(f"checkpoint {iteration}: {n} of {episodes} episodes")

            found = evaluate(self.notes.run, checkpoint=iteration, callback=_Counter(work, tell), **options)
            self.notes.keep(found)
        which = " and ".join(map(str, iterations))
        return f"checkpoint {which}: {episodes} episodes in {time.monotonic() - began:.1f} s, kept"

    def _played(self, told: str) -> None:
        self._line.value = note_html(told)
        self._busy(False)
        self.show()
        self._on_kept()

    def _failed(self, error: Exception) -> None:
        stopped = isinstance(error, WorkStopped)
        self._line.value = note_html("stopped: nothing of it is kept") if stopped else problem_html(str(error))
        self._busy(False)

    def _busy(self, busy: bool) -> None:
        self._button.disabled, self._stop.disabled = busy, not busy
        self._both.disabled = busy or self.other is None
        if not busy:
            self._bar.layout.visibility = "hidden"

    def _other_chosen(self, change: Any) -> None:
        self.show()
        self._on_change()


class _Counter:
    """Counts the episodes that ended, tells of them, and looks whether to stop."""

    def __init__(self, work: Work, tell: Callable[[int], None]) -> None:
        self.work, self.tell = work, tell
        self.n, self.told_at = 0, 0.0

    def before_step(self, time_step: TimeStep) -> None:
        self.work.check()

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        self.n += int((step.done.cpu() & (time_step.episode.cpu() >= 0)).sum())
        if time.monotonic() - self.told_at > TELL_EVERY_S:
            self.told_at = time.monotonic()
            with TURN:
                self.tell(self.n)


def told_score(kept: Mapping[str, Any]) -> str:
    """The score of an evaluation that was kept, with its standard error over episodes: `-7.61 ± 0.12`."""
    per_episode = [np.asarray(values, float) for values in kept["returns"].values()]
    error = _standard_error(sum(per_episode) / len(per_episode)) if per_episode else math.nan
    return _plus_minus(kept["score"], error)


def _table_of(kept: Sequence[Mapping[str, Any]]) -> str:
    if not kept:
        return note_html("not evaluated yet")
    groups = list(kept[-1]["return_mean"])
    rows = [
        [
            time.strftime("%Y-%m-%d %H:%M", time.localtime(entry["made"])),
            entry["episodes"],
            entry["seed"],
            "sampled" if entry["explore"] else "most likely",
            *(_plus_minus(entry["return_mean"][group], entry["return_se"][group]) for group in groups),
        ]
        for entry in reversed(kept)
    ]
    return table_html(["evaluated", "episodes", "seed", "actions", *(f"return of {group}" for group in groups)], rows)


def _comparison(mine: int, kept: Sequence[Mapping[str, Any]], other: int, theirs: Sequence[Mapping[str, Any]]) -> str:
    """Two checkpoints by their newest evaluations of the same episodes, and how they differ episode by episode."""
    pairs = [(a, b) for a in kept for b in theirs if is_alike(dict(a), dict(b))]
    if not pairs:
        return note_html(f"{mine} and {other} were not evaluated on the same episodes yet: Evaluate both does that")
    first, second = pairs[-1]
    rows = []
    for group in first["return_mean"]:
        difference = np.asarray(second["returns"][group], float) - np.asarray(first["returns"][group], float)
        rows.append(
            [
                group,
                _plus_minus(first["return_mean"][group], first["return_se"][group]),
                _plus_minus(second["return_mean"][group], second["return_se"][group]),
                _plus_minus(float(difference.mean()), _standard_error(difference)),
            ]
        )
    told = f"The same {first['episodes']} episodes from seed {first['seed']}; ± is one standard error over episodes."
    head = ["return of", f"checkpoint {mine}", f"checkpoint {other}", f"{other} minus {mine}, episode by episode"]
    return table_html(head, rows) + note_html(told)


def _standard_error(values: Any) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def _plus_minus(mean: float, error: float | None) -> str:
    return f"{mean:.3f}" if error is None or math.isnan(error) else f"{mean:.3f} ± {error:.3f}"
