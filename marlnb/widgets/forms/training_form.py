"""TrainingForm: an experiment as pages to fill in: environment, algorithm, device, length, saving."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import ipywidgets as w

from marlnb.errors import MarlnbError
from marlnb.evolution_config import EVOLUTIONS
from marlnb.experiment import Experiment
from marlnb.league_config import LEAGUES
from marlnb.specs import EnvSpec
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.algorithm_panel import AlgorithmPanel
from marlnb.widgets.forms.device_panel import DevicePanel
from marlnb.widgets.forms.environment_panel import EnvironmentPanel
from marlnb.widgets.forms.form import ConfigForm
from marlnb.widgets.forms.optional_part import OptionalPart
from marlnb.widgets.forms.tuned_settings import TunedSettings, changed_parts

LENGTH = ("frames", "target_return", "target_group", "evaluate_every", "evaluation_episodes", "rollout_steps", "seed")
SAVING = ("checkpoint_every", "keep_checkpoints", "loggers")
LEAGUE_HELP = "a league: players learn against each other and against snapshots of themselves"
EVOLUTION_HELP = "a population of training runs, which are selected and mutated"


class TrainingForm:
    """The parts of an experiment, each a panel or a form.

    Attributes:
        environment: a panel.
        algorithm: a panel.
        device: a panel.
        length: a form: how long to train, and how often to evaluate.
        saving: a form: checkpoints and loggers.
        league: how players learn against each other, if they do.
        evolution: how a population is selected and mutated, if there is one.
        tuned: whether options start from tuned settings, and from which.
    """

    def __init__(self, experiment: Experiment, *, on_change: Callable[[], None]) -> None:
        """
        Args:
            on_change: called under UI_LOCK after each change.
        """
        self._on_change = on_change
        self._base = experiment  # supplies the options that no part of the form has
        self._shown = experiment  # the last valid one
        self._is_updating = True
        self.environment = EnvironmentPanel(experiment.env, n_envs=experiment.n_envs)
        self.algorithm = AlgorithmPanel(experiment, None)
        self.device = DevicePanel(experiment)
        self.length = ConfigForm(Experiment, only=LENGTH, on_change=self._changed)
        self.saving = ConfigForm(Experiment, only=SAVING, on_change=self._changed)
        self.league = OptionalPart(LEAGUES, experiment.league, "alphastar", LEAGUE_HELP, on_change=self._changed)
        self.evolution = OptionalPart(
            EVOLUTIONS, experiment.evolution, "tournament", EVOLUTION_HELP, on_change=self._changed
        )
        self.tuned = TunedSettings(on_change=self._restart)
        self.tuned.show(experiment)
        self.environment.on_change(self._environment_changed)
        self.algorithm.on_change(self._changed)
        self.device.on_change(self._changed)
        self._is_updating = False

    @property
    def pages(self) -> dict[str, w.Widget]:
        """The widgets to display, by title."""
        return {
            "Environment": self.environment.widget,
            "Algorithm": self.algorithm.widget,
            "Device": self.device.widget,
            "Length": self.length.box,
            "Population": w.VBox([self.league.box, self.evolution.box]),
            "Saving": self.saving.box,
        }

    @property
    def experiment(self) -> Experiment:
        """The experiment in the form.

        Raises:
            ConfigError: an option is not valid, or the parts are not compatible.
        """
        experiment = self._filled_in
        experiment.check_without_env()
        return experiment

    @property
    def _filled_in(self) -> Experiment:
        """The experiment in the form, before its parts are checked together. Raises ConfigError: an invalid option."""
        return replace(
            self._base,
            env=self.environment.config,
            n_envs=self.environment.n_envs,
            groups=self.environment.groups,
            **self.algorithm.parts,
            device=self.device.device,
            threads=self.device.threads,
            **self.length.values,
            **self.saving.values,
            league=self.league.config,
            evolution=self.evolution.config,
        )

    @with_ui_lock
    def set(self, experiment: Experiment) -> None:
        """Shows an experiment."""
        self._is_updating = True
        try:
            self.environment.set(experiment)
        finally:
            self._is_updating = False
        self.tuned.forget()
        self._set_others(experiment, None)

    def _set_others(self, experiment: Experiment, spec: EnvSpec | None) -> None:
        """Shows everything but the environment, which has `spec`, if that is known."""
        self._is_updating, self._base, self._shown = True, experiment, experiment
        try:
            self.tuned.show(experiment)
            self.environment.options.set(experiment)
            self.algorithm.set(experiment, spec)
            for part in (self.device, self.length, self.saving):
                part.set(experiment)
            self.league.set(experiment.league)
            self.evolution.set(experiment.evolution)
        finally:
            self._is_updating = False
        self._changed()

    def _environment_changed(self) -> None:
        if self._is_updating:
            return
        with suppress(MarlnbError):  # an option may be invalid by now
            experiment = replace(self._base, env=self.environment.config, groups=self.environment.groups)
            if self.environment.spec is not None:
                self.algorithm.set_env(experiment, self.environment.spec)
        self._changed()

    def _changed(self) -> None:
        if self._is_updating:
            return
        with suppress(MarlnbError):  # the form may be incomplete
            experiment = self._filled_in
            if changed_parts(self._shown, experiment, self.algorithm.group_of):
                self._restart()
                return
            self._shown = experiment
        self._on_change()

    def _restart(self) -> None:
        """After a choice of a part or of tuned settings: options that were not set start from theirs."""
        try:
            experiment = self.tuned.recompose(self._shown, self._filled_in, self.algorithm.group_of)
        except MarlnbError:
            self._on_change()  # says what is not valid
        else:
            self._set_others(experiment, self.environment.spec)
