"""Microscope: scrub through a recorded episode, with frames, units, attribution, actions and concepts in step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.decoding.result import Decoding
from marlnb.config import EnvConfig
from marlnb.display.formatting import format_number
from marlnb.errors import AnalysisError, RecordingError
from marlnb.models.hooks.edit import Edit, edit_list
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.policy_source import PolicySourceLike, as_policy_source
from marlnb.widgets.core.closing import close_with_parts
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.microscope.attribution import To
from marlnb.widgets.microscope.background import Side
from marlnb.widgets.microscope.bookmarks import Bookmark, Bookmarks
from marlnb.widgets.microscope.comparison import Comparison, OptionalSource, return_changes, source_or_reason
from marlnb.widgets.microscope.controls import Controls
from marlnb.widgets.microscope.decoded_concepts import decoded_concepts, fits_weights
from marlnb.widgets.microscope.episode_view import read_episode
from marlnb.widgets.microscope.loading import Loader
from marlnb.widgets.microscope.payload import concepts_payload, initial_layers, layer_payload, side_payload
from marlnb.widgets.microscope.scope import open_scope
from marlnb.widgets.microscope.snapshot import Display
from marlnb.widgets.microscope.unit_panel import Unit


class Microscope:
    """One episode, or two side by side, drawn in the notebook. Every control is a method as well.

    Attributes:
        widget: what a notebook displays.
        scope: the part that draws.
        recording: the recording.
        view: the episode.
        sides: what is shown: one episode, or two.
        comparison: finds episodes to compare with.
        decodings: whose concepts are shown.
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
        policy_source: OptionalSource = None,
        env: EnvConfig | None = None,
        trust: bool = False,
    ) -> None:
        """Use `mnb.microscope`."""
        self.recording = recording
        self.decodings = list(concepts)
        self.comparison = Comparison(recording, *source_or_reason(recording, policy_source, trust=trust), env)
        self.view = read_episode(recording, episode)
        self.sides = self.comparison.alone(self.view)
        self.scope = open_scope(self.view, self.sides[0].title, t, layer, order, agents)
        self.loader = Loader(self.scope, lambda: self.controls.offer_more(self.loader.attributions.is_too_large))
        self.controls = Controls(self)
        self.widget = self.controls.widget
        self._display = Display(self.widget, self.scope, lambda: self.sides, lambda: repr(self))
        self._bookmarks = Bookmarks(recording.path)
        self._show_bookmarks()
        self.scope.observe(lambda change: self._picked(change["new"]), "picked")
        self.scope.observe(lambda change: self._send_layer(change["new"]), "layer")
        self.scope.observe(lambda _: self.loader.attributions.request_step(), "t")
        self._begin()

    @property
    def t(self) -> int:
        """The step that is shown, counted from the beginning of the episode."""
        return int(self.view.t[min(self.scope.t, len(self.view.t) - 1)])

    @with_ui_lock
    def go(self, episode: int | None = None, t: int = 0) -> None:
        """Shows a step of this episode, or of another one of the recording.

        Raises:
            RecordingError: there is no such episode.
        """
        if episode is not None and (episode != self.view.episode or len(self.sides) > 1):
            self.view = read_episode(self.recording, episode)
            self.show(self.comparison.alone(self.view), t)
        else:
            self.scope.t = self.view.index(t)

    @with_ui_lock
    def alone(self) -> None:
        """Shows the recorded episode alone again."""
        self.show(self.comparison.alone(self.view), self.t)

    @with_ui_lock
    def show_agents(self, agents: Sequence[str]) -> None:
        """Shows only these agents, side by side; an empty sequence shows all."""
        for agent in agents:
            self.view.group_of(agent)
        self.scope.agents = list(agents)

    @with_ui_lock
    def pick(self, agent: str, unit: int, layer: str | None = None, t: int | None = None) -> None:
        """Does what a click on a unit does: shows its exact value, tuning curve and top episodes.

        Raises:
            RecordingError: there is no such unit.
        """
        layer = layer or self.scope.layer
        site = self.view.site_of(agent, layer)
        n = self.view.units(site).shape[2] if site else 0
        if not 0 <= unit < n:
            raise RecordingError(f"{agent} has no unit {unit} at {layer!r}; it has {n} units there")
        if t is not None:
            self.scope.t = self.view.index(t)
        self.scope.layer = layer
        self.scope.picked = {"side": 0, "agent": agent, "layer": layer, "unit": unit, "t": self.scope.t}

    @with_ui_lock
    def attribute(
        self, to: To = "action", method: str = AttributionConfig.method, *, component: int = 0,
        max_numbers: int | None = None,
    ) -> None:  # fmt: skip
        """Draws which features contribute most to the actions, or to the critic's values. It runs in a thread; `wait`
        waits for it.

        Args:
            component: of continuous actions with several, the one whose mean is explained.
            max_numbers: a group whose attribution has more numbers (steps × agents × features) is not attributed;
                None: 4 million.
        """
        self.loader.attributions.request(to, method, component, max_numbers)

    def decode(self, label: str, site: str, **options: Any) -> Decoding:
        """Decodes a label from a site over the whole recording (see `mnb.decode`); shows the result at each step."""
        decoding = self.find_decoding(label, site, **options)
        self.show_decoding(decoding)
        return decoding

    def find_decoding(self, label: str, site: str, **options: Any) -> Decoding:
        """As `decode`, without showing it."""
        if "checkpoint" not in options:
            options["checkpoint"] = self.view.checkpoint_of_several
        return decode(self.recording, site=site, label=label, **{"progress": False, **options})

    @with_ui_lock
    def show_decoding(self, decoding: Decoding) -> None:
        """Shows what the decoders of a decoding say at each step, with their probabilities.

        It replaces an earlier decoding of the same recorded label from the same units.

        Raises:
            AnalysisError: it was fitted step by step, to agents or sites that this recording does not have, or to
                another checkpoint than the one that played this episode.
        """
        if not decoded_concepts(self.view, decoding):
            raise AnalysisError(
                f"the decoding of {decoding.label!r} from {decoding.site} has no decoder for this episode; it "
                "needs one for all steps (at='all') of its sites"
            )
        if not fits_weights(decoding, self.view.origin.sha256, self.recording):
            raise AnalysisError(
                f"the decoding of {decoding.label!r} was fitted to checkpoint {decoding.checkpoint}, but checkpoint "
                f"{self.view.checkpoint} played episode {self.view.episode}: its units mean something else"
            )
        is_named = decoding.label in self.recording.labels  # arrays and functions may share a name
        earlier = [other for other in self.decodings if not is_named or _question(other) != _question(decoding)]
        self.decodings = [*earlier, decoding]
        self._show_concepts()

    def compare(
        self, recording: RecordingLike | None = None, episode: int | None = None, *,
        checkpoint: int | None = None, policy_source: OptionalSource = None, env: EnvConfig | None = None,
    ) -> None:  # fmt: skip
        """Shows another episode next to this one, in step.

        Args:
            recording: of the other episode, or its path; None: this one.
            episode: its number; None: the same as here.
            checkpoint: instead of a recorded episode, this checkpoint of the run plays the episode's seed,
                deterministically or with the noise of its seed, as it was recorded.
            policy_source: of the other recording, as for `mnb.microscope`.
            env: of the other recording, as for `mnb.microscope`.
        """
        if checkpoint is not None:
            self.show(self.comparison.checkpoint(self.view, checkpoint), self.t)
        else:
            self.show(self.comparison.other(self.view, recording, episode, policy_source, env), self.t)

    def show_networks(self, *policy_sources: PolicySourceLike) -> None:
        """Shows what other networks do with the observations of this episode: their units, values and probabilities.

        The agents act as recorded, so that the observations stay the same.

        Args:
            policy_sources: a run, shown next to the recorded networks, or two, shown next to each other.
        Raises:
            RecordingError: the episode cannot be replayed in its environment, or the networks have other sites.
        """
        if len(policy_sources) not in (1, 2):
            raise RecordingError(f"show_networks takes one run or two; got {len(policy_sources)}")
        self.show(self.comparison.networks(self.view, [as_policy_source(each) for each in policy_sources]), self.t)

    def play_again(self, edits: Edit | Sequence[Edit]) -> dict[str, float]:
        """Plays the episode's seed twice, without and with edits, and shows both in step.

        Returns:
            By agent, the return with the edits minus the return without them.
        Raises:
            RecordingError: the policies that were recorded are not known.
            SiteError, ShapeError, ConfigError: as `mnb.evaluate`.
        """
        sides = self.comparison.edited(self.view, edit_list(edits))
        self.show(sides, self.t)
        return return_changes(sides)

    @with_ui_lock
    def bookmark(self, note: str = "") -> Bookmark:
        """Bookmarks the step that is shown. Bookmarks are stored next to the recording if that folder is writable."""
        mark = Bookmark(self.view.episode, self.t, note)
        self._bookmarks.replace([*self._bookmarks.marks, mark])
        self._show_bookmarks()
        return mark

    @with_ui_lock
    def remove_bookmark(self, bookmark: Bookmark) -> None:
        self._bookmarks.replace([mark for mark in self._bookmarks.marks if mark != bookmark])
        self._show_bookmarks()

    @property
    def bookmarks(self) -> list[Bookmark]:
        return list(self._bookmarks.marks)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until frames and attributions are there; returns False if that takes longer than `timeout_s`."""
        return self.loader.wait(timeout_s)

    @with_ui_lock
    def close(self) -> None:
        """Removes it from the page and frees its memory, which a kernel otherwise keeps until it ends."""
        close_with_parts(self.widget)

    def as_code(self) -> str:
        """The cell that shows what is shown now."""
        scope = self.scope
        options = {"episode": self.view.episode, "t": self.t, "layer": scope.layer, "order": scope.order}
        arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
        agents = f", agents={scope.agents!r}" if scope.agents else ""
        lines = [
            "import marlnb as mnb",
            f"recording = mnb.Recording.open({str(self.recording.path)!r})",
            f"scope = mnb.microscope(recording, {arguments}{agents})",
            *(f"scope.decode({decoding.label!r}, site={decoding.site!r})" for decoding in self.decodings),
        ]
        return "\n".join([*lines, "scope"])

    def _ipython_display_(self, **options: Any) -> None:
        self._display.show()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return self._display.bundle()

    def __repr__(self) -> str:
        returns = ", ".join(f"{agent} {format_number(value, 3)}" for agent, value in self.view.returns.items())
        return f"Microscope({self.recording.path.name}, episode {self.view.episode}, step {self.t}; returns: {returns})"

    def figure(self) -> Figure:
        """What is shown now, as a still figure."""
        return self._display.figure()

    @with_ui_lock
    def show(self, sides: list[Side], t: int) -> None:
        """Shows these episodes at a step."""
        self.sides = sides
        layer = self.scope.layer
        self.scope.show(
            [
                side_payload(side.view, side.title, initial_layers(side.view, layer))
                | {"episode": (side.compared_with or side.view).episode}  # whose bookmarks are shown
                for side in sides
            ],
            t=self.view.index(t),
            picked={},
            layers=[name for name in self.view.layers if any(name in side.view.layers for side in sides)],
        )
        self.controls.update()
        self._begin()

    def _begin(self) -> None:
        self._show_concepts()
        self.loader.begin(self.sides)
        self.controls.attribute()

    def _send_layer(self, layer: str) -> None:
        """Sends the units of a layer that was too large to be sent at first."""
        pairs = list(zip(self.scope.sides, self.sides))
        if any(layer in side.view.layers and layer not in data["units"] for data, side in pairs):
            self.scope.sides = [
                {**data, "units": {**data["units"], layer: layer_payload(side.view, layer)}} for data, side in pairs
            ]

    def _picked(self, picked: dict[str, Any]) -> None:
        if not picked:
            return
        view = self.sides[min(int(picked["side"]), len(self.sides) - 1)].view
        site = view.site_of(picked["agent"], picked["layer"])
        if site is not None:
            step = int(view.t[min(int(picked["t"]), len(view.t) - 1)])
            self.controls.show_unit(view, Unit(site, picked["agent"], int(picked["unit"]), step))

    def _show_concepts(self) -> None:
        fitting = [[d for d in self.decodings if fits_weights(d, side.weights, self.recording)] for side in self.sides]
        self.scope.concepts = [
            concepts_payload([concept for decoding in decodings for concept in decoded_concepts(side.view, decoding)])
            for side, decodings in zip(self.sides, fitting)
        ]
        weights = self.comparison.alone(self.view)[0].weights
        self.controls.offer_directions([d for d in self.decodings if fits_weights(d, weights, self.recording)])

    @with_ui_lock
    def _show_bookmarks(self) -> None:
        bookmarks = self._bookmarks
        self.scope.bookmarks = [vars(mark) for mark in bookmarks.marks]
        self.controls.bookmarks.show(bookmarks.marks, bookmarks.status, bookmarks.problem)


def _question(decoding: Decoding) -> tuple[Any, ...]:
    """What a decoding asks, of which there can be one answer."""
    d = decoding
    return d.label, d.kind, d.classes, d.sites, d.agents, d.offsets, d.given, d.checkpoint


def microscope(recording: RecordingLike, episode: int = 0, **options: Any) -> Microscope:
    """Looks into one episode of a recording, step by step, in the notebook.

    Args:
        recording: or its path.
        episode: its number.
        options: t (step); layer (such as `actor/hidden_1`); order (raw, peak, variance, cluster); agents (names; none:
            all); concepts (decodings to show); policy_source (the recorded run or agents, if the file is not in the
            run's folder); env (the environment that was recorded, if it was not the run's own); trust (allow the code
            that another person's run folder names; without it such a run has no pictures and no attributions).
    Raises:
        RecordingError: there is no such recording, episode, layer, order or agent.
    """
    return Microscope(opened_recording(recording), episode, **options)
