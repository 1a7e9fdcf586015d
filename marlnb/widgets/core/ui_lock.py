"""Locks for code that runs in several threads: one for changes of widgets, one for drawing environments.

Widgets are changed from several threads: browser events run in the kernel's main thread or in one of its subshells,
calls from a cell in the main thread, `BackgroundTask`, `LatestOnly` and `Poller` in threads that they start. The rules:

- Controls (`marlnb.widgets.core.controls`) hold UI_LOCK for a browser event and for everything that follows from it.
- `BackgroundTask`, `LatestOnly` and `Poller` hold it while they deliver a result, not while they compute it.
- Methods that a cell calls and that change a panel are marked `@with_ui_lock`.

So do nothing slow while you hold UI_LOCK, and never wait for a thread that needs it. Code that draws an environment
holds RENDER_LOCK and does not take UI_LOCK inside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

UI_LOCK = threading.RLock()
"""Hold it while you change a panel."""
RENDER_LOCK = threading.RLock()
"""Hold it while you draw an environment: two threads must neither import pygame nor draw with it at the same time."""


def with_ui_lock(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function or method that changes a panel: it waits for UI_LOCK and holds it."""

    @wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with UI_LOCK:
            return function(*args, **kwargs)

    return locked
