"""TrainingPanel: an experiment composed by clicking, trained and watched; every choice is also a line of code."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ipywidgets as w
from matplotlib.figure import Figure

from marlnb.config import Experiment
from marlnb.errors import ConfigError, MarlnbError, StoppedError
from marlnb.overrides import as_code, as_command
from marlnb.training.background import AWAIT_POLL_S, Training
from marlnb.training.progress import StatusLine
from marlnb.training.run import Run, is_run
from marlnb.training.train import JOB_VARIABLE, open_run, train
from marlnb.widgets.algorithm_panel import AlgorithmPanel
from marlnb.widgets.device_panel import DevicePanel
from marlnb.widgets.environment_panel import EnvironmentPanel
from marlnb.widgets.filling import experiment_from
from marlnb.widgets.form import ConfigForm
from marlnb.widgets.picture import Still, with_picture
from marlnb.widgets.run_panel import RunPanel, describe_status
from marlnb.widgets.style import code_html, note_html, problem_html, styled

LENGTH = ("frames", "target_return", "evaluate_every", "evaluation_episodes", "rollout_steps", "seed")
KEEPING = ("checkpoint_every", "keep_checkpoints", "loggers")
DEFAULT = ("env=mpe/simple_spread", "algorithm=mappo")
UNSEEN_S = 5.0  # a panel that no page has drawn by then is told of as text


class TrainingPanel:
    """Everything that a training needs, in one cell.

    Attributes:
        widget: what a notebook displays.
        environment, algorithm, device: the panels within.
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
        self._kept = shown
        self._quiet = True
        self.watched: RunPanel | None = None
        self.environment = EnvironmentPanel(shown.env, n_envs=shown.n_envs)
        self.algorithm = AlgorithmPanel(shown, None)
        self.device = DevicePanel(shown)
        self.length = ConfigForm(Experiment, only=LENGTH, on_change=self._changed)
        self.keeping = ConfigForm(Experiment, only=KEEPING, on_change=self._changed)
        self._make(None if run is None else str(run))
        self.environment.on_change(self._environment_changed)
        self.algorithm.on_change(self._changed)
        self.device.on_change(self._changed)
        self.set(shown)
        if opened is not None:
            self._watch(opened)

    def _make(self, run: str | None) -> None:
        style = {"description_width": "11em"}
        self._folder = w.Text(
            value=run or "", description="run", placeholder="runs/<env>-<algorithm>-<seed>-<n>", style=style
        )
        self._minutes = w.Text(
            description="stop after", placeholder="none", style=style, tooltip="minutes of this session, then saved"
        )
        self._fill_from = w.Text(
            description="fill from", placeholder="a run's folder, a YAML file, or overrides", style=style
        )
        for field in (self._folder, self._minutes, self._fill_from):
            field.layout.width = "34em"
        self._folder.observe(lambda _: self._changed(), "value")
        self._minutes.observe(lambda _: self._changed(), "value")
        fill = w.Button(description="Fill", layout=w.Layout(width="6em"), tooltip="show that experiment in the form")
        fill.on_click(lambda _: self._fill())
        self._start_button = w.Button(
            description="Train", icon="play", button_style="primary", tooltip="begin, or go on with the run's folder"
        )
        self._start_button.add_class("marlnb-train")
        self._start_button.on_click(lambda _: self._begin())
        self._problem, self._as_code, self._as_command = w.HTML(), w.HTML(), w.HTML()
        minutes = w.HBox([self._minutes, w.HTML('<span class="marlnb-help">minutes</span>')])
        pages = {
            "Environment": self.environment.widget,
            "Algorithm": self.algorithm.widget,
            "Device": self.device.widget,
            "Length": w.VBox([self.length.box, minutes]),
            "Saving": self.keeping.box,
            "As code": self._as_code,
            "As a command": self._as_command,
        }
        self.tabs = w.Tab(list(pages.values()), titles=list(pages))
        self._place = w.VBox()
        fill_line = w.HBox([self._fill_from, fill])
        start_line = w.HBox([self._folder, self._start_button])
        self.widget = styled(fill_line, self.tabs, start_line, self._problem, self._place)
        self.widget.add_class("marlnb-training")
        self._still = Still(self.widget, self._told, self._figure)

    @property
    def experiment(self) -> Experiment:
        """What the form says.

        Raises:
            ConfigError: an option cannot be used, or the parts do not fit together.
        """
        return replace(
            self._kept,
            env=self.environment.config,
            n_envs=self.environment.n_envs,
            groups=self.environment.groups,
            **self.algorithm.parts,
            device=self.device.device,
            threads=self.device.threads,
            **self.length.values,
            **self.keeping.values,
        )

    @property
    def run(self) -> Run | None:
        """The run that is watched."""
        return None if self.watched is None else self.watched.run

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
            raise ConfigError(f"stop after: a number of minutes above 0, or none; got {text!r}")
        return 60 * minutes

    def set(self, experiment: Experiment) -> None:
        """Shows an experiment in the form."""
        self._quiet, self._kept = True, experiment
        try:
            self.environment.set(experiment)
            self.algorithm.set(experiment)
            self.device.set(experiment)
            self.length.set(experiment)
            self.keeping.set(experiment)
        finally:
            self._quiet = False
        self._changed()

    def fill(self, source: str) -> None:
        """Shows the experiment of a run's folder, a YAML or JSON file, or overrides such as `env=mpe/simple_tag`.

        Raises:
            ConfigError, RunError: there is no such experiment.
        """
        self.set(experiment_from(source))

    def start(self) -> Training:
        """Trains what the form says in a thread, or goes on with the run's folder; the live panel appears below.

        Raises:
            ConfigError, RunError, EnvError: as `marlnb.start`.
        """
        if self.watched is not None and self.watched.training is not None and self.watched.training.is_alive:
            return self.watched.training
        experiment, limit = self.experiment, self.stop_after_s
        folder = self._folder.value.strip() or None
        run = open_run(experiment, folder, resume=folder is not None)
        self._watch(run)
        assert self.watched is not None
        self._folder.value = str(run.path)
        return self.watched.start(stop_after_s=limit)

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
            run = await self._finished(self.start())
        if not self._is_seen:
            self._leave()
        return run

    async def _finished(self, training: Training) -> Run:
        line, began = StatusLine(), time.monotonic()
        try:
            while training.is_alive:
                await asyncio.sleep(AWAIT_POLL_S)
                if not self._is_seen and line.due and time.monotonic() - began >= UNSEEN_S:
                    line.write(describe_status(training.run.status()))
        except (asyncio.CancelledError, KeyboardInterrupt):
            training.stop()
            while training.is_alive:
                await asyncio.sleep(AWAIT_POLL_S)
            told = describe_status(training.run.status())
            raise StoppedError(
                f"the cell was interrupted; {training.run.path} is {told}. Run the cell again."
            ) from None
        run = training.wait()
        if not self._is_seen:
            line.write(describe_status(run.status()))
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
            bundle = with_picture(self.widget, self._told(), self._figure)
            display({kind: value for kind, value in bundle.items() if kind.startswith(("image/", "text/"))}, raw=True)

    def _ipython_display_(self, **options: Any) -> None:
        self._still.display()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return with_picture(self.widget, self._told(), self._figure)

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
            self._problem.value = problem_html(str(error))
        else:
            self._problem.value = note_html(f"filled from {self._fill_from.value}")

    def _watch(self, run: Run) -> None:
        if self.watched is not None:
            self.watched.close()
        self.watched = RunPanel(run, references=self._references)
        self.watched.stills.append(self._still)
        self._place.children = (self.watched.widget,)

    def _environment_changed(self) -> None:
        if self._quiet:
            return
        try:
            env, groups = self.environment.config, self.environment.groups
        except MarlnbError:
            self._changed()
            return
        if self.environment.spec is not None:
            self.algorithm.look_at(replace(self._kept, env=env, groups=groups), self.environment.spec)
        self._changed()

    def _changed(self) -> None:
        """What was chosen, as code and as a command; or why it cannot be."""
        if self._quiet:
            return
        folder = self._folder.value.strip() or None
        try:
            experiment, _ = self.experiment, self.stop_after_s
        except MarlnbError as error:
            self._problem.value = problem_html(str(error))
            self._start_button.disabled = True
            return
        self.device.look_at(experiment)
        self._as_code.value = code_html(as_code(experiment, folder))
        self._as_command.value = code_html(as_command(experiment, folder))
        self._problem.value = ""
        self._start_button.disabled = False
