"""What stands around the scope: which episode, what is attributed, and the panels below it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

import ipywidgets as w

from marlnb.analysis.attribution.methods import Method
from marlnb.analysis.decoding.result import Decoding
from marlnb.errors import MarlnbError, RecordingError
from marlnb.models.hooks.edit import Edit
from marlnb.widgets.core.controls import Button, Dropdown, Tab
from marlnb.widgets.core.style import code_html, styled
from marlnb.widgets.core.worker import Newest
from marlnb.widgets.microscope.answers import Shown
from marlnb.widgets.microscope.beside import changes
from marlnb.widgets.microscope.edits_panel import EditsPanel
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.tabs import BookmarksPanel, ComparePanel, ConceptsPanel
from marlnb.widgets.microscope.unit_panel import Unit, UnitPanel

if TYPE_CHECKING:
    from marlnb.widgets.microscope.microscope import Microscope

METHODS = [one for one in get_args(Method) if one != "conductance"]
TABS = ("Unit", "Edit", "Compare", "Concepts", "Bookmarks", "As code")


class Controls:
    """Each control calls a method of the microscope; what takes time does so in a thread, its errors at the panel."""

    def __init__(self, microscope: Microscope) -> None:
        self.microscope = microscope
        view = microscope.view
        self._following = False
        self._working = Newest(wait_s=0.0)
        self.episode = Dropdown(
            options=_episodes(microscope), value=view.episode, description="episode", layout=w.Layout(width="26em")
        )
        self.to = Dropdown(
            options=[("what was done", "action"), ("the critic's value", "value")], value="action",
            description="explain", layout=w.Layout(width="18em"),
        )  # fmt: skip
        self.method = Dropdown(
            options=[(name.replace("_", " "), name) for name in METHODS], value="integrated_gradients",
            description="by", layout=w.Layout(width="20em"),
        )  # fmt: skip
        self.anyway = Button(description="Explain anyway", layout=w.Layout(width="auto", display="none"))
        self.anyway.tooltip = "takes long; scrubbing goes on meanwhile"
        self.anyway.on_click(lambda _: microscope.attribute(self.to.value, self.method.value, most=sys.maxsize))
        self.unit = UnitPanel(microscope.go)
        self.edits = EditsPanel(microscope.recording, self._play_again)
        self.compare = ComparePanel(
            view.agents,
            _checkpoints(microscope),
            show_agents=microscope.show_agents,
            by_checkpoint=lambda one: self._compare(lambda view: microscope.beside.checkpoint(view, one)),
            by_recording=lambda path: self._compare(lambda view: microscope.beside.other(view, path, None, None, None)),
            back=microscope.alone,
        )
        self.concepts = ConceptsPanel(view.sites, microscope.recording.labels, self._decode)
        self.bookmarks = BookmarksPanel(microscope.bookmark, microscope.go, microscope.forget)
        self.code = w.HTML()
        self.widget = self._laid_out()
        self._observe()
        self.follow()

    def follow(self) -> None:
        """Shows what the microscope shows now."""
        self._following = True
        try:
            self.episode.value = self.microscope.view.episode
            self.edits.back.disabled = len(self.microscope.sides) < 2
            self.code.value = code_html(self.microscope.as_code())
        finally:
            self._following = False

    def offer_more(self, too_large: bool) -> None:
        """Whether something was not explained for its size alone, and can be by a click."""
        self.anyway.layout.display = "" if too_large else "none"

    def show_unit(self, view: EpisodeView, unit: Unit) -> None:
        self.tabs.selected_index = TABS.index("Unit") if self.tabs.selected_index is None else self.tabs.selected_index
        self.unit.show(view, unit)
        self.edits.choose(unit.site, unit.agent, unit.unit)

    def offer_directions(self, decodings: Sequence[Decoding]) -> None:
        """What was decoded can be steered along."""
        for decoding in decodings:
            for reading in decoding.readings:
                for value in (reading.classes if len(reading.classes) > 2 else (None,)) if reading.t is None else ():
                    try:
                        direction = reading.direction(value)
                    except MarlnbError:  # a class whose pattern is zero has none
                        continue
                    self.edits.offer({f"{direction.concept} ({reading.agent})": direction})

    def _laid_out(self) -> w.VBox:
        self.tabs = Tab(
            [panel.widget for panel in (self.unit, self.edits, self.compare, self.concepts, self.bookmarks)]
            + [self.code]
        )
        for place, title in enumerate(TABS):
            self.tabs.set_title(place, title)
        self.tabs.selected_index = 0
        top = w.HBox([self.episode, self.to, self.method, self.anyway], layout=w.Layout(flex_flow="row wrap"))
        box = styled(top, self.microscope.scope, self.tabs)
        box.add_class("marlnb-microscope")
        box.layout.max_width = "110em"
        return box

    def _observe(self) -> None:
        microscope = self.microscope
        self.episode.observe(lambda change: self._go(change["new"]), "value")
        for one in (self.to, self.method):
            one.observe(lambda _: microscope.attribute(self.to.value, self.method.value), "value")
        microscope.scope.observe(lambda _: self.follow(), ["t", "layer", "order", "agents"])
        self.edits.back.on_click(lambda _: microscope.alone())

    def _go(self, episode: int) -> None:
        if not self._following:
            self.microscope.go(episode)

    def _play_again(self, edits: Sequence[Edit]) -> None:
        def told(sides: list[Shown]) -> None:
            self._put_beside(view, sides)
            text = ", ".join(f"{agent} {value:+.4g}" for agent, value in changes(sides).items())
            self.edits.tell(f"return with the edit minus without: {text} (one episode; many: mnb.intervene)")

        view = self.microscope.view
        self._work(lambda: self.microscope.beside.edited(view, edits), told, self.edits.complain)

    def _compare(self, find: Callable[[EpisodeView], list[Shown]]) -> None:
        def told(sides: list[Shown]) -> None:
            self._put_beside(view, sides)
            self.compare.tell("side by side")

        view = self.microscope.view
        self.compare.tell("opening")
        self._work(lambda: find(view), told, self.compare.complain)

    def _put_beside(self, view: EpisodeView, sides: list[Shown]) -> None:
        if view is not self.microscope.view:
            raise RecordingError("another episode was chosen meanwhile")
        self.microscope.show(sides, self.microscope.t)

    def _decode(self, label: str, site: str) -> None:
        def told(found: Decoding) -> None:
            self.microscope.show_decoding(found)
            self.concepts.tell(repr(found))

        self._work(lambda: self.microscope.find_decoding(label, site), told, self.concepts.complain)

    def _work(self, work: Callable[[], Any], told: Callable[[Any], None], complain: Callable[[str], None]) -> None:
        def fail(error: Exception) -> None:
            complain(str(error) if isinstance(error, MarlnbError) else f"{type(error).__name__}: {error}")

        def answer(found: Any) -> None:
            try:
                told(found)
            except MarlnbError as error:
                fail(error)

        self._working.ask(work, answer, fail)


def _episodes(microscope: Microscope) -> list[tuple[str, int]]:
    recording = microscope.recording
    table = recording.episodes
    told = []
    for number, row in table.iterrows():
        returns = ", ".join(f"{row[agent]:.3g}" for agent in recording.agents[:4])
        more = ", …" if len(recording.agents) > 4 else ""
        told.append((f"{number}: {int(row['length'])} steps, returns {returns}{more}", int(number)))
    return told


def _checkpoints(microscope: Microscope) -> list[int]:
    """Those of the run; none of agents from elsewhere."""
    run = microscope.beside.subject
    return [one.iteration for one in getattr(run, "checkpoints", [])]
