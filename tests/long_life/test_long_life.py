"""A short form of `make long-life`: what a kernel holds after some cycles. Interrupts are tried there alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import marlnb as mnb
from marlnb.envs import regroup
from marlnb.envs.parallel import ParallelVectorEnv
from marlnb.recording.capture.config import RecordingConfig
from marlnb.training.trainer import Trainer
from tests.long_life import every_line
from tests.long_life.cycles import growth, run_cycles
from tests.long_life.kernel import Holdings


@pytest.mark.timeout(300)
def test_cycles_leave_nothing(tmp_path: Path) -> None:
    grown = growth(run_cycles(3, tmp_path))
    assert {name: value for name, value in grown.items() if value > 0 and name != "memory_mb_per_cycle"} == {}
    assert grown["memory_mb_per_cycle"] < 40  # of three cycles, most is warming up


@pytest.mark.parametrize(
    ("function", "number"),
    [(ParallelVectorEnv._allocate, 1), (regroup._build, 1), (Trainer._write_status, 3)],  # the third one is the last
)
def test_an_interrupt_while_a_training_begins_or_ends_leaves_no_process(
    tmp_path: Path, function: Callable[..., object], number: int
) -> None:
    file = Path(inspect.getfile(function)).relative_to(every_line.PACKAGE)
    lines, start = inspect.getsourcelines(function)
    last = function is regroup._build  # the environment is returned, and no `with` closes it yet
    position = (str(file), start + (len(lines) - 1 if last else 2))
    call = partial(mnb.train, mnb.Experiment.compose(*every_line.OVERRIDES), tmp_path / "run", progress=False)
    assert every_line.left_after(call, position, number) == ""


def test_an_interrupt_while_a_verb_opens_an_environment_leaves_no_process(tmp_path: Path) -> None:
    run = mnb.train(mnb.Experiment.compose(*every_line.OVERRIDES), tmp_path / "run", progress=False)
    lines, start = inspect.getsourcelines(regroup._build)
    position = (str(Path(inspect.getfile(regroup)).relative_to(every_line.PACKAGE)), start + len(lines) - 1)
    assert every_line.left_after(partial(mnb.plan_recording, run), position, 1) == ""
    unprotected = inspect.unwrap(mnb.plan_recording)
    assert every_line.left_after(partial(unprotected, run, RecordingConfig()), position, 1) == "1 processes"


def test_growth_is_noticed() -> None:
    leaking = [Holdings(100 + cycle, 10, 0, 20 + cycle, 1, 2 * cycle) for cycle in range(20)]
    grown = {"threads": 0, "processes": 0, "files": 7, "shared": 0, "widgets": 14, "memory_mb_per_cycle": 1.0}
    assert growth(leaking) == grown
    assert {name: value for name, value in growth(leaking[:3]).items() if value > 0} == {
        "files": 1,
        "widgets": 2,
        "memory_mb_per_cycle": 1.0,
    }
