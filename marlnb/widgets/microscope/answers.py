"""Answers: what threads find out about the episodes that are shown, dropped where others are shown by then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from marlnb.config import EnvConfig
from marlnb.training.policies.policy_source import PolicySource
from marlnb.widgets.core.ui_lock import TURN
from marlnb.widgets.core.worker import Newest
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.scope import Scope

START_S = 0.4  # the page is drawn first


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
    subject: PolicySource | None
    unknown: str = ""
    env: EnvConfig | None = None
    edited: bool = False
    compared_with: EpisodeView | None = None


Sides = tuple[Shown, ...]


class Answers:
    """Attributes: scope: what is answered to. sides: what is shown now; changed in turn."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.sides: Sides = ()
        self._threads: list[threading.Thread] = []

    def ask(self, worker: Newest, work: Callable[[], None]) -> None:
        """Works in a thread; what it raises is said at the scope."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(worker.ask(work, lambda _: None, self._fail))

    def tell(self, sides: Sides, change: Callable[[], None]) -> bool:
        """Changes the scope in turn, if it still shows these sides; whether it does."""
        with TURN:
            if sides is self.sides:
                change()
            return sides is self.sides

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until everything is there; False where that takes longer."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in list(self._threads):
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _fail(self, error: Exception) -> None:
        self.scope.notes = [f"{type(error).__name__}: {error}" for _ in self.sides]
