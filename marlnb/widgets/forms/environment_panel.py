"""EnvironmentPanel: an environment is searched for, its options set, and what agents will find in it shown."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import ipywidgets as w

from marlnb.config import ENVIRONMENTS, EnvConfig
from marlnb.envs.regroup import Groups
from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment
from marlnb.overrides import part_overrides
from marlnb.specs import EnvSpec
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.controls import Button
from marlnb.widgets.core.style import note_html, problem_html, styled, table_html
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.env_preview import EnvPreview, describe_spec, look_at, play_random_episode
from marlnb.widgets.forms.form import ConfigForm
from marlnb.widgets.forms.part_form import PartForm

COPIES = ("n_envs", "groups")
HEADER = ["group", "agents", "each observes", "each acts by"]


class EnvironmentPanel:
    """The environment of an experiment.

    Attributes:
        widget: what a notebook displays.
        spec: groups and spaces of the environment as it stands; None until it was built, or where it cannot be.
    """

    def __init__(self, env: EnvConfig | str = "mpe/simple_spread", *, n_envs: int = 32) -> None:
        self.spec: EnvSpec | None = None
        self._listeners: list[Callable[[], None]] = []
        self._looking, self._playing = LatestOnly(), LatestOnly(wait_s=0.0)
        self.part = PartForm(ENVIRONMENTS, env, searched=True, on_change=self._look)
        self.copies = ConfigForm(Experiment, only=COPIES, on_change=self._look)
        self.copies.set({"n_envs": n_envs})
        self._status, self._table, self._picture, self._returns = w.HTML(), w.HTML(), w.HTML(), w.HTML()
        self._roll = Button(description="Random rollout", icon="random", tooltip="one episode of random actions")
        self._roll.on_click(lambda _: self.play())
        parts = [self.part.box, self.copies.box, self._status, self._table, self._picture, self._roll, self._returns]
        self.widget = styled(*parts, name="marlnb-environment")
        self._look()

    @property
    def config(self) -> EnvConfig:
        """Raises ConfigError where an option cannot be used."""
        found: EnvConfig = self.part.config
        return found

    @property
    def n_envs(self) -> int:
        return int(self.copies.fields["n_envs"].value)

    @property
    def groups(self) -> Groups:
        found: Groups = self.copies.fields["groups"].value
        return found

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when another environment, or another one of its options, has been looked at."""
        self._listeners.append(listener)

    @with_ui_lock
    def set(self, experiment: Experiment) -> None:
        """Shows the environment of an experiment."""
        self.part.set(experiment.env)
        self.copies.set(experiment)
        self._look()

    @with_ui_lock
    def play(self) -> None:
        """Shows one episode of random actions as a moving picture."""
        try:
            config, groups = self.config, self.groups
        except MarlnbError as error:
            self._returns.value = problem_html(str(error))
            return
        self._returns.value = note_html("playing")
        self._playing.ask(lambda: play_random_episode(config, groups), self._show_rollout, self._show_no_rollout)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return self.widget._repr_mimebundle_(**options)  # type: ignore[no-any-return]

    def _look(self) -> None:
        self.spec = None
        try:
            config, groups = self.config, self.groups
        except MarlnbError as error:
            self._status.value = problem_html(str(error))
            self._tell()
            return
        self._status.value = note_html("building one copy")
        self._looking.ask(lambda: look_at(config, groups), self._show, self._fail)

    def _show(self, look: EnvPreview) -> None:
        self.spec = look.spec
        limit = (
            f"episodes of at most {look.spec.max_steps} steps" if look.spec.max_steps else "episodes without a limit"
        )
        turns = "all agents act at once" if look.spec.simultaneous else "agents wait for their turns"
        state = f", a global state of {look.spec.state_shape}" if look.spec.state_shape else ""
        self._status.value = note_html(f"{look.spec.name}: {limit}, {turns}{state}")
        self._table.value = table_html(HEADER, describe_spec(look.spec))
        self._picture.value = (
            picture_html(look.picture, "png", f"{look.spec.name} at its start")
            if look.picture
            else note_html(look.no_picture)
        )
        self._returns.value = ""
        self._tell()

    def _fail(self, error: Exception) -> None:
        """Shows an error at the field that it names, else above the fields."""
        text = str(error) if isinstance(error, MarlnbError) else f"{type(error).__name__}: {error}"
        for name, field in {**self.part.form.fields, **self.copies.fields}.items():
            if re.search(rf"(^|[\s.']){re.escape(name)}([\s=:'\[]|$)", text):
                field.complain(text)
                self._status.value = problem_html(f"{self.part.name} cannot be built: see {name}")
                break
        else:
            self._status.value = problem_html(f"{self.part.name} cannot be built: {text}")
        self._table.value = self._picture.value = ""
        self._tell()

    def as_overrides(self) -> list[str]:
        """The words that choose it, as `Experiment.compose` takes them.

        Raises:
            ConfigError: an option cannot be used.
        """
        return [*part_overrides("env", self.config), *self.copies.as_overrides()]

    def _show_rollout(self, found: tuple[bytes, dict[str, float]]) -> None:
        moving, returns = found
        name = self.spec.name if self.spec else self.part.name
        if moving:
            self._picture.value = picture_html(moving, "gif", f"{name}: one episode of random actions")
        told = ", ".join(f"{agent} {value:.2f}" for agent, value in returns.items())
        self._returns.value = note_html(f"random actions, returns: {told}")

    def _show_no_rollout(self, error: Exception) -> None:
        self._returns.value = problem_html(str(error))

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def picture_html(data: bytes, kind: str, words: str) -> str:
    """A picture within the page itself, described for who cannot see it."""
    encoded = base64.b64encode(data).decode()
    return f'<img src="data:image/{kind};base64,{encoded}" alt="{words}" style="max-width:100%">'
