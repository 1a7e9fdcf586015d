"""UnitPanel: the unit that was clicked: its exact value, its tuning curve, and the episodes in which it peaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import ipywidgets as w
import numpy as np
from markupsafe import Markup

from marlnb.analysis.data.labels import Label
from marlnb.analysis.representations.tuning import tuning
from marlnb.analysis.representations.tuning_result import Tuning
from marlnb.display.formatting import count
from marlnb.display.notebook_html import picture_html
from marlnb.errors import MarlnbError
from marlnb.models.hooks.sites import group_of
from marlnb.plots.tuning import tuning_curves
from marlnb.recording.file.reader import Recording
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.closing import replace_children
from marlnb.widgets.core.controls import Dropdown, button_for
from marlnb.widgets.core.snapshot import png
from marlnb.widgets.core.style import HTML, Message, note_html, row
from marlnb.widgets.microscope.episode_view import EpisodeView

N_TOP_EPISODES = 5
MAX_TUNING_FEATURES = 60


@dataclass(frozen=True)
class Unit:
    """A unit at a step.

    Attributes:
        site: such as `listener/actor/hidden_1`.
        agent: whose unit.
        unit: its index.
        t: steps since the episode began.
    """

    site: str
    agent: str
    unit: int
    t: int


class TopEpisode(NamedTuple):
    """The highest activation of a unit in an episode; `t` in steps since the episode began."""

    episode: int
    t: int
    value: float


Result = tuple[list[TopEpisode], Tuning | MarlnbError, Unit]


class UnitPanel:
    """Shows one unit.

    Attributes:
        unit: None before the first click.
        tuning: of its site; None before it is computed.
        top: the episodes of the microscope's recording in which the unit peaks, highest first; none for a unit of
            another recording, or of an episode that was played again.
    """

    def __init__(self, recording: Recording, go: Callable[[int, int], None]) -> None:
        self.unit: Unit | None = None
        self.tuning: Tuning | None = None
        self.top: list[TopEpisode] = []
        self._recording, self._go = recording, go
        self._view: EpisodeView | None = None
        self._worker = LatestOnly(wait_s=0.05)
        self._cache: dict[tuple[str, str, str, int], Tuning] = {}
        self._labels: dict[str, Label] = {"t": "t"}
        self.label = Dropdown(options=tuple(self._labels), description="tuned to", layout=w.Layout(width="22em"))
        self.label.observe(lambda _: self._request(), "value")
        self._line = Message(note_html("click a unit in a heat map"))
        self._curve, self._top, self._problem = HTML(), row(), Message()
        parts = [self._line, self.label, self._problem, self._curve, self._top]
        self.widget = w.VBox(parts, _dom_classes=["marlnb-unit"])

    def show(self, view: EpisodeView, unit: Unit) -> None:
        """Shows the exact value at once; tuning curve and top episodes follow."""
        x = view.units_of(unit.agent, unit.site)[:, unit.unit]
        index = view.index(unit.t)
        self._line.show_note(
            f"{unit.agent} {unit.site}, unit {unit.unit}: {x[index]:.6g} at step {view.t[index]}; in this episode "
            f"{x.min():.3g} to {x.max():.3g}"
        )
        is_same = (
            self._view is not None
            and self.unit is not None
            and self._view.recording is view.recording
            and self._view.checkpoint_at(self.unit.t) == view.checkpoint_at(unit.t)
            and replace(self.unit, t=unit.t) == unit
        )
        self._view, self.unit = view, unit
        self._labels = tuning_labels(view, unit.agent)
        options = tuple(self._labels)
        if tuple(self.label.options) != options:
            chosen = self.label.value if self.label.value in options and len(self.label.options) > 1 else options[0]
            self.label.options, self.label.value = options, chosen
        if not is_same:
            self._request()

    def _request(self) -> None:
        view, unit, title = self._view, self.unit, self.label.value
        if view is None or unit is None:
            return
        self._problem.value = ""
        label = self._labels[title]
        self._worker.request(lambda: self._compute(view, unit, title, label), self._show, self._fail)

    def _compute(self, view: EpisodeView, unit: Unit, title: str, label: Label) -> Result:
        checkpoint = view.checkpoint_at(unit.t)
        top: list[TopEpisode] = []
        if view.recording is self._recording:  # where the buttons go
            which = (unit.site, unit.agent, unit.unit)
            top = top_episodes(view.recording, *which, n=N_TOP_EPISODES, checkpoint=checkpoint)
        key = (str(view.recording.path), f"{unit.site} {unit.agent}", title, checkpoint)
        try:
            if key not in self._cache:
                of_agent: dict[str, Any] = {"site": unit.site, "agent": unit.agent, "checkpoint": checkpoint}
                self._cache[key] = tuning(view.recording, label=label, **of_agent)
            return top, self._cache[key], unit
        except MarlnbError as error:
            return top, error, unit

    def _show(self, result: Result) -> None:
        self.top, unit_tuning, unit = result
        if isinstance(unit_tuning, MarlnbError):
            self.tuning, self._curve.value = None, ""
            self._problem.show_problem(unit_tuning)
        else:
            self.tuning = unit_tuning
            self._curve.value = _curve_html(unit_tuning, unit.unit)
        buttons = []
        for top in self.top:
            title = f"episode {top.episode}, step {top.t}: {top.value:.3g}"
            buttons.append(button_for(partial(self._go, top.episode, top.t), title, width="auto"))
        replace_children(self._top, [HTML(note_html("highest in")), *buttons] if buttons else [])

    def _fail(self, error: Exception) -> None:
        self._problem.show_problem(f"{type(error).__name__}: {error}")


def tuning_labels(view: EpisodeView, agent: str) -> dict[str, Label]:
    """What an agent's units can be tuned to, by title. An action of several components has an entry for each."""
    group = view.group_of(agent)
    recorded = [label.name for label in view.labels if not label.agents or label.agents == group.agents]
    labels: dict[str, Label] = {name: name for name in recorded}
    components = group.spec.action.component_names
    if len(components) > 1:
        labels.update({f"action {name}": (agent, "action", name) for name in components})
    else:
        labels["action"] = "action"
    labels.update({name: name for name in ("t", *group.features[:MAX_TUNING_FEATURES])})
    return labels


def top_episodes(
    recording: Recording, site: str, agent: str, unit: int, *, n: int = 5, checkpoint: int | None = None
) -> list[TopEpisode]:
    """The `n` episodes in which a unit peaks, the highest first; of equal ones the earlier.

    Only steps at which the agent acts count.

    Args:
        checkpoint: for a recording of several checkpoints, whose units differ: the iteration of one; None: all.
    """
    of_agent: dict[str, Any] = {"agent": agent} if checkpoint is None else {"agent": agent, "checkpoint": checkpoint}
    chosen = recording[site].sel(unit=unit, **of_agent)
    values = chosen.to_numpy().astype(np.float64)
    acting = recording.steps(group_of(site), "acting").sel(**of_agent).to_numpy().astype(bool)
    episode, t = (recording.file[f"steps/{name}"][:][chosen.rows] for name in ("episode", "t"))
    rows = np.flatnonzero(acting & np.isfinite(values))
    order = rows[np.lexsort((t[rows], episode[rows], -values[rows]))]
    _, first = np.unique(episode[order], return_index=True)
    best = order[np.sort(first)[:n]]
    return [TopEpisode(int(episode[row]), int(t[row]), float(values[row])) for row in best]


def _curve_html(tuning: Tuning, unit: int) -> Markup:
    figure = tuning_curves(tuning, units=[unit]).get_figure(root=True)
    assert figure is not None
    description = f"mean activation of unit {unit} by {tuning.label}"
    summary = (
        f"unit {unit} by {tuning.label} in {count(tuning.n_episodes, 'episode')}: eta² {tuning.strength[unit]:.2f} "
        f"(shuffled {tuning.shuffled[unit]:.2f}, corrected p {tuning.p_value[unit]:.2g})"
    )
    return picture_html(png(figure), "png", description, "max-width:100%;width:36em") + note_html(summary)
