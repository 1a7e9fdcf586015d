"""TrainingPanel: an experiment composed by clicking, trained and watched; every choice is also a line of code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import ipywidgets as w
from matplotlib.figure import Figure

from marlnb.errors import ConfigError, MarlnbError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.overrides import as_code, as_command
from marlnb.training.background import Training
from marlnb.training.runs.run import Run, is_run
from marlnb.training.train import JOB_VARIABLE, open_run, train
from marlnb.widgets.core.controls import Tab, Text, button_for
from marlnb.widgets.core.snapshot import Snapshot, with_snapshot
from marlnb.widgets.core.style import LABEL, code_html, note_html, problem_html, styled
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.load_experiment import load_experiment
from marlnb.widgets.forms.training_form import TrainingForm
from marlnb.widgets.runs.await_training import finished
from marlnb.widgets.runs.run_panel import RunPanel
from marlnb.widgets.runs.run_status import describe_status

LIMIT_HELP = (
    '<div class="marlnb-help" style="margin-left: 13em">of this session; then it stops, saved [a number or none]</div>'
)
DEFAULT = ("env=mpe/simple_spread", "algorithm=mappo")


class TrainingPanel:
    """Everything that a training needs, in one cell.

    Attributes:
        widget: what a notebook displays.
        form: the experiment. environment, algorithm, device, length, keeping: its parts.
        watched: the live panel of the run, None until it was begun or opened.
    """

    def __init__(
        self,
        experiment: Experiment | None = None,
        run: str | os.PathLike[str] | None = None,
        *,
        references: Mapping[str, float] | None = None,
    ) -> None:
        """
        Args:
            experiment: what the form shows at first; None: a small example.
            run: the folder to train in; one that holds a run shows it, and its experiment when none is given.
            references: named levels drawn beside the returns, in units of reward per agent and episode.
        """
        opened = Run.open(run) if run is not None and is_run(run) else None
        shown = experiment or (opened.experiment if opened is not None else Experiment.compose(*DEFAULT))
        self._references = dict(references or {})
        self.watched: RunPanel | None = None
        self._make(shown, None if run is None else str(run))
        self.set(shown)
        if opened is not None:
            self._watch(opened)

    @with_ui_lock
    def _make(self, shown: Experiment, run: str | None) -> None:
        self._folder = _field("run", "runs/<env>-<algorithm>-<seed>-<n>", run or "")
        self._minutes = _field("minutes at most", "none", width="26em", tooltip="of this session, then saved")
        self._fill_from = _field("fill from", "a run's folder, a YAML file, or overrides")
        fill = button_for(self._fill, "Fill", "", "show that experiment in the form", width="6em")
        self._start_button = button_for(
            self._begin,
            "Train",
            "play",
            "begin, or go on with the run's folder",
            button_style="primary",
            _dom_classes=["marlnb-train"],
        )
        self._problem = w.HTML()
        alike = {"layout": self._problem.layout, "style": self._problem.style}  # said once to a page
        self._filled, self._limit, self._as_code, self._as_command = (w.HTML(**alike) for _ in range(4))
        self.form = TrainingForm(shown, on_change=self._changed)
        self.environment, self.algorithm, self.device = self.form.environment, self.form.algorithm, self.form.device
        self.length, self.keeping = self.form.length, self.form.keeping
        pages = {**self.form.pages, "As code": self._as_code, "As a command": self._as_command}
        pages["Length"] = w.VBox([self.length.box, self._minutes, self._limit])
        self.tabs = Tab(list(pages.values()), titles=list(pages))
        self._place = w.VBox()
        fill_line = w.HBox([self._fill_from, fill])
        start_line = w.HBox([self._folder, self._start_button])
        parts = [fill_line, self._filled, self.tabs, start_line, self._problem, self._place]
        self.widget = styled(*parts, name="marlnb-training")
        self._still = Snapshot(self.widget, self._told, self._figure)
        for field in (self._folder, self._minutes):
            field.observe(lambda _: self._changed(), "value")

    @property
    def experiment(self) -> Experiment:
        """What the form says.

        Raises:
            ConfigError: an option cannot be used, or the parts do not fit together.
        """
        return self.form.experiment

    @property
    def run(self) -> Run | None:
        """The run that is watched."""
        return None if self.watched is None else self.watched.run

    @property
    def policies(self) -> dict[str, Policy] | None:
        """By group, of the checkpoint that was loaded last in the run's tab; None before."""
        return None if self.watched is None else self.watched.policies

    @property
    def stop_after_s(self) -> float | None:
        """Seconds after which a training that this panel begins is asked to stop; None: never.

        Raises:
            ConfigError: what stands there is no number of minutes.
        """
        text = self._minutes.value.strip()
        if not text or text.lower() == "none":
            return None
        try:
            minutes = float(text)
        except ValueError:
            minutes = 0.0
        if minutes <= 0:
            raise ConfigError(f"minutes at most: a number of minutes above 0, or none; got {text!r}")
        return 60 * minutes

    def set(self, experiment: Experiment) -> None:
        """Shows an experiment in the form."""
        self.form.set(experiment)

    def fill(self, source: str) -> None:
        """Shows the experiment of a run's folder, a YAML or JSON file, or overrides such as `env=mpe/simple_tag`.

        Raises:
            ConfigError, RunError: there is no such experiment.
        """
        self.set(load_experiment(source))

    @with_ui_lock
    def start(self) -> Training:
        """Trains what the form says in a thread, or goes on with the run's folder; the live panel appears below.

        Raises:
            ConfigError, RunError, EnvError: as `marlnb.start`.
        """
        if self.watched is not None and self.watched.training is not None and self.watched.training.is_alive:
            return self.watched.training
        experiment, limit = self.experiment, self.stop_after_s
        folder = self._folder.value.strip() or None
        watched = self._watch(open_run(experiment, folder, resume=folder is not None))
        self._folder.value = str(watched.run.path)
        return watched.start(stop_after_s=limit)

    async def train(self) -> Run:
        """Trains to the end, and returns the run: what a cell awaits so that the next ones find a trained run.

        Nobody has to click. Where no page shows the panel, as under papermill, progress is text, and the learning
        curve is left as a picture. An interrupt of the cell stops the training, saved.

        Raises:
            StoppedError: the cell was interrupted; the same cell goes on from there.
            As `start`, and whatever ended the training.
        """
        if os.environ.get(JOB_VARIABLE):
            folder = self._folder.value.strip() or None
            run = train(self.experiment, folder, resume=folder is not None)  # in a job it ends the notebook if stopped
            self._watch(run)
        else:
            run = await finished(self.start(), is_seen=lambda: self._is_seen)
        if not self._is_seen:
            self._leave()
        return run

    @property
    def _is_seen(self) -> bool:
        """Whether a page has drawn the run's curves."""
        return self.watched is not None and self.watched.returns.is_seen

    def _leave(self) -> None:
        """What a notebook shows of a training at which nobody looked: the panel's end, and a picture."""
        from IPython.display import display

        assert self.watched is not None
        self.watched.catch_up()
        if not self._still.renew(now=True):
            bundle = with_snapshot(self.widget, self._told(), self._figure)
            display({kind: value for kind, value in bundle.items() if kind.startswith(("image/", "text/"))}, raw=True)

    def _ipython_display_(self, **options: Any) -> None:
        self._still.display()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return with_snapshot(self.widget, self._told(), self._figure)

    def _told(self) -> str:
        """The panel where widgets do not run."""
        if self.run is None:
            return "TrainingPanel, nothing trained yet"
        return f"{self.run.path}: {describe_status(self.run.status())}"

    def _figure(self) -> Figure | None:
        return None if self.watched is None else self.watched.figure()

    def _begin(self) -> None:
        try:
            self.start()
        except (MarlnbError, OSError) as error:
            self._problem.value = problem_html(str(error))

    def _fill(self) -> None:
        try:
            self.fill(self._fill_from.value)
        except MarlnbError as error:
            self._filled.value = problem_html(str(error))
        else:
            self._filled.value = note_html(f"filled from {self._fill_from.value}")

    @with_ui_lock
    def _watch(self, run: Run) -> RunPanel:
        if self.watched is not None:
            self.watched.close()
        self.watched = RunPanel(run, references=self._references)
        self.watched.stills.append(self._still)
        self._place.children = (self.watched.widget,)
        return self.watched

    def _changed(self) -> None:
        """What was chosen, as code and as a command; or why it cannot be."""
        folder = self._folder.value.strip() or None
        try:
            experiment, limit = self.experiment, self._limit_told()
        except MarlnbError as error:
            self._problem.value = self._as_code.value = self._as_command.value = problem_html(str(error))
            self._start_button.disabled = True
            return
        self.device.look_at(experiment)
        self._as_code.value = code_html(as_code(experiment, folder, stop_after_s=limit))
        self._as_command.value = code_html(as_command(experiment, folder, stop_after_s=limit))
        self._problem.value = ""
        self._start_button.disabled = False

    def _limit_told(self) -> float | None:
        """`stop_after_s`, with what is wrong with it told at its field."""
        try:
            limit = self.stop_after_s
        except ConfigError as error:
            self._limit.value = problem_html(str(error))
            raise
        self._limit.value = LIMIT_HELP
        return limit


def _field(name: str, placeholder: str, value: str = "", *, width: str = "34em", **options: Any) -> Text:
    layout = w.Layout(width=width)
    return Text(value=value, description=name, placeholder=placeholder, style=LABEL, layout=layout, **options)
