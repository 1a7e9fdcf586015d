"""Load what takes longer than drawing, in threads: frames, positions of objects, attributions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from marlnb.errors import MarlnbError
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.microscope.attribution import AttributionLoader
from marlnb.widgets.microscope.background import START_DELAY_S, BackgroundAnswers, Side, Sides
from marlnb.widgets.microscope.frames import recorded_frames, replayed_frames
from marlnb.widgets.microscope.objects import NOT_SUPPLIED
from marlnb.widgets.microscope.scope import Scope

SEND_EVERY_S = 0.3  # frames are sent in batches


class Loader:
    """Loads frames and attributions of the sides that are shown; results about earlier sides are dropped.

    Attributes:
        attributions: loads the attributions.
    """

    def __init__(self, scope: Scope, on_attributed: Callable[[], None]) -> None:
        self._answers = BackgroundAnswers(scope)
        self.attributions = AttributionLoader(self._answers, on_attributed)
        self._frame_worker = LatestOnly(wait_s=START_DELAY_S)

    @with_ui_lock
    def begin(self, sides: Sequence[Side]) -> None:
        """Drops everything about earlier sides and loads the frames of these."""
        self._answers.sides = shown = tuple(sides)
        self.attributions.begin()

        def load() -> None:
            for number in range(len(shown)):
                self._load(number, shown)
            self._answers.apply(shown, self._answers.scope.settle)

        self._answers.request(self._frame_worker, load)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until everything is loaded; returns False if that takes longer than `timeout_s`."""
        return self._answers.wait(timeout_s)

    def _load(self, number: int, sides: Sides) -> None:
        """Sends recorded frames and replayed positions of objects; or replayed frames with both."""
        side = sides[number]
        recorded = list(recorded_frames(side.view))
        if recorded:
            self._answers.apply(sides, lambda: self._answers.scope.add_frames(number, recorded))
        try:
            if side.source is not None:
                note = self._replay(number, sides, images=not recorded)
            elif recorded:
                note = f"no attribution and no edits: {side.unknown}"
            else:
                note = f"no pictures were recorded, and {side.unknown}"
        except Exception as error:  # an environment may raise anything when it is drawn
            note = str(error) if isinstance(error, MarlnbError) else f"{type(error).__name__}: {error}"
            note = f"{NOT_SUPPLIED} ({note})" if recorded else note
        self._answers.apply(sides, lambda: self._answers.scope.put("notes", number, note))

    def _replay(self, number: int, sides: Sides, *, images: bool) -> str:
        """Sends replayed frames in batches. Returns a note for the user."""
        side, batch, sent_at, problem = sides[number], [], time.monotonic(), ""
        assert side.source is not None
        set_objects = self.attributions.set_feature_objects
        for frame in replayed_frames(side.view, side.source, side.env, images=images):
            problem = frame.problem
            if frame.feature_objects is not None:
                self._answers.apply(sides, partial(set_objects, number, frame.feature_objects))
            if problem and not images:
                break
            batch.append(frame)
            if time.monotonic() - sent_at > SEND_EVERY_S:
                if not self._answers.apply(sides, partial(self._answers.scope.add_frames, number, batch)):
                    return ""
                batch, sent_at = [], time.monotonic()
        self._answers.apply(sides, partial(self._answers.scope.add_frames, number, batch))
        return problem
