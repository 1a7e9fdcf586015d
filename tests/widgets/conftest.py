"""Panels' threads: what they work on ends with their test, as it draws from torch's global generator; and haste."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from marlnb.widgets.core.worker import settle


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads are switched as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True)
def nothing_goes_on_in_threads() -> Iterator[None]:
    yield
    settle()
    for thread in threading.enumerate():
        if thread.name.startswith("training "):
            thread.join(120)
            assert not thread.is_alive(), "a test left a training behind"
