"""The microscope's smaller panels: decoded concepts, comparisons, bookmarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ipywidgets as w

from marlnb.widgets.core.controls import Button, Dropdown, SelectMultiple, Text
from marlnb.widgets.core.style import code_html, note_html, problem_html
from marlnb.widgets.microscope.bookmarks import Bookmark

STYLE = {"description_width": "6em"}


class ConceptsPanel:
    """Decodes a label from a site; what the decoder says is drawn at every step."""

    def __init__(self, sites: Sequence[str], labels: Sequence[str], decode: Callable[[str, str], None]) -> None:
        self._decode = decode
        self.site = Dropdown(options=list(sites), description="from", layout=_wide(), style=STYLE)
        self.label = Dropdown(options=list(labels), description="decode", layout=_wide(), style=STYLE)
        self.button = Button(description="Decode", icon="search", tooltip="fit a decoder to all episodes")
        self.button.on_click(lambda _: self._clicked())
        self.button.disabled = not (sites and labels)
        self._status = w.HTML() if labels else w.HTML(note_html("this recording has no labels to decode"))
        self._code = w.HTML()
        self.widget = w.VBox([self.label, self.site, self.button, self._status, self._code])
        self.widget.add_class("marlnb-concepts")

    def show_status(self, text: str) -> None:
        self._status.value = note_html(text)
        self.button.disabled = False

    def show_problem(self, text: str) -> None:
        self._status.value = problem_html(text)
        self.button.disabled = False

    def _clicked(self) -> None:
        self.button.disabled = True
        self._status.value = note_html("decoding, with controls")
        self._code.value = code_html(f"scope.decode({self.label.value!r}, site={self.site.value!r})")
        self._decode(self.label.value, self.site.value)


class ComparePanel:
    """Compares agents, another checkpoint of the run, or another recording, side by side."""

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
        self.agents = SelectMultiple(
            options=list(agents), description="agents", rows=min(6, len(agents)), layout=_wide(), style=STYLE
        )
        self.agents.observe(lambda change: show_agents(list(change["new"])), "value")
        self.checkpoint = Dropdown(options=list(checkpoints), description="checkpoint", layout=_wide(), style=STYLE)
        self.play = Button(description="Play and compare", tooltip="the same seed, played by this checkpoint")
        self.play.disabled = not checkpoints
        self.play.on_click(lambda _: by_checkpoint(self.checkpoint.value))
        self.path = Text(
            description="recording",
            placeholder="path of an .h5 file",
            layout=_wide(),
            style=STYLE,
            continuous_update=False,
        )
        self.open = Button(description="Open and compare", tooltip="the same episode of another recording")
        self.open.on_click(lambda _: by_recording(self.path.value))
        self.back = Button(description="Show one alone", icon="undo")
        self.back.on_click(lambda _: back())
        self._status = w.HTML(note_html("hold Ctrl to choose several agents; if none is chosen, all are shown"))
        self.widget = w.VBox(
            [self.agents, w.HBox([self.checkpoint, self.play]), w.HBox([self.path, self.open]), self.back, self._status]
        )
        self.widget.add_class("marlnb-compare")

    def show_status(self, text: str) -> None:
        self._status.value = note_html(text)

    def show_problem(self, text: str) -> None:
        self._status.value = problem_html(text)


class BookmarksPanel:
    """Adds bookmarks, lists them, goes to them and removes them."""

    def __init__(
        self, add: Callable[[str], object], go: Callable[[int, int], None], remove: Callable[[Bookmark], None]
    ) -> None:
        self._go, self._remove = go, remove
        self.note = Text(placeholder="what this step shows", layout=w.Layout(width="24em"))
        self.add = Button(description="Bookmark", icon="bookmark", tooltip="bookmark this step")
        self.add.add_class("marlnb-bookmark")
        self.add.on_click(lambda _: add(self.note.value))
        self._list, self._status = w.VBox(), w.HTML()
        self.widget = w.VBox([w.HBox([self.note, self.add]), self._status, self._list])
        self.widget.add_class("marlnb-bookmarks")

    def show(self, bookmarks: Sequence[Bookmark], status: str = "", problem: str = "") -> None:
        self._list.children = [self._row(mark) for mark in bookmarks]
        self._status.value = problem_html(problem) if problem else note_html(status) if status else ""

    def _row(self, mark: Bookmark) -> w.HBox:
        go = Button(description=f"episode {mark.episode}, step {mark.t}", layout=w.Layout(width="auto"))
        go.on_click(lambda _: self._go(mark.episode, mark.t))
        remove = Button(icon="trash", tooltip="remove this bookmark", layout=w.Layout(width="2.5em"))
        remove.on_click(lambda _: self._remove(mark))
        return w.HBox([go, w.Label(mark.note), remove])


def _wide() -> w.Layout:
    return w.Layout(width="28em")
