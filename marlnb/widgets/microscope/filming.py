"""Filming: the pictures of the episodes that are shown, recorded or drawn again, and where things are in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from marlnb.errors import MarlnbError
from marlnb.widgets.core.worker import Newest
from marlnb.widgets.microscope.answers import START_S, Answers, Shown, Sides
from marlnb.widgets.microscope.objects import NOT_TOLD, Spoken
from marlnb.widgets.microscope.pictures import Picture, drawn_again, recorded_pictures

SEND_S = 0.3  # between two parcels of pictures
MOST_DRAWN = 60  # steps that are lived through at once for a still picture


class Filming:
    """Fetches pictures in a thread.

    Args:
        understand: called in turn with a side's number and which features speak of which objects there.
    """

    def __init__(self, answers: Answers, understand: Callable[[int, Spoken], None]) -> None:
        self._answers, self._understand = answers, understand
        self._working = Newest(wait_s=START_S)

    def begin(self) -> None:
        """Of all sides that are shown now."""
        sides = self._answers.sides
        self._answers.ask(self._working, lambda: self._film_all(sides))

    def _film_all(self, sides: Sides) -> None:
        for number in range(len(sides)):
            self._film(number, sides)
        self._answers.tell(sides, self._answers.scope.settle)

    def _film(self, number: int, sides: Sides) -> None:
        """Recorded pictures, and where things are in them; or pictures drawn again."""
        side = sides[number]
        recorded = list(recorded_pictures(side.view))
        if recorded:
            self._answers.tell(sides, lambda: self._answers.scope.add_pictures(number, recorded))
        try:
            note = (
                self._live_again(number, sides, not recorded) if side.subject is not None else _without(side, recorded)
            )
        except Exception as error:  # an environment may raise anything when it is drawn
            note = str(error) if isinstance(error, MarlnbError) else f"{type(error).__name__}: {error}"
            note = f"{NOT_TOLD} ({note})" if recorded else note
        self._answers.tell(sides, lambda: self._answers.scope.put("notes", number, note))

    def _live_again(self, number: int, sides: Sides, images: bool) -> str:
        """Shows the moments parcel by parcel; what is to be said of them."""
        side, parcel, sent, problem = sides[number], [], time.monotonic(), ""
        assert side.subject is not None

        for picture in drawn_again(side.view, side.subject, side.env, images=images):
            problem = picture.problem
            if picture.spoken is not None:
                self._answers.tell(sides, partial(self._understand, number, picture.spoken))
            if problem and not images:
                break
            parcel.append(picture)
            if time.monotonic() - sent > SEND_S:
                if not self._answers.tell(sides, partial(self._answers.scope.add_pictures, number, parcel)):
                    return ""
                parcel, sent = [], time.monotonic()
        self._answers.tell(sides, partial(self._answers.scope.add_pictures, number, parcel))
        return problem


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
