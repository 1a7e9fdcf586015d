"""The microscope's smaller panels: decoded concepts, comparisons, bookmarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ipywidgets as w

from marlnb.widgets.core.closing import replace_children
from marlnb.widgets.core.controls import Button, Dropdown, SelectMultiple, Text, button_for
from marlnb.widgets.core.style import HTML, Message, code_html, note_html, problem_html
from marlnb.widgets.microscope.bookmarks import Bookmark

WIDE: dict[str, Any] = {"layout": {"width": "28em"}, "style": {"description_width": "6em"}}
"""Traits of a field. Each widget makes its own layout of them, so that fields can be hidden separately."""


class ComputingPanel:
    """Abstract: a button starts a computation; a line shows its result or why it failed, and the button works again."""

    button: Button
    _status: Message

    def show_status(self, text: str) -> None:
        self._status.show_note(text)
        self.button.disabled = False

    def show_problem(self, text: str) -> None:
        self._status.show_problem(text)
        self.button.disabled = False


class ConceptsPanel(ComputingPanel):
    """Decodes a label from a site; what the decoder says is drawn at every step."""

    def __init__(self, sites: Sequence[str], labels: Sequence[str], decode: Callable[[str, str], None]) -> None:
        self._decode = decode
        self.site = Dropdown(options=list(sites), description="from", **WIDE)
        self.label = Dropdown(options=list(labels), description="decode", **WIDE)
        self.button = button_for(self._clicked, "Decode", "search", "fit a decoder to all episodes")
        self.button.disabled = not (sites and labels)
        self._status = Message("" if labels else note_html("this recording has no labels to decode"))
        self._code = HTML()
        parts = [self.label, self.site, self.button, self._status, self._code]
        self.widget = w.VBox(parts, _dom_classes=["marlnb-concepts"])

    def _clicked(self) -> None:
        self.button.disabled = True
        self._status.show_note("decoding, with controls")
        self._code.value = code_html(f"scope.decode({self.label.value!r}, site={self.site.value!r})")
        self._decode(self.label.value, self.site.value)


class ComparePanel:
    """Compares agents, another checkpoint of the run, or another recording, side by side.

    Attributes:
        status: shows how a comparison went.
    """

    def __init__(
        self,
        agents: Sequence[str],
        checkpoints: Sequence[int],
        *,
        show_agents: Callable[[Sequence[str]], None],
        by_checkpoint: Callable[[int], None],
        by_recording: Callable[[str], None],
        back: Callable[[], None],
    ) -> None:
        self.agents = SelectMultiple(options=list(agents), description="agents", rows=min(6, len(agents)), **WIDE)
        self.agents.observe(lambda change: show_agents(list(change["new"])), "value")
        self.checkpoint = Dropdown(options=list(checkpoints), description="checkpoint", **WIDE)
        tooltip = "the same seed, played by this checkpoint"
        self.play = button_for(lambda: by_checkpoint(self.checkpoint.value), "Play and compare", tooltip=tooltip)
        self.play.disabled = not checkpoints
        example = "path of an .h5 file"
        self.path = Text(description="recording", placeholder=example, continuous_update=False, **WIDE)
        tooltip = "the same episode of another recording"
        self.open = button_for(lambda: by_recording(self.path.value), "Open and compare", tooltip=tooltip)
        self.back = button_for(back, "Show one alone", "undo")
        self.status = Message(note_html("hold Ctrl to choose several agents; if none is chosen, all are shown"))
        lines = [w.HBox([self.checkpoint, self.play]), w.HBox([self.path, self.open])]
        self.widget = w.VBox([self.agents, *lines, self.back, self.status], _dom_classes=["marlnb-compare"])


class BookmarksPanel:
    """Adds bookmarks, lists them, goes to them and removes them."""

    def __init__(
        self, add: Callable[[str], object], go: Callable[[int, int], None], remove: Callable[[Bookmark], None]
    ) -> None:
        self._go, self._remove = go, remove
        self.note = Text(placeholder="what this step shows", layout=w.Layout(width="24em"))
        self.add = button_for(lambda: add(self.note.value), "Bookmark", "bookmark", "bookmark this step")
        self.add.add_class("marlnb-bookmark")
        self._list, self._status = w.VBox(), HTML()
        parts = [w.HBox([self.note, self.add]), self._status, self._list]
        self.widget = w.VBox(parts, _dom_classes=["marlnb-bookmarks"])

    def show(self, bookmarks: Sequence[Bookmark], status: str = "", problem: str = "") -> None:
        replace_children(self._list, [self._row(mark) for mark in bookmarks])
        self._status.value = problem_html(problem) if problem else note_html(status) if status else ""

    def _row(self, mark: Bookmark) -> w.HBox:
        title = f"episode {mark.episode}, step {mark.t}"
        go = button_for(partial(self._go, mark.episode, mark.t), title, width="auto")
        remove = button_for(partial(self._remove, mark), "", "trash", "remove this bookmark", width="2.5em")
        return w.HBox([go, w.Label(mark.note), remove])
