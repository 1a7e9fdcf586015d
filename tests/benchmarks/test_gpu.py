"""The benchmark of batched environments compares like with like."""

from __future__ import annotations

import pytest

from benchmarks.drivers.on_gpu import TAG
from marlnb.config import ENVIRONMENTS


def test_both_sides_play_the_same_game() -> None:
    config = ENVIRONMENTS.get("tag/continuous")()
    for settings in TAG.values():
        assert {name: getattr(config, name) for name in settings.options} == pytest.approx(settings.options)
