"""BackgroundAnswers: results of threads about the shown episodes, dropped if other episodes are shown by then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from marlnb.config import EnvConfig
from marlnb.errors import MarlnbError
from marlnb.training.policies.policy_source import PolicySource
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.ui_lock import UI_LOCK
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.scope import Scope

START_DELAY_S = 0.4  # the page is drawn first


@dataclass(frozen=True, eq=False)
class Side:
    """An episode that a microscope shows, alone or next to another one.

    Attributes:
        view: the episode.
        title: above it.
        source: the policies that played; None if they are not known.
        unknown: why they are not known.
        env: the environment, if it is not that of `source`.
        is_edited: whether the networks were edited while they played.
        compared_with: the episode whose recording supplies the mean observation for attribution; None: this one.
    """

    view: EpisodeView
    title: str
    source: PolicySource | None
    unknown: str = ""
    env: EnvConfig | None = None
    is_edited: bool = False
    compared_with: EpisodeView | None = None

    @cached_property
    def weights(self) -> str | None:
        """The hash of the networks' weights; None if several checkpoints played, or one that is deleted by now."""
        try:
            if self.compared_with is None or self.source is None:
                return self.view.origin.sha256
            # the recording of networks that only observe has the hash of observers
            return self.source.origin(self.view.checkpoint).sha256
        except MarlnbError:
            return None


Sides = tuple[Side, ...]


class BackgroundAnswers:
    """Runs threads and shows their results if they are still about the shown episodes.

    Attributes:
        scope: where results are shown.
        sides: what is shown now; changed under UI_LOCK.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.sides: Sides = ()
        self._threads: list[threading.Thread] = []

    def request(self, worker: LatestOnly, run: Callable[[], None]) -> None:
        """Calls `run` in a thread; what it raises is shown in the scope."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(worker.request(run, lambda _: None, self._fail))

    def apply(self, sides: Sides, change: Callable[[], None]) -> bool:
        """Calls `change` under UI_LOCK if the scope still shows these sides. Returns whether it does."""
        with UI_LOCK:
            if sides is self.sides:
                change()
            return sides is self.sides

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for all threads; returns False if that takes longer than `timeout_s`."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in list(self._threads):
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _fail(self, error: Exception) -> None:
        self.scope.notes = [f"{type(error).__name__}: {error}" for _ in self.sides]
