"""What panels work on in threads ends with their test: such work draws from torch's global generator, as tests do."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from marlnb.widgets.worker import settle


@pytest.fixture(autouse=True)
def nothing_goes_on_in_threads() -> Iterator[None]:
    yield
    settle()
    for thread in threading.enumerate():
        if thread.name.startswith("training "):
            thread.join(10)
            assert not thread.is_alive(), "a test left a training behind"
