"""EditsPanel: choose an edit, and play the episode again without it and with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import ipywidgets as w
import numpy as np

from marlnb.errors import ConfigError
from marlnb.models.hooks.directions import Clamp, Direction, Steer
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.edits import Ablate, Scale
from marlnb.models.hooks.sites import group_of, part_of
from marlnb.widgets.core.controls import Dropdown, FloatSlider, Text, button_for
from marlnb.widgets.core.style import HTML, Message, code_html
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.panels import WIDE, ComputingPanel

KINDS = {
    "ablate to zero": "zero",
    "ablate to the mean": "mean",
    "clamp to the strength": "clamp",
    "scale by the strength": "scale",
    "steer by the strength": "steer",
}
ALL = "all agents"
UNITS = "these units"


class EditsPanel(ComputingPanel):
    """A form for one edit.

    Attributes:
        view: the episode that is played again; its recording has the sites and units.
        directions: by name, to steer along.
    """

    def __init__(self, view: EpisodeView, play: Callable[[Sequence[Edit]], None], back: Callable[[], None]) -> None:
        self.view, recording = view, view.recording
        self.directions: dict[str, Direction] = {}
        self._play = play
        actors = [site for site in recording.sites if part_of(site) == "actor"] or recording.sites
        self.site = Dropdown(options=actors, description="site", **WIDE)
        self.units = Text(description="units", placeholder="3, 17, 20-25; empty: all", **WIDE)
        self.agent = Dropdown(options=[ALL], description="agent", **WIDE)
        self.kind = Dropdown(options=list(KINDS), description="edit", **WIDE)
        self.along = Dropdown(options=[UNITS], description="along", **WIDE)
        self.strength = FloatSlider(0.0, min=-5.0, max=5.0, step=0.1, description="strength", **WIDE)
        fields = [self.site, self.units, self.agent, self.kind, self.along, self.strength]
        for field in fields:
            field.observe(lambda _: self._changed(), "value")
        tooltip = "play the same seed without and with the edit"
        self.button = button_for(self._clicked, "Play again", "play", tooltip, _dom_classes=["marlnb-play-again"])
        self.back = button_for(back, "Back to the recording", "undo", disabled=True, width="auto")
        self._status, self._code = Message(), HTML()
        buttons = w.HBox([self.button, self.back])
        self.widget = w.VBox([*fields, buttons, self._status, self._code], _dom_classes=["marlnb-edits"])
        self._changed()

    def choose(self, site: str, agent: str, unit: int) -> None:
        """Chooses a unit to edit."""
        if site in self.site.options:
            self.site.value, self.units.value = site, str(unit)
            self.agent.value = agent if agent in self.agent.options else ALL

    def show(self, view: EpisodeView, directions: Mapping[str, Direction]) -> None:
        """Shows another episode, and offers these directions of decoded concepts, by name."""
        self.view, self.directions = view, dict(directions)
        self._changed()

    def edit(self) -> Edit:
        """The edit in the form.

        Raises:
            ConfigError, ShapeError: the units cannot be parsed, or the edit is not possible.
        """
        units, kind = parse_units(self.units.value), KINDS[self.kind.value]
        agents = None if self.agent.value == ALL else (self.agent.value,)
        site, strength = self.site.value, float(self.strength.value)
        if kind == "zero":
            return Ablate(site, units=units, agents=agents)
        if kind == "mean":
            return Ablate(site, units=units, agents=agents, value="mean", source=str(self.view.recording.path))
        if kind == "clamp":
            return Clamp(site, units=units, agents=agents, value=strength)
        if kind == "scale":
            return Scale(site, units=units, agents=agents, factor=strength)
        direction = self.directions.get(self.along.value)
        if direction is not None:
            return Steer(site, agents=agents, direction=direction, strength=strength)
        return Steer(site, units=units, agents=agents, direction=self._common_direction(site, units), strength=strength)

    def _common_direction(self, site: str, units: tuple[int, ...] | None) -> Direction:
        """All of the units; a strength of 1 is a standard deviation of their common part where the agent acts, at all
        steps of the checkpoint that played the episode."""
        recording = self.view.recording
        agents = list(recording[site].labels["agent"])
        agent = agents[0] if self.agent.value == ALL else self.agent.value
        rows = {"agent": agent, "checkpoint": self.view.checkpoint}
        x = recording[site].sel(**rows).to_numpy()
        acting = recording.steps(group_of(site), "acting").sel(**rows).to_numpy().astype(bool)
        x = x[acting] if acting.any() else x
        chosen = x[:, list(units)] if units is not None else x
        vector = np.full(chosen.shape[1], chosen.shape[1] ** -0.5)
        along = chosen @ vector
        return Direction(site, agent, tuple(vector), float(along.mean()), float(along.std()), "these units")

    def _changed(self) -> None:
        site = self.site.value
        agents = [ALL, *self.view.recording[site].labels["agent"]] if site else [ALL]
        if list(self.agent.options) != agents:
            self.agent.options = agents
        kind = KINDS[self.kind.value]
        named = [name for name, direction in self.directions.items() if direction.site == site]
        if list(self.along.options) != [UNITS, *named]:
            self.along.options = [UNITS, *named]
        self.along.layout.display = "" if kind == "steer" else "none"
        self.strength.layout.display = "none" if kind in ("zero", "mean") else ""
        try:
            self._code.value = code_html(edit_code(self.edit()))
            self._status.value = ""
            self.button.disabled = False
        except Exception as error:  # any problem is shown below the form
            self._code.value = ""
            self._status.show_problem(error)
            self.button.disabled = True

    def _clicked(self) -> None:
        self.button.disabled = True
        self._status.show_note("playing without and with the edit")
        self._play([self.edit()])


def parse_units(text: str) -> tuple[int, ...] | None:
    """The numbers in a text like `3, 17, 20-25`, with both ends of a range; None for an empty text.

    Raises:
        ConfigError: the text cannot be parsed.
    """
    units: list[int] = []
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not match:
            raise ConfigError(f"units: expected numbers and ranges, such as 3, 17, 20-25; got {part!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ConfigError(f"units: a range goes from a smaller number to a larger one; got {part!r}")
        units += range(first, last + 1)
    return tuple(dict.fromkeys(units)) or None


def edit_code(edit: Edit) -> str:
    """Code that plays the episode again with the edit, and code that measures the edit over many episodes."""
    fields = {key: value for key, value in edit.to_json().items() if key != "edit" and value is not None}
    defaults = {"seed": 0, "value": "zero"} if edit.name == "ablate" else {}
    site = fields.pop("site")
    arguments = [
        f"{key}=mnb.Direction(**{value!r})" if key == "direction" else f"{key}={value!r}"
        for key, value in fields.items()
        if defaults.get(key) != value
    ]
    call = f"mnb.{type(edit).__name__}({', '.join([repr(site), *arguments])})"
    return f"edit = {call}\nscope.play_again([edit])\nmnb.intervene(run, edit)  # over many episodes, with intervals"
