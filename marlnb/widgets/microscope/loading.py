"""Loading: what takes longer than drawing is fetched in threads, side by side, and shown when it is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from marlnb.analysis.methods import Method
from marlnb.config import EnvConfig
from marlnb.errors import MarlnbError
from marlnb.training.subject import Subject
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.explanation import Explanation, To, explain, refused
from marlnb.widgets.microscope.objects import NOT_TOLD, Spoken, looker
from marlnb.widgets.microscope.pictures import Picture, drawn_again, recorded_pictures
from marlnb.widgets.microscope.scope import Scope
from marlnb.widgets.microscope.sides import attribution_of
from marlnb.widgets.turns import TURN, in_turn
from marlnb.widgets.worker import Newest

START_S = 0.4  # the page is drawn first
SEND_S = 0.3  # between two parcels of pictures
MOST_DRAWN = 60  # steps that are lived through at once for a still picture


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


Sides = tuple[Shown, ...]


class Loading:
    """Pictures and attributions of the sides that are shown now; answers about earlier ones are dropped.

    Attributes:
        explanations: of each side; None while it is not there. too_large: what was refused for its size alone.
    """

    def __init__(self, scope: Scope, on_explained: Callable[[], None]) -> None:
        self.scope = scope
        self.explanations: list[Explanation | None] = []
        self._spoken: list[Spoken | None] = []
        self._on_explained = on_explained
        self._sides: Sides = ()
        self._pictures = Newest(wait_s=START_S)
        self._explaining = Newest(wait_s=START_S)
        self._threads: list[threading.Thread] = []

    @property
    def too_large(self) -> bool:
        return any(one is not None and one.too_large for one in self.explanations)

    @in_turn
    def begin(self, sides: Sequence[Shown]) -> None:
        """Fetches everything for other sides."""
        now = self._sides = tuple(sides)
        self.explanations, self._spoken = [None] * len(now), [None] * len(now)
        self._ask(self._pictures, lambda: self._film_all(now))

    @in_turn
    def explain(self, to: To, method: Method, most: int | None = None) -> None:
        """Attributes every side's actions or values, those of at most `most` numbers a group (see `explain`)."""
        sides = self._sides
        self._ask(self._explaining, lambda: self._explain_all(sides, to, method, most))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until everything is there; False where that takes longer."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in list(self._threads):
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _ask(self, worker: Newest, work: Callable[[], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(worker.ask(work, lambda _: None, self._fail))

    def _fail(self, error: Exception) -> None:
        self.scope.notes = [f"{type(error).__name__}: {error}" for _ in self._sides]

    def _tell(self, sides: Sides, change: Callable[[], None]) -> bool:
        """Changes the scope in turn, if it still shows these sides; whether it does."""
        with TURN:
            if sides is self._sides:
                change()
            return sides is self._sides

    def _film_all(self, sides: Sides) -> None:
        for number in range(len(sides)):
            self._film(number, sides)
        self._tell(sides, self.scope.settle)

    def _film(self, number: int, sides: Sides) -> None:
        """Recorded pictures, and where things are in them; or pictures drawn again."""
        side = sides[number]
        recorded = list(recorded_pictures(side.view))
        if recorded:
            self._tell(sides, lambda: self.scope.add_pictures(number, recorded))
        try:
            note = (
                self._live_again(number, sides, not recorded) if side.subject is not None else _without(side, recorded)
            )
        except Exception as error:  # an environment may raise anything when it is drawn
            note = str(error) if isinstance(error, MarlnbError) else f"{type(error).__name__}: {error}"
            note = f"{NOT_TOLD} ({note})" if recorded else note
        self._tell(sides, lambda: self.scope.put("notes", number, note))

    def _live_again(self, number: int, sides: Sides, images: bool) -> str:
        """Shows the moments parcel by parcel; what is to be said of them."""
        side, parcel, sent, problem = sides[number], [], time.monotonic(), ""
        assert side.subject is not None

        for picture in drawn_again(side.view, side.subject, side.env, images=images):
            problem = picture.problem
            if picture.spoken is not None:
                self._tell(sides, partial(self._understand, number, picture.spoken))
            if problem and not images:
                break
            parcel.append(picture)
            if time.monotonic() - sent > SEND_S:
                if not self._tell(sides, partial(self.scope.add_pictures, number, parcel)):
                    return ""
                parcel, sent = [], time.monotonic()
        self._tell(sides, partial(self.scope.add_pictures, number, parcel))
        return problem

    def _understand(self, number: int, spoken: Spoken) -> None:
        """Which features speak of what is known now: what was attributed is told again, with the objects."""
        self._spoken[number] = spoken
        self.scope.explained = self.scope.explained or looker(spoken)
        if self.explanations[number] is not None:
            self._attributed(number)

    def _explain_all(self, sides: Sides, to: To, method: Method, most: int | None) -> None:
        for number, side in enumerate(sides):

            def tell(text: str, title: str = side.title) -> None:
                self._tell(sides, lambda: setattr(self.scope, "working", f"explaining {title}: {text}"))

            found = _explanation(side, to, method, most, tell)

            if not self._tell(sides, partial(self._explain_side, number, found)):
                return
        self._tell(sides, self._explained)

    def _explain_side(self, number: int, found: Explanation) -> None:
        self.explanations[number] = found
        self._attributed(number)

    def _explained(self) -> None:
        self.scope.working = ""
        self._on_explained()

    def _attributed(self, number: int) -> None:
        found = self.explanations[number]
        assert found is not None
        self.scope.put("attributions", number, attribution_of(found, self._spoken[number]))


def _explanation(side: Shown, to: To, method: Method, most: int | None, tell: Callable[[str], None]) -> Explanation:
    if side.subject is None or side.edited:
        why = side.unknown if side.subject is None else "no attribution of networks that were edited"
        return refused(side.view, to, method, why)
    try:
        policies = side.subject.policies(side.view.checkpoint)
    except MarlnbError as error:
        return refused(side.view, to, method, str(error))
    return explain(side.view, policies, to=to, method=method, compared_with=side.compared_with, most=most, tell=tell)


def _without(side: Shown, recorded: Sequence[Picture]) -> str:
    if recorded:
        return f"attribution and edits are not to be had: {side.unknown}"
    return f"no pictures were recorded, and {side.unknown}"


def _drawn_now(side: Shown, place: int) -> dict[int, bytes]:
    if side.subject is None or place > MOST_DRAWN:
        return {}
    try:
        for picture in drawn_again(side.view, side.subject, side.env):
            if picture.place == place:
                return {place: picture.image}
    except Exception:  # an environment may raise anything when it is drawn; the note below it says what
        return {}
    return {}


def image_at(side: Shown, place: int, images: Mapping[int, bytes]) -> bytes | None:
    """The picture of a step, or of the last one before it that has one: from what is there, else made now."""
    images = images or {one.place: one.image for one in recorded_pictures(side.view)} or _drawn_now(side, place)
    before = [one for one in images if one <= place]
    return images[max(before)] if before else None
