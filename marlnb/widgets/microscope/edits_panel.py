"""EditsPanel: an edit is chosen, and the episode played again without it and with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import ipywidgets as w
import numpy as np

from marlnb.errors import ConfigError
from marlnb.models.hooks.directions import Direction
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.edits import Ablate, Clamp, Scale
from marlnb.models.hooks.edits_directions import Steer
from marlnb.recording.file.reader import Recording
from marlnb.widgets.core.controls import Button, Dropdown, InTurn, Text
from marlnb.widgets.core.style import code_html, note_html, problem_html

KINDS = {
    "ablate to zero": "zero",
    "ablate to the mean": "mean",
    "clamp to the dose": "clamp",
    "scale by the dose": "scale",
    "steer by the dose": "steer",
}
ALL = "all agents"
TOGETHER = "these units together"


class Dose(InTurn, w.FloatSlider):
    pass


class EditsPanel:
    """Attributes: played: what "play again" is told to do, with the edits; directions: by name, to steer along."""

    def __init__(self, recording: Recording, play: Callable[[Sequence[Edit]], None]) -> None:
        self.recording = recording
        self.directions: dict[str, Direction] = {}
        self._play = play
        style = {"description_width": "6em"}
        actors = [site for site in recording.sites if "/actor/" in site] or recording.sites
        self.site = Dropdown(options=actors, description="site", layout=_wide(), style=style)
        self.units = Text(description="units", placeholder="3, 17, 20-25; nothing: all", layout=_wide(), style=style)
        self.agent = Dropdown(options=[ALL], description="agent", layout=_wide(), style=style)
        self.kind = Dropdown(options=list(KINDS), description="edit", layout=_wide(), style=style)
        self.along = Dropdown(options=[TOGETHER], description="along", layout=_wide(), style=style)
        self.dose = Dose(0.0, min=-5.0, max=5.0, step=0.1, description="dose", layout=_wide(), style=style)
        self.button = Button(description="Play again", icon="play", tooltip="the same seed, without and with the edit")
        self.button.add_class("marlnb-play-again")
        self.back = Button(
            description="Back to the recording", icon="undo", disabled=True, layout=w.Layout(width="auto")
        )
        self._status, self._code = w.HTML(), w.HTML()
        self.button.on_click(lambda _: self._clicked())
        for field in (self.site, self.units, self.agent, self.kind, self.along, self.dose):
            field.observe(lambda _: self._changed(), "value")
        fields = [self.site, self.units, self.agent, self.kind, self.along, self.dose]
        buttons = w.HBox([self.button, self.back])
        self.widget = w.VBox([*fields, buttons, self._status, self._code])
        self.widget.add_class("marlnb-edits")
        self._changed()

    def choose(self, site: str, agent: str, unit: int) -> None:
        """The unit that was clicked, as the one to edit."""
        if site in self.site.options:
            self.site.value, self.units.value = site, str(unit)
            self.agent.value = agent if agent in self.agent.options else ALL

    def offer(self, directions: Mapping[str, Direction]) -> None:
        """Directions of decoded concepts, by name."""
        self.directions |= dict(directions)
        self._changed()

    def edit(self) -> Edit:
        """What the fields say.

        Raises:
            ConfigError, ShapeError: units that cannot be read, or an edit that cannot be made.
        """
        units, kind = parse_units(self.units.value), KINDS[self.kind.value]
        agents = None if self.agent.value == ALL else (self.agent.value,)
        site, dose = self.site.value, float(self.dose.value)
        if kind == "zero":
            return Ablate(site, units=units, agents=agents)
        if kind == "mean":
            return Ablate(site, units=units, agents=agents, value="mean", source=str(self.recording.path))
        if kind == "clamp":
            return Clamp(site, units=units, agents=agents, value=dose)
        if kind == "scale":
            return Scale(site, units=units, agents=agents, factor=dose)
        direction = self.directions.get(self.along.value)
        if direction is not None:
            return Steer(site, agents=agents, direction=direction, dose=dose)
        return Steer(site, units=units, agents=agents, direction=self._together(site, units), dose=dose)

    def tell(self, text: str) -> None:
        self._status.value = note_html(text)
        self.button.disabled = False

    def complain(self, text: str) -> None:
        self._status.value = problem_html(text)
        self.button.disabled = False

    def _together(self, site: str, units: tuple[int, ...] | None) -> Direction:
        """All of the units at once; a dose of 1 is a standard deviation of their common part in the recording."""
        bearers = list(self.recording[site].labels["agent"])
        agent = bearers[0] if self.agent.value == ALL else self.agent.value
        x = self.recording[site].sel(agent=agent).to_numpy()
        chosen = x[:, list(units)] if units is not None else x
        vector = np.full(chosen.shape[1], chosen.shape[1] ** -0.5)
        along = chosen @ vector
        return Direction(site, agent, tuple(vector), float(along.mean()), float(along.std()), "these units")

    def _changed(self) -> None:
        site = self.site.value
        bearers = [ALL, *self.recording[site].labels["agent"]] if site else [ALL]
        if list(self.agent.options) != bearers:
            self.agent.options = bearers
        kind = KINDS[self.kind.value]
        named = [name for name, direction in self.directions.items() if direction.site == site]
        if list(self.along.options) != [TOGETHER, *named]:
            self.along.options = [TOGETHER, *named]
        self.along.layout.display = "" if kind == "steer" else "none"
        self.dose.layout.display = "none" if kind in ("zero", "mean") else ""
        try:
            self._code.value = code_html(edit_code(self.edit()))
            self._status.value = ""
            self.button.disabled = False
        except Exception as error:  # whatever is wrong with it, said at the field
            self._code.value = ""
            self._status.value = problem_html(str(error))
            self.button.disabled = True

    def _clicked(self) -> None:
        self.button.disabled = True
        self._status.value = note_html("playing, without and with the edit")
        self._play([self.edit()])


def _wide() -> w.Layout:
    """One each: some fields are hidden by theirs."""
    return w.Layout(width="26em")


def parse_units(text: str) -> tuple[int, ...] | None:
    """`3, 17, 20-25` as numbers, both ends of a span included; None for nothing.

    Raises:
        ConfigError: it is something else.
    """
    found: list[int] = []
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        matched = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not matched:
            raise ConfigError(f"units are numbers and spans, as 3, 17, 20-25; got {part!r}")
        first, last = int(matched[1]), int(matched[2] or matched[1])
        if last < first:
            raise ConfigError(f"a span goes from a number to a larger one; got {part!r}")
        found += range(first, last + 1)
    return tuple(dict.fromkeys(found)) or None


def edit_code(edit: Edit) -> str:
    """The line that plays it again, and the one that measures it over many episodes."""
    fields = {key: value for key, value in edit.to_json().items() if key != "edit" and value is not None}
    defaults = {"seed": 0, "value": "zero"} if edit.name == "ablate" else {}
    site = fields.pop("site")
    told = [repr(site)]
    for key, value in fields.items():
        if defaults.get(key) == value:
            continue
        told.append(f"{key}=mnb.Direction(**{value!r})" if key == "direction" else f"{key}={value!r}")
    made = f"mnb.{type(edit).__name__}({', '.join(told)})"
    return f"edit = {made}\nscope.play_again([edit])\nmnb.intervene(run, edit)  # over many episodes, with intervals"
