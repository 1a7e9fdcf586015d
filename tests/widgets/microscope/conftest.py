"""Recordings of the trained runs that come with the package, made once for all of these tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import marlnb as mnb

DATA = Path(__file__).parents[3] / "data"


@pytest.fixture(scope="session")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mnb.Recording]:
    """Twelve episodes of the trained speaker and listener, without frames."""
    run = tmp_path_factory.mktemp("listener") / "run"
    shutil.copytree(DATA / "speaker_listener", run)
    with mnb.record(run, episodes=12, sites=["*/actor/*", "*/critic/hidden_1"], progress=False) as recording:
        yield recording


@pytest.fixture(scope="session")
def tag(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mnb.Recording]:
    """Four episodes of the trained tag with sampled actions, two of them drawn at every fifth step."""
    run = tmp_path_factory.mktemp("tag") / "run"
    shutil.copytree(DATA / "simple_tag", run)
    with mnb.record(run, episodes=4, explore=True, n_envs=2, progress=False) as recording:
        yield recording
