"""EnvironmentPanel: choose an environment and its options, and see its groups, spaces and pictures."""

from __future__ import annotations

import base64
import re
from functools import partial

from markupsafe import Markup

from marlnb.composition.overrides import part_overrides
from marlnb.config import ENVIRONMENTS, EnvConfig
from marlnb.display.notebook_html import picture_html
from marlnb.display.spec_text import GROUP_HEADER, episode_text, group_rows
from marlnb.envs.regroup import Groups
from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment
from marlnb.specs import EnvSpec
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.controls import button_for
from marlnb.widgets.core.panel import Panel
from marlnb.widgets.core.style import HTML, Message, note_html, styled, table_html
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.env_preview import EnvPreview, play_random_episode, preview_env
from marlnb.widgets.forms.field import OptionField
from marlnb.widgets.forms.form import ConfigForm
from marlnb.widgets.forms.part_form import PartForm

ENV_OPTIONS = ("n_envs", "groups")


class EnvironmentPanel(Panel):
    """The environment of an experiment. It counts as changed when another one, or one with other options, was built.

    Attributes:
        widget: what a notebook displays.
        spec: groups and spaces of the chosen environment; None before it was built and if it cannot be built.
    """

    def __init__(self, env: EnvConfig | str = "mpe/simple_spread", *, n_envs: int = 32) -> None:
        self.spec: EnvSpec | None = None
        self._building, self._playing = LatestOnly(), LatestOnly(wait_s=0.0)
        self.part = PartForm(ENVIRONMENTS, env, has_search=True, on_change=self._build)
        self.options = ConfigForm(Experiment, only=ENV_OPTIONS, on_change=self._build)
        self.options.set({"n_envs": n_envs})
        self._status, self._table, self._picture, self._returns = Message(), HTML(), HTML(), Message()
        play = button_for(self.play, "Random episode", "random", "play one episode of random actions")
        parts = [self.part.box, self.options.box, self._status, self._table, self._picture, play, self._returns]
        self.widget = styled(*parts, name="marlnb-environment")
        self._build()

    @property
    def config(self) -> EnvConfig:
        """Raises ConfigError: an option is not valid."""
        config: EnvConfig = self.part.config
        return config

    @property
    def n_envs(self) -> int:
        return int(self.options.fields["n_envs"].value)

    @property
    def _fields(self) -> dict[str, OptionField]:
        return {**self.part.form.fields, **self.options.fields}

    @property
    def groups(self) -> Groups:
        groups: Groups = self.options.fields["groups"].value
        return groups

    @with_ui_lock
    def set(self, experiment: Experiment) -> None:
        """Shows the environment of an experiment."""
        self.part.set(experiment.env)
        self.options.set(experiment)
        self._build()

    @with_ui_lock
    def play(self) -> None:
        """Shows one episode of random actions as an animation."""
        try:
            config, groups = self.config, self.groups
        except MarlnbError as error:
            self._returns.show_problem(error)
            return
        self._returns.show_note("playing")
        episode = partial(play_random_episode, config, groups)
        self._playing.request(episode, self._show_episode, self._returns.show_problem)

    def _build(self) -> None:
        self.spec = None
        try:
            config, groups = self.config, self.groups
        except MarlnbError as error:
            self._status.show_problem(error)
            self._notify()
            return
        for field in self._fields.values():
            if field.problem:  # of the last building: each value is valid
                field.set_problem("")
        self._status.show_note("building one env")
        self._building.request(lambda: preview_env(config, groups), self._show, self._build_failed)

    def _show(self, preview: EnvPreview) -> None:
        self.spec = spec = preview.spec
        self._status.show_note(f"{spec.name}: {episode_text(spec)}")
        self._table.value = table_html(GROUP_HEADER, group_rows(spec))
        picture = _picture_html(preview.picture, "png", f"{spec.name} at its start")
        self._picture.value = picture if preview.picture else note_html(preview.no_picture)
        self._returns.value = ""
        self._notify()

    def _build_failed(self, error: Exception) -> None:
        """Shows the error at the field that it names, else above the fields."""
        text = str(error) if isinstance(error, MarlnbError) else f"{type(error).__name__}: {error}"
        for name, field in self._fields.items():
            if re.search(rf"(^|[\s.']){re.escape(name)}([\s=:'\[]|$)", text):
                field.set_problem(text)
                self._status.show_problem(f"{self.part.name} cannot be built: see {name}")
                break
        else:
            self._status.show_problem(f"{self.part.name} cannot be built: {text}")
        self._table.value = self._picture.value = ""
        self._notify()

    def as_overrides(self) -> list[str]:
        """The overrides that choose this environment, as `Experiment.compose` takes them.

        Raises:
            ConfigError: an option is not valid.
        """
        return [*part_overrides("env", self.config), *self.options.as_overrides()]

    def _show_episode(self, episode: tuple[bytes, dict[str, float]]) -> None:
        animation, returns = episode
        name = self.spec.name if self.spec else self.part.name
        if animation:
            self._picture.value = _picture_html(animation, "gif", f"{name}: one episode of random actions")
        text = ", ".join(f"{agent} {value:.2f}" for agent, value in returns.items())
        self._returns.show_note(f"returns of random actions: {text}")


def _picture_html(picture: bytes, kind: str, description: str) -> Markup:
    return picture_html(base64.b64encode(picture).decode(), kind, description)
