"""Scope: one episode, or two in step, drawn in the browser from arrays that are there; the kernel is not asked."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import traitlets

from marlnb.widgets.core.controls import Drawn
from marlnb.widgets.core.ui_lock import in_turn
from marlnb.widgets.microscope.pictures import Picture
from marlnb.widgets.microscope.sides import Data

SCRIPTS = ("colours", "canvas", "bars", "heatmap", "film", "traces", "agent_card", "side", "scope")
FOLDER = Path(__file__).parent


class Scope(Drawn):
    """What is drawn. All lists have an entry a side; a side is an episode.

    Attributes:
        sides: see `sides.side_of`. films: pictures (bytes) by place, and where objects are in them.
        attributions, concepts: see `sides`; None while they are not there. notes: a line of text a side.
        working: what takes long just now, in words. explained: the agent whose attribution is drawn on the pictures.
        t: the place of the playhead among the steps. layer, order, agents: what is shown of them.
        picked: what was last clicked: {side, agent, layer, unit, t}.
        bookmarks: of all episodes: {episode, t, note}.
    """

    _esm = "\n".join((FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    _css = FOLDER / "scope.css"
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

    def __init__(self, **state: Any) -> None:
        self._guard = threading.Lock()
        self._kept_by_page = False  # some page puts pictures into the state by itself
        self._shown = count()
        self._films: list[Data] = self._blank(len(state["sides"]))
        super().__init__(
            films=self._snapshot(),
            attributions=[None for _ in state["sides"]],
            concepts=[[] for _ in state["sides"]],
            notes=["" for _ in state["sides"]],
            **state,
        )
        self.on_msg(self._heard)

    @in_turn
    def show(self, sides: Sequence[Data], **state: Any) -> None:
        """Other episodes: everything that was known of the last ones is forgotten."""
        with self._guard:
            self._films = self._blank(len(sides))
        blank = {"films": self._snapshot(), "attributions": [None] * len(sides), "concepts": [[]] * len(sides)}
        with self.hold_sync():
            for name, value in {**blank, "notes": [""] * len(sides), "sides": list(sides), **state}.items():
                setattr(self, name, value)

    def add_pictures(self, side: int, pictures: Sequence[Picture]) -> None:
        """Sends pictures by themselves; `settle` puts them into the state."""
        images = {str(one.place): one.image for one in pictures if one.image}
        places = {str(one.place): one.places for one in pictures if one.places is not None}
        with self._guard:
            self._films[side]["images"].update(images)
            self._films[side]["places"].update(places)
        self.send({"film": side, "at": list(images), "places": places}, buffers=list(images.values()))

    def images(self, side: int) -> dict[int, bytes]:
        """A side's pictures so far, by place."""
        with self._guard:
            return {int(place): image for place, image in self._films[side]["images"].items()}

    @in_turn
    def settle(self) -> None:
        """Puts the pictures into the state that is saved with the notebook, where no page has done so already."""
        if not self._kept_by_page:
            self.films = self._snapshot()

    def get_state(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """The pictures so far, those since the last `settle` included."""
        state: dict[str, Any] = super().get_state(*arguments, **options)
        if "films" in state:
            state["films"] = self._snapshot()
        return state

    @in_turn
    def put(self, name: str, side: int, value: Any) -> None:
        """Replaces one side's entry of a list."""
        entries = list(getattr(self, name))
        entries[side] = value
        setattr(self, name, entries)

    def _heard(self, _: Any, content: Data, buffers: Any) -> None:
        self._kept_by_page |= bool(content.get("keeps"))

    def _blank(self, n: int) -> list[Data]:
        """Numbered, so that nothing is another value than nothing was before: pages are told to forget."""
        number = next(self._shown)
        return [{"images": {}, "places": {}, "number": number} for _ in range(n)]

    def _snapshot(self) -> list[Data]:
        with self._guard:
            return [{**film, "images": dict(film["images"]), "places": dict(film["places"])} for film in self._films]
