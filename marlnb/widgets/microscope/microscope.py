"""Microscope: a recorded episode scrubbed through, with frame, units, attribution, actions and concepts in step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from marlnb.analysis.attribution.methods import Method
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.decoding.result import Decoding
from marlnb.config import EnvConfig
from marlnb.errors import AnalysisError, RecordingError
from marlnb.models.hooks.edit import Edit
from marlnb.recording.file.reader import Recording
from marlnb.widgets.core.ui_lock import in_turn
from marlnb.widgets.microscope.answers import Shown
from marlnb.widgets.microscope.beside import Beside, PolicySourceLike, changes, maker_or_why
from marlnb.widgets.microscope.bookmarks import Bookmark, Bookmarks
from marlnb.widgets.microscope.code import code_of
from marlnb.widgets.microscope.controls import Controls
from marlnb.widgets.microscope.display import Display
from marlnb.widgets.microscope.episode_view import view_episode
from marlnb.widgets.microscope.explanation import To
from marlnb.widgets.microscope.first_scope import first_scope
from marlnb.widgets.microscope.loading import Loading
from marlnb.widgets.microscope.readings import concepts_of
from marlnb.widgets.microscope.sides import concepts_data, sent_layers, side_of, units_of_layer
from marlnb.widgets.microscope.unit_panel import Unit


class Microscope:
    """One episode, or two side by side, drawn in the notebook; every control is a method as well.

    Attributes:
        widget: what a notebook displays. scope: the part that draws.
        recording, view: what is looked at. sides: what is shown; one, or two. beside: finds what can be shown.
    """

    def __init__(
        self,
        recording: Recording,
        episode: int = 0,
        *,
        t: int = 0,
        layer: str | None = None,
        order: str = "raw",
        agents: Sequence[str] = (),
        concepts: Sequence[Decoding] = (),
        subject: PolicySourceLike = None,
        env: EnvConfig | None = None,
    ) -> None:
        """Use `mnb.microscope`."""
        self.recording = recording
        self.decodings = list(concepts)
        self.beside = Beside(recording, *maker_or_why(recording, subject), env)
        self.view = view_episode(recording, episode)
        self.sides = self.beside.alone(self.view)
        self.scope = first_scope(self.view, self.sides[0].title, t, layer, order, agents)
        self.loading = Loading(self.scope, lambda: self.controls.offer_more(self.loading.too_large))
        self.controls = Controls(self)
        self.widget = self.controls.widget
        self._display = Display(self.widget, self.scope, lambda: self.sides, lambda: repr(self))
        self._kept = Bookmarks(recording.path)
        self._show_bookmarks()
        self.scope.observe(lambda change: self._picked(change["new"]), "picked")
        self.scope.observe(lambda change: self._send_layer(change["new"]), "layer")
        self.scope.observe(lambda _: self.loading.explain_step(), "t")
        self._begin()

    @property
    def t(self) -> int:
        """The step that is shown, counted since the episode began."""
        return int(self.view.t[min(self.scope.t, len(self.view.t) - 1)])

    @in_turn
    def go(self, episode: int | None = None, t: int = 0) -> None:
        """Shows a step, of this episode or another one of the recording.

        Raises:
            RecordingError: there is no such episode.
        """
        if episode is not None and (episode != self.view.episode or len(self.sides) > 1):
            self.view = view_episode(self.recording, episode)
            self.show(self.beside.alone(self.view), t)
        else:
            self.scope.t = self.view.place(t)

    @in_turn
    def alone(self) -> None:
        """Shows the recorded episode by itself again."""
        self.show(self.beside.alone(self.view), self.t)

    @in_turn
    def show_agents(self, agents: Sequence[str]) -> None:
        """Only these agents, beside one another; none: all of them."""
        for agent in agents:
            self.view.group_of(agent)
        self.scope.agents = list(agents)

    @in_turn
    def pick(self, agent: str, unit: int, layer: str | None = None, t: int | None = None) -> None:
        """As a click on a unit does: its exact value, its tuning curve and the episodes in which it rises highest.

        Raises:
            RecordingError: there is no such unit.
        """
        layer = layer or self.scope.layer
        site = self.view.site_of(agent, layer)
        n = self.view.units(site).shape[2] if site else 0
        if not 0 <= unit < n:
            raise RecordingError(f"{agent} has {n} units at {layer!r}; there is no unit {unit}")
        if t is not None:
            self.scope.t = self.view.place(t)
        self.scope.layer = layer
        self.scope.picked = {"side": 0, "agent": agent, "layer": layer, "unit": unit, "t": self.scope.t}

    @in_turn
    def attribute(self, to: To = "action", method: Method = "integrated_gradients", *, most: int | None = None) -> None:
        """Draws which features the actions, or the critic's values, owe most to; in a thread, `wait` waits for it.

        Args:
            most: numbers of a group's attribution (steps × agents × features) beyond which it is not made; None: 4
                million.
        """
        self.loading.explain(to, method, most)

    def decode(self, label: str, site: str, **options: Any) -> Decoding:
        """Decodes a label from a site over the whole recording (see `mnb.decode`) and shows what is read each step."""
        found = self.find_decoding(label, site, **options)
        self.show_decoding(found)
        return found

    def find_decoding(self, label: str, site: str, **options: Any) -> Decoding:
        """As `decode`; nothing is shown."""
        several = len(self.recording.checkpoints["iteration"].unique()) > 1
        given = {"progress": False, **({"checkpoint": self.view.checkpoint} if several else {}), **options}
        return decode(self.recording, site=site, label=label, **given)

    @in_turn
    def show_decoding(self, decoding: Decoding) -> None:
        """Shows what a decoding's readings say at each step, with their probabilities.

        Raises:
            AnalysisError: it was fitted step by step, or to agents or sites that are not recorded here.
        """
        if not concepts_of(self.view, decoding):
            raise AnalysisError(f"nothing of {decoding!r} can be read here: a decoder of all steps (at='all') can")
        self.decodings.append(decoding)
        self._tell_concepts()

    def compare(
        self, recording: Recording | str | os.PathLike[str] | None = None, episode: int | None = None, *,
        checkpoint: int | None = None, subject: PolicySourceLike = None, env: EnvConfig | None = None,
    ) -> None:  # fmt: skip
        """Another episode beside this one, in step: of another recording, or this seed played by another checkpoint.

        Args:
            recording: or its path; None: this one. episode: its number; None: the same as here.
            checkpoint: an iteration of the run: it plays this episode's seed now, deterministically or with the noise
                of its seed, as the recording was made. subject, env: of the other recording, as for `mnb.microscope`.
        """
        if checkpoint is not None:
            self.show(self.beside.checkpoint(self.view, checkpoint), self.t)
        else:
            self.show(self.beside.other(self.view, recording, episode, subject, env), self.t)

    def play_again(self, edits: Edit | Sequence[Edit]) -> dict[str, float]:
        """Plays the episode's seed twice, without and with edits, and shows both in step.

        Returns:
            By agent, the return with the edits minus that without them.
        Raises:
            RecordingError: whose agents played is not known. SiteError, ShapeError, ConfigError: as `mnb.evaluate`.
        """
        sides = self.beside.edited(self.view, [edits] if isinstance(edits, Edit) else list(edits))
        self.show(sides, self.t)
        return changes(sides)

    @in_turn
    def bookmark(self, note: str = "") -> Bookmark:
        """Keeps the step that is shown, beside the recording where that can be written to."""
        mark = Bookmark(self.view.episode, self.t, note)
        self._kept.keep([*self._kept.marks, mark])
        self._show_bookmarks()
        return mark

    @in_turn
    def forget(self, bookmark: Bookmark) -> None:
        self._kept.keep([one for one in self._kept.marks if one != bookmark])
        self._show_bookmarks()

    @property
    def bookmarks(self) -> list[Bookmark]:
        return list(self._kept.marks)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until pictures and attributions are there; False where that takes longer than `timeout_s` seconds."""
        return self.loading.wait(timeout_s)

    def as_code(self) -> str:
        """The cell that shows what is shown now."""
        return code_of(self.recording.path, self.view.episode, self.t, self.scope, self.decodings)

    def _ipython_display_(self, **options: Any) -> None:
        self._display.show()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return self._display.bundle()

    def __repr__(self) -> str:
        returns = ", ".join(f"{agent} {value:.3g}" for agent, value in self.view.returns.items())
        return f"Microscope({self.recording.path.name}, episode {self.view.episode}, step {self.t}; returns: {returns})"

    def figure(self) -> Figure:
        """What is shown now as a still figure."""
        return self._display.figure()

    @in_turn
    def show(self, sides: list[Shown], t: int) -> None:
        """Shows these episodes, from a step on."""
        self.sides = sides
        layer = self.scope.layer
        self.scope.show(
            [side_of(side.view, side.title, sent_layers(side.view, layer)) for side in sides],
            t=self.view.place(t),
            picked={},
            layers=[one for one in self.view.layers if any(one in side.view.layers for side in sides)],
        )
        self.controls.follow()
        self._begin()

    def _begin(self) -> None:
        self._tell_concepts()
        self.loading.begin(self.sides)
        self.loading.explain(self.controls.to.value, self.controls.method.value)

    def _send_layer(self, layer: str) -> None:
        """The units of a layer that was too large to be sent along."""
        if all(
            layer in data["units"] or layer not in side.view.layers for data, side in zip(self.scope.sides, self.sides)
        ):
            return
        data = [
            {**data, "units": {**data["units"], layer: units_of_layer(side.view, layer)}}
            for data, side in zip(self.scope.sides, self.sides)
        ]
        self.scope.sides = data

    def _picked(self, picked: dict[str, Any]) -> None:
        if not picked:
            return
        view = self.sides[min(int(picked["side"]), len(self.sides) - 1)].view
        site = view.site_of(picked["agent"], picked["layer"])
        if site is None:
            return
        step = int(view.t[min(int(picked["t"]), len(view.t) - 1)])
        self.controls.show_unit(view, Unit(site, picked["agent"], int(picked["unit"]), step))

    def _tell_concepts(self) -> None:
        self.scope.concepts = [
            concepts_data([concept for one in self.decodings for concept in concepts_of(side.view, one)])
            for side in self.sides
        ]
        self.controls.offer_directions(self.decodings)

    @in_turn
    def _show_bookmarks(self) -> None:
        self.scope.bookmarks = [vars(one) for one in self._kept.marks]
        self.controls.bookmarks.show(self._kept.marks, self._kept.told, self._kept.problem)


def microscope(recording: Recording | str | os.PathLike[str], episode: int = 0, **options: Any) -> Microscope:
    """Looks into one episode of a recording, step by step, in the notebook.

    Args:
        recording: or its path. episode: its number.
        options: t (step), layer (as `actor/hidden_1`), order (raw, peak, variance, cluster), agents (names; none: all),
            concepts (decodings to show), subject (whose agents were recorded, where the file does not lie in their
            run's folder), env (the environment that was recorded, where it was not the run's own).
    Raises:
        RecordingError: no such recording, episode, layer, order or agent.
    """
    opened = recording if isinstance(recording, Recording) else Recording.open(recording)
    return Microscope(opened, episode, **options)
