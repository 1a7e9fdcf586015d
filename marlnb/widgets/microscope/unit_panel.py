"""UnitPanel: the unit that was clicked: its exact value, its tuning curve, and where it rises highest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ipywidgets as w

from marlnb.analysis.representations.tuning import tuning
from marlnb.analysis.representations.tuning_result import Tuning
from marlnb.errors import MarlnbError
from marlnb.plots.tuning import tuning_curves
from marlnb.widgets.core.controls import Button, Dropdown
from marlnb.widgets.core.snapshot import png
from marlnb.widgets.core.style import note_html, problem_html
from marlnb.widgets.core.worker import Newest
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.top_episodes import Top, top_episodes

N_TOP = 5


@dataclass(frozen=True)
class Unit:
    """Attributes: site: as `listener/actor/hidden_1`; t: steps since the episode began."""

    site: str
    agent: str
    unit: int
    t: int


class UnitPanel:
    """Attributes: unit: the one that is shown, None before the first click. tuning, top: what was found of it."""

    def __init__(self, go: Callable[[int, int], None]) -> None:
        self.unit: Unit | None = None
        self.tuning: Tuning | None = None
        self.top: list[Top] = []
        self._go = go
        self._view: EpisodeView | None = None
        self._newest = Newest(wait_s=0.05)
        self._kept: dict[tuple[str, str, str, int], Tuning] = {}
        self.by = Dropdown(options=["t"], description="tuned to", layout=w.Layout(width="22em"))
        self.by.observe(lambda _: self._ask(), "value")
        self._line = w.HTML(note_html("click a unit in a heat map"))
        self._curve, self._top, self._problem = w.HTML(), w.HBox(layout=w.Layout(flex_flow="row wrap")), w.HTML()
        self.widget = w.VBox([self._line, self.by, self._problem, self._curve, self._top])
        self.widget.add_class("marlnb-unit")

    def show(self, view: EpisodeView, unit: Unit) -> None:
        """Tells the exact value at once, and the rest when it is there."""
        x = view.units_of(unit.agent, unit.site)
        place = view.place(unit.t)
        self._line.value = note_html(
            f"{unit.agent} {unit.site}, unit {unit.unit}: {x[place, unit.unit]:.6g} at step {view.t[place]}; in this "
            f"episode {x[:, unit.unit].min():.3g} to {x[:, unit.unit].max():.3g}"
        )
        same = self._view is not None and self._view.recording is view.recording and self.unit is not None
        moved_only = same and self.unit is not None and (unit.site, unit.agent, unit.unit) == (
            self.unit.site, self.unit.agent, self.unit.unit
        )  # fmt: skip
        self._view, self.unit = view, unit
        options = self._options(view, unit.agent)
        if tuple(self.by.options) != options:
            chosen = self.by.value if self.by.value in options and len(self.by.options) > 1 else options[0]
            self.by.options, self.by.value = options, chosen
        if not moved_only:
            self._ask()

    def _options(self, view: EpisodeView, agent: str) -> tuple[str, ...]:
        group = view.group_of(agent)
        labels = [label.name for label in view.labels if not label.agents or label.agents == group.agents]
        return (*labels, "action", "t", *group.features[:60])

    def _ask(self) -> None:
        view, unit, by = self._view, self.unit, self.by.value
        if view is None or unit is None:
            return
        self._problem.value = ""
        self._newest.ask(lambda: self._find(view, unit, by), self._show, self._fail)

    def _find(self, view: EpisodeView, unit: Unit, by: str) -> tuple[list[Top], Tuning | MarlnbError, Unit]:
        several = len(view.recording.checkpoints["iteration"].unique()) > 1
        checkpoint = view.checkpoint if several else None
        top = top_episodes(view.recording, unit.site, unit.agent, unit.unit, n=N_TOP, checkpoint=checkpoint)
        key = (str(view.recording.path), f"{unit.site} {unit.agent}", by, view.checkpoint)
        try:
            if key not in self._kept:
                self._kept[key] = tuning(view.recording, site=unit.site, by=by, agent=unit.agent, checkpoint=checkpoint)
            return top, self._kept[key], unit
        except MarlnbError as error:
            return top, error, unit

    def _show(self, found: tuple[list[Top], Tuning | MarlnbError, Unit]) -> None:
        self.top, tuned, unit = found
        if isinstance(tuned, MarlnbError):
            self.tuning, self._curve.value = None, ""
            self._problem.value = problem_html(str(tuned))
        else:
            self.tuning = tuned
            self._curve.value = _curve_html(tuned, unit.unit)
        buttons = [self._button(top) for top in self.top]
        self._top.children = [w.HTML(note_html("highest in")), *buttons]

    def _button(self, top: Top) -> Button:
        button = Button(
            description=f"episode {top.episode}, step {top.t}: {top.value:.3g}", layout=w.Layout(width="auto")
        )
        button.on_click(lambda _: self._go(top.episode, top.t))
        return button

    def _fail(self, error: Exception) -> None:
        self._problem.value = problem_html(f"{type(error).__name__}: {error}")


def _curve_html(tuned: Tuning, unit: int) -> str:
    figure = tuning_curves(tuned, units=[unit]).get_figure(root=True)
    assert figure is not None
    words = f"mean activation of unit {unit} by {tuned.by}"
    told = (
        f"unit {unit} by {tuned.by}: eta² {tuned.strength[unit]:.2f} (shuffled {tuned.shuffled[unit]:.2f}, "
        f"corrected p {tuned.p_value[unit]:.2g})"
    )
    image = f'<img src="data:image/png;base64,{png(figure)}" alt="{words}" style="max-width:100%;width:36em">'
    return image + note_html(told)
