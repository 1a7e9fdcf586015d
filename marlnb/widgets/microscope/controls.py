"""The controls around the scope: the episode, the attribution, and the tabs below."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.methods import METHODS as ATTRIBUTION_METHODS
from marlnb.analysis.decoding.result import Decoding
from marlnb.display.formatting import count, format_number
from marlnb.errors import MarlnbError, RecordingError
from marlnb.models.hooks.edit import Edit
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run_folder import RunFolder
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.controls import Dropdown, Tab, button_for
from marlnb.widgets.core.style import HTML, code_html, row, styled
from marlnb.widgets.core.trust_question import TrustQuestion
from marlnb.widgets.microscope.attribution import To, explainable
from marlnb.widgets.microscope.background import Side
from marlnb.widgets.microscope.bookmarks import Bookmark
from marlnb.widgets.microscope.comparison import Comparison, return_changes
from marlnb.widgets.microscope.edits_panel import EditsPanel
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.panels import BookmarksPanel, ComparePanel, ConceptsPanel
from marlnb.widgets.microscope.scope import Scope
from marlnb.widgets.microscope.unit_panel import Unit, UnitPanel

METHODS = [name for name, method in ATTRIBUTION_METHODS.items() if not method.by_layer]
TABS = ("Unit", "Edit", "Compare", "Concepts", "Bookmarks", "As code")


class Controlled(Protocol):
    """What the controls show and change, namely a Microscope, which documents its attributes and methods."""

    recording: Recording
    view: EpisodeView
    sides: list[Side]
    comparison: Comparison
    scope: Scope

    @property
    def t(self) -> int: ...
    def go(self, episode: int | None = None, t: int = 0) -> None: ...
    def alone(self) -> None: ...
    def show(self, sides: list[Side], t: int) -> None: ...
    def show_agents(self, agents: Sequence[str]) -> None: ...
    def attribute(
        self, to: To = ..., method: str = ..., *, component: int = ..., max_numbers: int | None = None
    ) -> None: ...
    def find_decoding(self, label: str, site: str) -> Decoding: ...
    def show_decoding(self, decoding: Decoding) -> None: ...
    def bookmark(self, note: str = "") -> Bookmark: ...
    def remove_bookmark(self, bookmark: Bookmark) -> None: ...
    def as_code(self) -> str: ...


class Controls:
    """Each control calls a method of the microscope. Slow ones run in a thread; errors are shown in their panel."""

    def __init__(self, microscope: Controlled) -> None:
        self.microscope = microscope
        view = microscope.view
        self._is_updating = False
        # one for each panel: its button works again when the request of the panel is answered
        self._editing, self._comparing, self._decoding = (LatestOnly(wait_s=0.0) for _ in range(3))
        self.episode = _dropdown("episode", _episodes(microscope), view.episode, width="26em")
        targets = [(title, target) for target, title in explainable(view).items()]
        self.to = _dropdown("attribute", targets, targets[0][1], width="18em")
        methods = [(name.replace("_", " "), name) for name in METHODS]
        self.method = _dropdown("method", methods, AttributionConfig.method, width="20em")
        tooltip = "takes long; scrubbing still works meanwhile"
        self.anyway = button_for(lambda: self.attribute(sys.maxsize), "Attribute anyway", tooltip=tooltip, width="auto")
        self.offer_more(False)
        self.unit = UnitPanel(microscope.recording, microscope.go)
        self.edits = EditsPanel(view, self._play_again, microscope.alone)
        comparison = microscope.comparison
        self.compare = ComparePanel(
            view.agents,
            [checkpoint.iteration for checkpoint in getattr(comparison.source, "checkpoints", [])],
            show_agents=microscope.show_agents,
            by_checkpoint=lambda iteration: self._compare(lambda view: comparison.checkpoint(view, iteration)),
            by_recording=lambda path: self._compare(lambda view: comparison.other(view, path)),
            back=microscope.alone,
        )
        self.concepts = ConceptsPanel(view.sites, microscope.recording.labels, self._decode)
        self.bookmarks = BookmarksPanel(microscope.bookmark, microscope.go, microscope.remove_bookmark)
        self.code = HTML()
        panels = [panel.widget for panel in (self.unit, self.edits, self.compare, self.concepts, self.bookmarks)]
        self.tabs = Tab([*panels, self.code], titles=TABS, selected_index=0)
        top = row(self.episode, self.to, self.method, self.anyway)
        self.trust_question = TrustQuestion(self._trust)
        self._ask_for_trust()
        question = self.trust_question.widget  # hidden if there is nothing to ask
        self.widget = styled(question, top, microscope.scope, self.tabs, name="marlnb-microscope")
        self.widget.layout.max_width = "110em"
        self._observe()
        self.update()

    def update(self) -> None:
        """Shows the state of the microscope."""
        self._is_updating = True
        try:
            self.episode.value = self.microscope.view.episode
            self.edits.back.disabled = len(self.microscope.sides) < 2
            self.code.value = code_html(self.microscope.as_code())
        finally:
            self._is_updating = False

    def attribute(self, max_numbers: int | None = None) -> None:
        """Attributes what is chosen."""
        to, component = self.to.value
        self.microscope.attribute(to, self.method.value, component=component, max_numbers=max_numbers)

    def offer_more(self, is_too_large: bool) -> None:
        """Shows or hides the button that attributes what was too large."""
        self.anyway.layout.display = "" if is_too_large else "none"

    def show_unit(self, view: EpisodeView, unit: Unit) -> None:
        self.tabs.selected_index = TABS.index("Unit") if self.tabs.selected_index is None else self.tabs.selected_index
        self.unit.show(view, unit)
        self.edits.choose(unit.site, unit.agent, unit.unit)

    def offer_directions(self, decodings: Sequence[Decoding]) -> None:
        """Offers the directions of decoded concepts, and no others, to steer along."""
        directions = {}
        for decoding in decodings:
            for decoder in decoding.decoders:
                if decoder.t is not None:
                    continue
                for value in decoder.classes if len(decoder.classes) > 2 else (None,):
                    try:
                        direction = decoder.direction(value)
                    except MarlnbError:  # a class whose pattern is zero has no direction
                        continue
                    directions[f"{direction.concept} ({decoder.agent})"] = direction
        self.edits.show(self.microscope.view, directions)

    def _ask_for_trust(self) -> None:
        source = self.microscope.comparison.source
        if isinstance(source, RunFolder):
            self.trust_question.show(source.experiment)

    def _trust(self) -> None:
        """Allows the code of the recorded run, and loads the pictures and attributions that need it."""
        source = self.microscope.comparison.source
        assert isinstance(source, RunFolder)
        source.trust()
        self.microscope.show(self.microscope.sides, self.microscope.t)

    def _observe(self) -> None:
        microscope = self.microscope
        self.episode.observe(lambda change: self._go(change["new"]), "value")
        for control in (self.to, self.method):
            control.observe(lambda _: self.attribute(), "value")
        microscope.scope.observe(lambda _: self.update(), ["t", "layer", "order", "agents"])

    def _go(self, episode: int) -> None:
        if not self._is_updating:
            self.microscope.go(episode)

    def _play_again(self, edits: Sequence[Edit]) -> None:
        def show(sides: list[Side]) -> None:
            self._show_sides(view, sides)
            changes = [f"{agent} {format_number(value, signed=True)}" for agent, value in return_changes(sides).items()]
            effect = f"return with the edit minus without: {', '.join(changes)}"
            self.edits.show_status(f"{effect} (one episode; for many use mnb.intervene)")

        view = self.microscope.view
        self._run(self._editing, lambda: self.microscope.comparison.edited(view, edits), show, self.edits.show_problem)

    def _compare(self, find: Callable[[EpisodeView], list[Side]]) -> None:
        def show(sides: list[Side]) -> None:
            self._show_sides(view, sides)
            self.compare.status.show_note("side by side")

        view = self.microscope.view
        self.compare.status.show_note("opening")
        self._run(self._comparing, lambda: find(view), show, self.compare.status.show_problem)

    def _show_sides(self, view: EpisodeView, sides: list[Side]) -> None:
        if view is not self.microscope.view:
            raise RecordingError("another episode was chosen meanwhile")
        self.microscope.show(sides, self.microscope.t)

    def _decode(self, label: str, site: str) -> None:
        def show(decoding: Decoding) -> None:
            self.microscope.show_decoding(decoding)
            self.concepts.show_status(decoding.verdict)

        find = partial(self.microscope.find_decoding, label, site)
        self._run(self._decoding, find, show, self.concepts.show_problem)

    def _run(
        self,
        worker: LatestOnly,
        run: Callable[[], Any],
        show: Callable[[Any], None],
        show_problem: Callable[[str], None],
    ) -> None:
        """Calls `run` in a thread, then `show` with its result; errors of both are shown with `show_problem`."""

        def fail(error: Exception) -> None:
            show_problem(str(error) if isinstance(error, MarlnbError) else f"{type(error).__name__}: {error}")

        worker.request(run, show, fail)


def _dropdown(name: str, options: Sequence[tuple[str, Any]], value: Any, *, width: str) -> Dropdown:
    return Dropdown(options=options, value=value, description=name, layout={"width": width})


def _episodes(microscope: Controlled) -> list[tuple[str, int]]:
    """A title and the number of each episode."""
    recording = microscope.recording
    options = []
    for number, episode in recording.episodes.iterrows():
        returns = ", ".join(format_number(episode[agent], 3) for agent in recording.agents[:4])
        more = ", …" if len(recording.agents) > 4 else ""
        options.append((f"{number}: {count(int(episode['length']), 'step')}, returns {returns}{more}", int(number)))
    return options
