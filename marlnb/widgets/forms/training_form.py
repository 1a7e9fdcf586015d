"""TrainingForm: an experiment as pages to fill in: environment, algorithm, device, length, saving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ipywidgets as w

from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.algorithm_panel import AlgorithmPanel
from marlnb.widgets.forms.device_panel import DevicePanel
from marlnb.widgets.forms.environment_panel import EnvironmentPanel
from marlnb.widgets.forms.form import ConfigForm

LENGTH = ("frames", "target_return", "evaluate_every", "evaluation_episodes", "rollout_steps", "seed")
KEEPING = ("checkpoint_every", "keep_checkpoints", "loggers")


class TrainingForm:
    """The parts of an experiment, each a panel or a form.

    Attributes:
        environment, algorithm, device: panels. length, keeping: forms.
    """

    def __init__(self, experiment: Experiment, *, on_change: Callable[[], None]) -> None:
        """
        Args:
            on_change: called in turn after each change.
        """
        self._on_change = on_change
        self._kept = experiment
        self._quiet = True
        self.environment = EnvironmentPanel(experiment.env, n_envs=experiment.n_envs)
        self.algorithm = AlgorithmPanel(experiment, None)
        self.device = DevicePanel(experiment)
        self.length = ConfigForm(Experiment, only=LENGTH, on_change=self._changed)
        self.keeping = ConfigForm(Experiment, only=KEEPING, on_change=self._changed)
        self.environment.on_change(self._environment_changed)
        self.algorithm.on_change(self._changed)
        self.device.on_change(self._changed)
        self._quiet = False

    @property
    def pages(self) -> dict[str, w.Widget]:
        """What to show, by title."""
        return {
            "Environment": self.environment.widget,
            "Algorithm": self.algorithm.widget,
            "Device": self.device.widget,
            "Length": self.length.box,
            "Saving": self.keeping.box,
        }

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

    @with_ui_lock
    def set(self, experiment: Experiment) -> None:
        """Shows an experiment."""
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
        if not self._quiet:
            self._on_change()
