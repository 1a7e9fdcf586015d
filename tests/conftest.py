"""What every test runs under: no screen, no network loggers, one torch thread, Ctrl-C heard."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

os.environ.update(
    MPLBACKEND="Agg",
    SDL_VIDEODRIVER="dummy",
    SDL_AUDIODRIVER="dummy",
    PYGAME_HIDE_SUPPORT_PROMPT="1",
    WANDB_MODE="offline",
    JUPYTER_PLATFORM_DIRS="1",
)
torch.set_num_threads(1)
# `make test &` of a script ignores it, and so would all that the tests start
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def own_modules_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test imports from its own folder is not found by the tests after it in the same process."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{tmp_path}{os.sep}"):
            del sys.modules[name]
