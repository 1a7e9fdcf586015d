"""Scope: draws one episode, or two in step, in the browser; the page has all arrays, so scrubbing needs no kernel."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from copy import copy
from itertools import count
from pathlib import Path
from typing import Any

import traitlets

from marlnb.errors import RecordingError, unknown
from marlnb.widgets.core.controls import JavaScriptWidget
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.frames import Frame
from marlnb.widgets.microscope.payload import ORDERS, Data, initial_layers, side_payload

SCRIPTS = ("colours", "canvas", "bars", "heatmap", "film", "traces", "agent_card", "side", "scope")
PAGE = Path(__file__).parent / "page"


class Scope(JavaScriptWidget):
    """What is drawn. All lists have one entry for each side; a side is an episode.

    Attributes:
        sides: see `payload.side_payload`.
        films: frames (bytes) and positions of objects by index of the step.
        attributions: see `attribution.attribution_payload`; None if not there.
        concepts: see `payload.concepts_payload`.
        notes: a line of text below the pictures.
        working: what is being computed, as text.
        explained: the agent whose attribution is drawn onto the pictures.
        layers: that can be shown.
        orders: names and descriptions of the orders of units.
        t: index of the shown step.
        layer: whose units are shown.
        order: of the units.
        agents: that are shown; empty: all.
        picked: the unit that was clicked last: {side, agent, layer, unit, t}.
        bookmarks: of all episodes: {episode, t, note}.
    """

    _esm = "\n".join((PAGE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    _css = (PAGE / "scope.css").read_text(encoding="utf-8")
    sides: traitlets.List[Data] = traitlets.List().tag(sync=True)
    films: traitlets.List[Data] = traitlets.List().tag(sync=True)
    attributions: traitlets.List[Any] = traitlets.List().tag(sync=True)
    concepts: traitlets.List[Any] = traitlets.List().tag(sync=True)
    notes: traitlets.List[str] = traitlets.List().tag(sync=True)
    working = traitlets.Unicode().tag(sync=True)
    layers: traitlets.List[str] = traitlets.List().tag(sync=True)
    orders = traitlets.Dict().tag(sync=True)
    t = traitlets.Int(0).tag(sync=True)
    layer = traitlets.Unicode().tag(sync=True)
    order = traitlets.Unicode("raw").tag(sync=True)
    agents: traitlets.List[str] = traitlets.List().tag(sync=True)
    explained = traitlets.Unicode().tag(sync=True)
    picked = traitlets.Dict().tag(sync=True)
    bookmarks: traitlets.List[Data] = traitlets.List().tag(sync=True)

    def __init__(self, sides: Sequence[Data], **state: Any) -> None:
        self._films_lock = threading.Lock()
        self._page_saves_frames = False
        self._film_numbers = count()
        super().__init__(**self._new_sides(sides), **state)
        self.on_msg(self._receive)

    @with_ui_lock
    def show(self, sides: Sequence[Data], **state: Any) -> None:
        """Shows other episodes; everything about the previous ones is dropped."""
        with self.hold_sync():
            for name, value in {**self._new_sides(sides), **state}.items():
                setattr(self, name, value)

    def add_frames(self, side: int, frames: Sequence[Frame]) -> None:
        """Sends frames without changing the state; `settle` puts them into it."""
        images = {str(frame.index): frame.image for frame in frames if frame.image}
        positions = {str(frame.index): frame.positions for frame in frames if frame.positions is not None}
        with self._films_lock:
            self._films[side]["images"].update(images)
            self._films[side]["positions"].update(positions)
        self.send({"film": side, "at": list(images), "positions": positions}, buffers=list(images.values()))

    def images(self, side: int) -> dict[int, bytes]:
        """The images of a side so far, by index of the step."""
        with self._films_lock:
            return {int(index): image for index, image in self._films[side]["images"].items()}

    @with_ui_lock
    def settle(self) -> None:
        """Puts the frames into the state that is saved with the notebook, unless a page does that itself."""
        if not self._page_saves_frames:
            self.films = self._copy_of_films()

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The state, with the frames that were added since the last `settle`."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        if "films" in state:
            state["films"] = self._copy_of_films()
        return state

    @with_ui_lock
    def put(self, name: str, side: int, value: Any) -> None:
        """Replaces one side's entry of a list."""
        entries = list(getattr(self, name))
        entries[side] = value
        setattr(self, name, entries)

    def _receive(self, _: Any, content: Data, buffers: Any) -> None:
        self._page_saves_frames |= bool(content.get("saves_frames"))

    def _new_sides(self, sides: Sequence[Data]) -> Data:
        """The state of sides of which nothing else is known yet.

        Films are numbered, so that new empty films differ from the previous empty ones, and pages drop their frames.
        """
        n, number = len(sides), next(self._film_numbers)
        with self._films_lock:
            self._films: list[Data] = [{"images": {}, "positions": {}, "number": number} for _ in range(n)]
        empty = {"attributions": [None] * n, "concepts": [[]] * n, "notes": [""] * n}
        return {**empty, "films": self._copy_of_films(), "sides": list(sides)}

    def _copy_of_films(self) -> list[Data]:
        with self._films_lock:
            return [{name: copy(value) for name, value in film.items()} for film in self._films]


def open_scope(view: EpisodeView, title: str, t: int, layer: str | None, order: str, agents: Sequence[str]) -> Scope:
    """The scope of an episode.

    Args:
        t: the first step to show.
        layer: None: the first hidden layer of the actors, if it is recorded.
    Raises:
        RecordingError: there is no such layer, order or agent.
    """
    layers = view.layers
    chosen = layer or next((name for name in layers if name.endswith("hidden_1")), layers[0] if layers else "")
    if layers and chosen not in layers:
        raise RecordingError(unknown("layer", chosen, layers))
    if order not in ORDERS:
        raise RecordingError(unknown("order of units", order, ORDERS))
    for agent in agents:
        view.group_of(agent)
    sides = [side_payload(view, title, initial_layers(view, chosen))]
    return Scope(sides, layers=layers, orders=ORDERS, layer=chosen, order=order, agents=list(agents), t=view.index(t))
