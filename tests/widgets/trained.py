"""A small run with several checkpoints, trained once; each test gets a copy of it."""

from __future__ import annotations

import html
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from marlnb.widgets.core.ui_lock import UI_LOCK

SMALL = (
    *("env=mpe/simple_speaker_listener", "algorithm=mappo", "n_envs=4", "rollout_steps=25", "threads=1"),
    *("algorithm.epochs=1", "checkpoint_every=3", "keep_checkpoints=0"),
)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(Experiment.compose(*SMALL, "frames=900"), tmp_path_factory.mktemp("trained") / "run").path


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(original, tmp_path / "run"))


def until(holds: Callable[[], object], deadline_s: float = 300.0) -> None:
    """Waits until a condition holds. It is checked under UI_LOCK: never in the middle of a change."""
    end = time.monotonic() + deadline_s
    while True:
        with UI_LOCK:
            if holds():
                return
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def text_of(widget: object) -> str:
    """The text of an HTML widget."""
    return html.unescape(re.sub(r"<[^>]*>", "", widget.value))  # type: ignore[attr-defined]
