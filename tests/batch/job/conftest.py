from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def same_umask() -> Iterator[None]:
    """The commands of a job change the umask of their process; here it is that of the tests."""
    umask = os.umask(0o022)
    os.umask(umask)
    yield
    os.umask(umask)
