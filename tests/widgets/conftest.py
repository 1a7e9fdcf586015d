"""Ends panels' threads with their test, since they draw from torch's global generator; frequent thread switches."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from marlnb.widgets.core.background import wait_for_requests


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Switches threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    yield
    wait_for_requests()
    for thread in threading.enumerate():
        if thread.name.startswith("training "):
            thread.join(120)
            assert not thread.is_alive(), "a test left a training run behind"
