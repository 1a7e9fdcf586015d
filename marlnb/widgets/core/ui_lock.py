"""TURN: held by whoever changes a panel, so that clicks, answers and looks at files change it one after the other.

A page's clicks come in the kernel's main thread or in one of its subshells, a cell's calls in the main thread, what
took long (`Newest`, `Work`) and what looks at files (`Poller`) in threads of their own. The rule:

- Controls (`marlnb.widgets.core.controls`) take the turn themselves, for what a page sends and for whatever follows from it.
- `Newest`, `Work` and `Poller` take it for the answer, and not for the work.
- Methods that a cell calls and that change a panel are marked `@in_turn`.

So nothing that takes long may be done in turn, and nobody who has the turn may wait for a thread that needs it: for a
recording to end, or an answer to come. Who paints (`marlnb.widgets.core.painting`) does not take the turn meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

TURN = threading.RLock()


def in_turn(change: Callable[P, R]) -> Callable[P, R]:
    """A function or method that is called by whoever has the turn, and waits for it."""

    @wraps(change)
    def changes(*arguments: P.args, **options: P.kwargs) -> R:
        with TURN:
            return change(*arguments, **options)

    return changes
