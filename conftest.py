"""What every test runs under: no screen, no network loggers, one torch thread, Ctrl-C heard, draws of its own.

Also collects the code blocks of the documentation's pages (`tests/pages.py`).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from marlnb.batch.job.run_job import skip_url_grammar
from tests.pages import pytest_collect_file as pytest_collect_file

if "PYTEST_XDIST_WORKER" not in os.environ:  # what killed processes leave is removed after all tests
    os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.gettempdir()  # folders of failed tests stay
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="marlnb-tests-")
os.environ.update(
    MPLBACKEND="Agg",
    SDL_VIDEODRIVER="dummy",
    SDL_AUDIODRIVER="dummy",
    PYGAME_HIDE_SUPPORT_PROMPT="1",
    WANDB_MODE="offline",
    JUPYTER_PLATFORM_DIRS="1",
    MARLNB_DATA_DIR=tempfile.mkdtemp(prefix="marlnb-data-"),  # what the tests train is not trusted after them
)
torch.set_num_threads(1)
skip_url_grammar()
SLOW_FILES = [  # over half a minute, the longest first
    "tests/batch/job/test_kills.py",
    "tests/groundtruth/test_analyses.py",
    "tests/batch/executors/test_local.py",
    "tests/algorithms/gradients/test_compiled.py",
    "tests/batch/job/test_execute_notebook.py",
    "tests/batch/job/test_run_job.py",
    "tests/groundtruth/test_dictionary_analyses.py",
    "tests/populations/training/league/test_loop.py",
    "tests/populations/training/league/test_stacked_opponents.py",
    "tests/envs/test_vmas.py",
    "tests/faults/test_faults.py",
    "tests/widgets/test_headless.py",
    "tests/batch/test_benchmark.py",
    "tests/training/test_train.py",
    "tests/batch/test_monitor.py",
    "tests/recording/capture/test_while_training.py",
    "tests/examples/test_executor.py",
    "tests/batch/test_submit_for_real.py",
    "docs/benchmarks.md",
    "tests/notebooks/test_quickstart.py",
    "tests/notebooks/test_first_hour.py",
    "tests/notebooks/test_teaching.py",
    "tests/notebooks/test_compare.py",
]
# `make test &` of a script ignores it, and so would all that the tests start
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


def seed_draws(name: str) -> None:
    """`MARLNB_TEST_DRAWS=1` and so on: other draws, to find tests that pass by luck."""
    seed = zlib.crc32(f"{name} {os.environ.get('MARLNB_TEST_DRAWS', '0')}".encode())
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test draws the same whatever ran before it in its process."""
    seed_draws(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """What tests share is drawn the same whichever of them asks first, and takes no draws from that one."""
    if fixturedef.scope == "function":
        return (yield)
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    seed_draws(f"{fixturedef.baseid}::{fixturedef.argname}")
    try:
        return (yield)
    finally:
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """No training run outlives its test: it would take a core from the others, and hold locks when they fork.

    The next test has one thread of torch again, whatever this one left.
    """
    torch.set_num_threads(1)
    left = [thread for thread in threading.enumerate() if thread.name.startswith("training ")]
    for thread in left:
        thread.join(timeout=10)
    names = [thread.name for thread in left if thread.is_alive()]
    assert not names, f"{item.nodeid} leaves {', '.join(names)}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, so that the processes of `make test`, which take a file each, end together."""
    order = {path: place for place, path in enumerate(SLOW_FILES)}
    items.sort(key=lambda item: order.get(item.nodeid.split("::")[0], len(order)))


@pytest.fixture
def own_modules_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test imports from its own folder is not found by the tests after it in the same process."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{tmp_path}{os.sep}"):
            del sys.modules[name]
