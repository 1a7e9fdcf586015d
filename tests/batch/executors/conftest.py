"""What the tests of executors share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.batch.batches import Maker


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    """Batches in a folder of the test's own; so are the locks by which supervisors share cores."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    maker = Maker(tmp_path)
    yield maker
    maker.end()
