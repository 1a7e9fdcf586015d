"""Loading: what takes longer than drawing is fetched in threads, side by side, and shown when it is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from marlnb.analysis.methods import Method
from marlnb.config import EnvConfig
from marlnb.errors import MarlnbError
from marlnb.training.subject import Subject
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.explanation import Explanation, To, explain
from marlnb.widgets.microscope.pictures import Picture, drawn_again, recorded_pictures
from marlnb.widgets.microscope.scope import Scope
from marlnb.widgets.microscope.sides import attribution_of
from marlnb.widgets.worker import Newest

START_S = 0.4  # the page is drawn first
SEND_S = 0.3  # between two parcels of pictures
MOST_DRAWN = 60  # steps that are lived through at once for a still picture
NO_OBJECTS = "this environment does not say where things are in its pictures: attribution is shown as bars only"


@dataclass(frozen=True, eq=False)
class Shown:
    """One side of a microscope.

    Attributes:
        subject: whose agents played; None where that is not known, for the reason in `unknown`.
        edited: whether its networks were edited while they played.
        compared_with: an episode of the recording with whose mean observation attribution compares; None: its own.
    """

    view: EpisodeView
    title: str
    subject: Subject | None
    unknown: str = ""
    env: EnvConfig | None = None
    edited: bool = False
    compared_with: EpisodeView | None = None


class Loading:
    """Pictures and attributions of the sides that are shown now; answers about earlier ones are dropped."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.explanations: list[Explanation | None] = []
        self._sides: Sequence[Shown] = ()
        self._pictures = Newest(wait_s=START_S)
        self._explaining = Newest(wait_s=START_S)
        self._threads: list[threading.Thread] = []

    def begin(self, sides: Sequence[Shown]) -> None:
        """Fetches everything for other sides."""
        self._sides = tuple(sides)
        self.explanations = [None] * len(sides)
        self._ask(self._pictures, lambda: self._film_all(tuple(sides)))

    def explain(self, to: To, method: Method) -> None:
        """Attributes every side's actions or values."""
        sides = self._sides
        self._ask(self._explaining, lambda: self._explain_all(sides, to, method))

    def image(self, number: int, place: int) -> bytes | None:
        """The picture of a step, or of the last one before it that has one: from what is there, else made now."""
        view, images = self._sides[number].view, self.scope.images(number)
        if not images:
            images = {picture.place: picture.image for picture in recorded_pictures(view)}
        if not images:
            images = self._drawn_now(self._sides[number], place)
        before = [one for one in images if one <= place]
        return images[max(before)] if before else None

    def _drawn_now(self, side: Shown, place: int) -> dict[int, bytes]:
        if side.subject is None or place > MOST_DRAWN:
            return {}
        try:
            for picture in drawn_again(side.view, side.subject, side.env):
                if picture.place == place:
                    return {place: picture.image}
        except Exception:  # an environment may raise anything when it is drawn; the note below it says what
            return {}
        return {}

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until everything is there; False where that takes longer."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in list(self._threads):
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _ask(self, worker: Newest, work: object) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(worker.ask(work, lambda _: None, self._fail))  # type: ignore[arg-type]

    def _fail(self, error: Exception) -> None:
        self.scope.notes = [f"{type(error).__name__}: {error}" for _ in self._sides]

    def _film_all(self, sides: Sequence[Shown]) -> None:
        for number, side in enumerate(sides):
            self._film(number, side, sides)
        if sides is self._sides or sides == self._sides:
            self.scope.settle()

    def _film(self, number: int, side: Shown, sides: Sequence[Shown]) -> None:
        """Recorded pictures, and where things are in them; or pictures drawn again."""
        recorded = list(recorded_pictures(side.view))
        if recorded and sides == self._sides:
            self.scope.add_pictures(number, recorded)
        if side.subject is None:
            note = f"attribution and edits are not to be had: {side.unknown}"
            self._note(number, note if recorded else f"no pictures were recorded, and {side.unknown}", sides)
            return
        parcel: list[Picture] = []
        sent = time.monotonic()
        told = False
        try:
            for picture in drawn_again(side.view, side.subject, side.env, images=not recorded):
                if sides != self._sides:
                    return
                told |= picture.places is not None
                if recorded and picture.places is None:
                    break
                parcel.append(picture)
                if time.monotonic() - sent > SEND_S:
                    self.scope.add_pictures(number, parcel)
                    parcel, sent = [], time.monotonic()
        except Exception as error:  # an environment may raise anything when it is drawn
            text = str(error) if isinstance(error, MarlnbError) else f"{type(error).__name__}: {error}"
            self._note(number, text if not recorded else f"{NO_OBJECTS} ({text})", sides)
            return
        if parcel:
            self.scope.add_pictures(number, parcel)
        self._note(number, "" if told else NO_OBJECTS, sides)

    def _explain_all(self, sides: Sequence[Shown], to: To, method: Method) -> None:
        for number, side in enumerate(sides):
            found = self._explanation(side, to, method)
            if sides != self._sides:
                return
            self.explanations[number] = found
            self.scope.put("attributions", number, attribution_of(side.view, found))

    def _explanation(self, side: Shown, to: To, method: Method) -> Explanation:
        refusal = side.unknown if side.subject is None else "no attribution of networks that were edited"
        if side.subject is None or side.edited:
            return Explanation(to, method, {}, {group.name: refusal for group in side.view.groups})
        try:
            policies = side.subject.policies(side.view.checkpoint)
        except MarlnbError as error:
            return Explanation(to, method, {}, {group.name: str(error) for group in side.view.groups})
        return explain(side.view, policies, to=to, method=method, compared_with=side.compared_with)

    def _note(self, number: int, text: str, sides: Sequence[Shown]) -> None:
        if sides == self._sides:
            self.scope.put("notes", number, text)
