"""TrainingPanel: compose an experiment by clicking, train it and follow it; each choice is also shown as code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ipywidgets as w
from markupsafe import Markup
from matplotlib.figure import Figure

from marlnb.composition.overrides import as_code, as_command
from marlnb.errors import ConfigError, MarlnbError, RunError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.paths import expanded
from marlnb.training.background import Training
from marlnb.training.runs.comparable import check_same
from marlnb.training.runs.files import is_run
from marlnb.training.runs.run import Run
from marlnb.training.train import JOB_VARIABLE, open_run, train
from marlnb.trust import trust, trusted
from marlnb.widgets.core.controls import Tab, Text, button_for
from marlnb.widgets.core.snapshot import Snapshot, with_snapshot
from marlnb.widgets.core.style import HTML, LABEL, code_html, note_html, problem_html, styled
from marlnb.widgets.core.trust_question import TrustQuestion
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.load_experiment import load_experiment
from marlnb.widgets.forms.training_form import TrainingForm
from marlnb.widgets.runs.await_training import await_training
from marlnb.widgets.runs.run_panel import RunPanel
from marlnb.widgets.runs.run_status import describe_status

LIMIT_TEXT = "of this session; then it saves and stops"
LIMIT_HELP = Markup('<div class="marlnb-help" style="margin-left: 13em">{} [a number or none]</div>').format(LIMIT_TEXT)
DEFAULT_OVERRIDES = ("env=mpe/simple_spread", "algorithm=mappo")


class TrainingPanel:
    """Everything that a training run needs, in one cell.

    Attributes:
        widget: what a notebook displays.
        form: the experiment.
        environment: part of `form`.
        algorithm: part of `form`.
        device: part of `form`.
        length: part of `form`.
        saving: part of `form`.
        run_panel: the live panel of the run; None before a run was started or opened.
        trust_question: a button for the code of another person's experiment, which is shown once it is allowed.
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
            experiment: what the form shows at first; None: that of the run, or a small example.
            run: the folder to train in. A folder that holds a run shows it.
            references: named levels drawn next to the returns, in units of reward per agent and episode.
        """
        opened = Run.open(run) if run is not None and is_run(run) else None
        shown = experiment or (opened.experiment if opened is not None else Experiment.compose(*DEFAULT_OVERRIDES))
        self._references = dict(references or {})
        self.run_panel: RunPanel | None = None
        is_untrusted = any(trusted(part) is None for part in shown.unloaded.values())
        first = Experiment.compose(*DEFAULT_OVERRIDES) if is_untrusted else shown.loaded()
        self._make(first, None if run is None else str(run))
        self.set(shown)
        if opened is not None:
            self._show_run(opened)

    @with_ui_lock
    def _make(self, experiment: Experiment, run: str | None) -> None:
        self._folder = _text_field("run", "runs/<env>-<algorithm>-<seed>-<n>")
        self._minutes = _text_field("time limit (min)", "none", width="26em", tooltip=LIMIT_TEXT)
        self._source = _text_field("load from", "a run's folder, a YAML file, or overrides")
        load = button_for(self._load, "Load", "", "show that experiment in the form", width="6em")
        self._start_button = button_for(self._start, "Train", "play", "start, or resume the run in this folder")
        self._start_button.button_style = "primary"
        self._start_button.add_class("marlnb-train")
        self._problem = HTML()
        shared = {"layout": self._problem.layout, "style": self._problem.style}  # fewer widgets to send to a page
        self._loaded, self._limit, self._as_code, self._as_command = (HTML(**shared) for _ in range(4))
        self.form = TrainingForm(experiment, on_change=self._changed)
        self.environment, self.algorithm, self.device = self.form.environment, self.form.algorithm, self.form.device
        self.length, self.saving = self.form.length, self.form.saving
        self.trust_question = TrustQuestion(self._trust)
        pages = {**self.form.pages, "As code": self._as_code, "As a command": self._as_command}
        pages["Length"] = w.VBox([self.length.box, self._minutes, self._limit])
        self.tabs = Tab(list(pages.values()), titles=list(pages))
        self._run_box = w.VBox()
        load_line = w.HBox([self._source, load])
        start_line = w.HBox([self._folder, self._start_button])
        above = [load_line, self._loaded, self.trust_question.widget, self.form.tuned.box]
        parts = [*above, self.tabs, start_line, self._problem, self._run_box]
        self.widget = styled(*parts, name="marlnb-training")
        self._write_folder(run or "")
        self._snapshot = Snapshot(self.widget, self._text, self._figure)
        for field in (self._folder, self._minutes):
            field.observe(lambda _: self._changed(), "value")

    @property
    def experiment(self) -> Experiment:
        """The experiment in the form.

        Raises:
            ConfigError: an option is not valid, or the parts are not compatible.
        """
        return self.form.experiment

    @property
    def run(self) -> Run | None:
        """The run that is shown."""
        return None if self.run_panel is None else self.run_panel.run

    @property
    def policies(self) -> dict[str, Policy] | None:
        """By group, of the checkpoint that was last loaded in the run's tab; None before."""
        return None if self.run_panel is None else self.run_panel.policies

    @property
    def stop_after_s(self) -> float | None:
        """Seconds after which a training run that this panel starts saves and stops; None: never.

        Raises:
            ConfigError: the time limit is not a number of minutes.
        """
        text = self._minutes.value.strip()
        if not text or text.lower() == "none":
            return None
        try:
            minutes = float(text)
        except ValueError:
            minutes = 0.0
        if not 0 < minutes < float("inf"):
            raise ConfigError(f"time limit: expected a number of minutes above 0, or none; got {text!r}")
        return 60 * minutes

    def set(self, experiment: Experiment) -> None:
        """Shows an experiment in the form.

        If it was read from a folder or a file, and names code that the user does not trust, a button asks first.

        Raises:
            ConfigError: the code that it names cannot be imported.
        """
        self._asked = experiment
        if not self.trust_question.show(experiment):
            self.form.set(experiment.loaded())

    def load(self, source: str) -> None:
        """Shows the experiment of a run's folder, of a YAML or JSON file, or of overrides like `env=mpe/simple_tag`.

        Raises:
            ConfigError: `source` is none of these.
            RunError: the run cannot be read.
        """
        self.set(load_experiment(source))

    @with_ui_lock
    def start(self) -> Training:
        """Trains the experiment in a thread, or resumes the run in the folder; the live panel appears below.

        Returns:
            The training; the present one if it is alive.
        Raises:
            RunError: this panel is still training in another folder, or another experiment in this one.
            ConfigError, RunError, EnvError: as `marlnb.start`.
        """
        experiment, limit = self.experiment, self.stop_after_s
        folder = self._chosen_folder
        if self.run_panel is not None and self.run_panel.training is not None and self.run_panel.training.is_alive:
            run = self.run_panel.run
            if folder != run.path:
                raise RunError(f"{run.shown_path} is still training: stop it first")
            check_same(run, experiment)
            return self.run_panel.training
        is_new = folder is None or not is_run(folder)
        run_panel = self._show_run(open_run(experiment, folder, resume=folder is not None), is_named=folder is None)
        self._write_folder(run_panel.run.shown_path)
        return run_panel.start(stop_after_s=limit, is_new=is_new)

    async def train(self) -> Run:
        """Trains to the end and returns the run. A cell awaits it, so that the next cells have a trained run.

        It needs no click. If no page shows the panel, as in papermill, the progress is text, and the learning curve
        is a picture at the end. Interrupting the cell saves and stops the training.

        Raises:
            StoppedError: the cell was interrupted; running it again resumes the training.
            As `start`, and whatever ended the training.
        """
        if os.environ.get(JOB_VARIABLE):
            folder = self._chosen_folder
            run = train(self.experiment, folder, resume=folder is not None)  # in a job, stopping ends the notebook
            self._show_run(run)
        else:
            run = await await_training(self.start(), is_seen=lambda: self._is_seen)
        if not self._is_seen:
            self._display_result()
        return run

    @property
    def _is_seen(self) -> bool:
        """Whether a page has drawn the run's curves."""
        return self.run_panel is not None and self.run_panel.returns.is_seen

    def _display_result(self) -> None:
        """Displays the final state and a picture, for a notebook that no page showed during the training."""
        from IPython.display import display

        assert self.run_panel is not None
        self.run_panel.catch_up()
        if not self._snapshot.renew(now=True):
            bundle = with_snapshot(self.widget, self._text(), self._figure)
            display({kind: value for kind, value in bundle.items() if kind.startswith(("image/", "text/"))}, raw=True)

    def _ipython_display_(self, **options: Any) -> None:
        self._snapshot.display()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return with_snapshot(self.widget, self._text(), self._figure)

    def _text(self) -> str:
        """The panel where widgets do not run."""
        if self.run is None:
            return "TrainingPanel, nothing trained yet"
        return f"{self.run.shown_path}: {describe_status(self.run.status())}"

    def _figure(self) -> Figure | None:
        return None if self.run_panel is None else self.run_panel.figure()

    def _start(self) -> None:
        try:
            self.start()
        except (MarlnbError, OSError) as error:
            self._problem.value = problem_html(str(error))

    def _trust(self) -> None:
        """Allows the code of the experiment that waits, and shows it."""
        trust(self._asked.unloaded.values(), "granted")
        try:
            self.set(self._asked)
        except MarlnbError as error:
            self._loaded.value = problem_html(str(error))
        if self.run_panel is not None:
            self.run_panel.trust_question.show(self.run_panel.run.experiment)

    def _load(self) -> None:
        try:
            self.load(self._source.value)
        except MarlnbError as error:
            self._loaded.value = problem_html(str(error))
        else:
            self._loaded.value = note_html(f"loaded from {self._source.value}")

    @with_ui_lock
    def _show_run(self, run: Run, *, is_named: bool = False) -> RunPanel:
        """Shows the live panel of a run.

        Args:
            is_named: the panel chose its folder, and empties the field again if the run cannot start.
        """
        if self.run_panel is not None:
            self.run_panel.close()
        on_discard = self._empty_folder if is_named else lambda: None
        self.run_panel = RunPanel(run, references=self._references, on_discard=on_discard)
        self.run_panel.snapshots.append(self._snapshot)
        self._run_box.children = (self.run_panel.widget,)
        return self.run_panel

    def _write_folder(self, text: str) -> None:
        """Writes a run's folder into its field. The text means this folder also after `%cd`."""
        self._written, self._written_path = text, expanded(text).absolute()
        self._folder.value = text

    @property
    def _chosen_folder(self) -> Path | None:
        """The folder in the field; None: a new one."""
        text = self._folder.value.strip()
        if not text:
            return None
        return self._written_path if text == self._written.strip() else expanded(text).absolute()

    def _empty_folder(self) -> None:
        self._folder.value = ""

    def _changed(self) -> None:
        """Shows the experiment as code and as a command, or why it is not valid."""
        folder = self._folder.value.strip() or None
        try:
            experiment, limit = self.experiment, self._checked_limit()
        except MarlnbError as error:
            self._problem.value = self._as_code.value = self._as_command.value = problem_html(str(error))
            self._start_button.disabled = True
            return
        self.device.show_advice(experiment)
        self._as_code.value = code_html(as_code(experiment, folder, stop_after_s=limit))
        self._as_command.value = code_html(as_command(experiment, folder, stop_after_s=limit))
        self._problem.value = ""
        self._start_button.disabled = False

    def _checked_limit(self) -> float | None:
        """`stop_after_s`; shows a problem at its field."""
        try:
            limit = self.stop_after_s
        except ConfigError as error:
            self._limit.value = problem_html(str(error))
            raise
        self._limit.value = LIMIT_HELP
        return limit


def _text_field(name: str, placeholder: str, value: str = "", *, width: str = "34em", **options: Any) -> Text:
    shape = {"style": LABEL, "layout": {"width": width}}
    return Text(value=value, description=name, placeholder=placeholder, **shape, **options)
