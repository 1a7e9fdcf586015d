"""Worker processes: what they load, how they fail, and that none is ever left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from marlnb.envs.custom import pettingzoo_vector_env
from marlnb.envs.parallel import ParallelVectorEnv
from marlnb.envs.pettingzoo import PettingZooConfig
from marlnb.envs.vector import VectorEnv
from marlnb.envs.workers import pool
from marlnb.envs.workers.pool import Pool
from marlnb.envs.workers.process import COMMAND_BYTES
from marlnb.errors import EnvError
from tests.envs import sample_envs

NOTHING = {"a": torch.zeros(2, 3, dtype=torch.int64)}
ROOT = Path(__file__).parents[2]


def pids(env: VectorEnv) -> list[int]:
    assert isinstance(env, ParallelVectorEnv) and isinstance(env._stepper, Pool)
    return [worker.process.pid for worker in env._stepper.workers]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pids: list[int], within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not any(map(runs, pids)):
            return True
        time.sleep(0.02)
    return False


def memory(pid: int) -> list[str]:
    """What a process maps that it shares: memory without a name needs no clearing up, that in /dev/shm would."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sorted({line.split()[5] for line in lines if "memfd:" in line or "/dev/shm" in line})


def test_every_allowed_number_of_workers_has_an_answer_slot() -> None:
    (workers,) = (option for option in fields(PettingZooConfig) if option.name == "workers")
    assert 2 + workers.metadata["le"] <= COMMAND_BYTES // 8


def test_workers_are_other_processes_without_torch() -> None:
    with pettingzoo_vector_env(sample_envs.Inside, 4, workers=2) as env:
        seen = env.reset(0).groups["a"].observation
        assert seen[:, 0, 0].tolist() == [pids(env)[0]] * 2 + [pids(env)[1]] * 2
        assert (seen[:, :2, 1] == 0).all()
        assert seen[0, 0, 0] != os.getpid()


@pytest.mark.parametrize(("workers", "n_envs", "expected"), [(3, 2, 2), (1, 2, 1)])
def test_number_of_workers(workers: int, n_envs: int, expected: int) -> None:
    with pettingzoo_vector_env(sample_envs.Scripted, n_envs, workers=workers) as env:
        assert len(pids(env)) == expected


def test_close_ends_them_and_may_be_repeated() -> None:
    env = pettingzoo_vector_env(sample_envs.Scripted, 2, workers=2)
    env.reset(0)
    mine = pids(env)
    assert [memory(pid) for pid in mine] == [["/memfd:marlnb"]] * 2
    env.close()
    env.close()
    assert not any(map(runs, mine))
    with pytest.raises(EnvError, match="closed"):
        env.step(NOTHING)


def test_forgotten_ones_end_too() -> None:
    env = pettingzoo_vector_env(sample_envs.Scripted, 2, workers=1)
    mine = pids(env)
    del env
    assert gone(mine)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_inside_says_where_and_ends_the_workers(workers: int) -> None:
    env = pettingzoo_vector_env(sample_envs.Raising, 2, workers=workers, kwargs={"seed": 8})
    mine = pids(env) if workers else []
    env.reset(7)
    env.step(NOTHING)
    with pytest.raises(EnvError, match=r"env 1 failed in step 2 of the episode with seed 8") as caught:
        env.step(NOTHING)
    assert "ZeroDivisionError: the ball is nowhere" in str(caught.value)
    assert "sample_envs.py" in str(caught.value)
    assert not any(map(runs, mine))
    env.close()


def test_a_killed_worker_is_named() -> None:
    with pettingzoo_vector_env(sample_envs.Scripted, 2, workers=2) as env:
        env.reset(0)
        mine = pids(env)
        os.kill(mine[1], signal.SIGKILL)
        with pytest.raises(EnvError, match=rf"envs \[1\] \(process {mine[1]}\) was killed by SIGKILL"):
            for _ in range(3):
                env.step(NOTHING)
        assert not any(map(runs, mine))


def test_an_environment_that_cannot_be_built_leaves_nothing() -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(EnvError, match="no keyword argument 'colour'"):
        pettingzoo_vector_env(sample_envs.Scripted, 2, workers=2, kwargs={"colour": "red"})
    assert set(os.listdir("/proc/self/fd")) <= before


def test_an_interrupt_waits_for_the_step() -> None:
    with pettingzoo_vector_env(sample_envs.Interrupting, 2, workers=2) as env:
        env.reset(0)
        with pytest.raises(KeyboardInterrupt):
            env.step(NOTHING)
        step = env.step(NOTHING)
        assert step.groups["a"].observation[:, 0, 0].tolist() == [2.0, 2.0]  # the interrupted step was made, once


def test_a_second_interrupt_gives_up_on_a_hanging_environment() -> None:
    def heard(number: int, frame: object) -> None:
        """Sends the second once the first was heard, as two that are unheard are one."""
        signal.signal(signal.SIGINT, before)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        raise KeyboardInterrupt

    env = pettingzoo_vector_env(sample_envs.Hanging, 2, workers=2)
    mine = pids(env)
    env.reset(0)
    before = signal.signal(signal.SIGINT, heard)
    with pytest.raises(KeyboardInterrupt):
        env.step(NOTHING)
    assert not any(map(runs, mine))


def test_a_second_interrupt_gives_up_where_the_first_came_while_workers_were_woken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = pettingzoo_vector_env(sample_envs.Hanging, 2, workers=2)
    env.reset(5)  # no environment of this seed interrupts by itself
    wake = Pool._wake

    def wake_and_interrupt(of: Pool, worker: Any) -> None:
        monkeypatch.setattr(Pool, "_wake", wake)
        wake(of, worker)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Pool, "_wake", wake_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        env.step(NOTHING)
    assert not any(map(runs, pids(env)))


def test_an_interrupt_while_workers_end_leaves_none() -> None:
    env = pettingzoo_vector_env(sample_envs.InterruptingAtTheEnd, 2, workers=2)
    env.reset(0)
    assert isinstance(env, ParallelVectorEnv) and isinstance(env._stepper, Pool)
    processes = [worker.process for worker in env._stepper.workers]
    with pytest.raises(KeyboardInterrupt):
        env.close()
    assert all(process.returncode is not None for process in processes)  # none is left as a zombie either


def test_an_interrupt_before_workers_are_ended_leaves_them_to_the_next_close(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    env = pettingzoo_vector_env(sample_envs.Scripted, 2, workers=1)
    assert isinstance(env, ParallelVectorEnv) and isinstance(env._stepper, Pool)
    with monkeypatch.context() as early:
        early.setattr(pool, "interrupts_after", interrupted)
        with pytest.raises(KeyboardInterrupt):
            env._stepper.close()
    env._stepper.close()
    assert not any(map(runs, pids(env)))


SCRIPT = """
import functools, os, subprocess, sys, time
import numpy as np, torch
from gymnasium import spaces
from pettingzoo import ParallelEnv
import marlnb
from marlnb.envs.custom import environment, pettingzoo_vector_env
from marlnb.config import ENVIRONMENTS

class Mine(ParallelEnv):
    metadata = {"name": "mine"}
    possible_agents = ["p_0"]
    def __init__(self, x=1): self.x = x
    @functools.lru_cache(maxsize=None)  # as in PettingZoo's tutorials
    def observation_space(self, agent): return spaces.Box(0, 100, (1,), np.float32)
    @functools.cache
    def action_space(self, agent): return spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        if STARTS: subprocess.Popen(["sleep", "1000"])
        self.agents = ["p_0"]
        return {"p_0": np.array([self.x], np.float32)}, {"p_0": {}}
    def step(self, actions):
        if SLEEP: time.sleep(1000)
        return {"p_0": np.array([self.x + 1], np.float32)}, {"p_0": 1.0}, {"p_0": False}, {"p_0": False}, {"p_0": {}}

@environment("my/env")
def make(x=1):
    return Mine(x)

SLEEP, STARTS = "sleep" in sys.argv, len(sys.argv) > 1
env = ENVIRONMENTS.get("my/env")(workers=2, kwargs={"x": 41}).build(2)
env.reset(0)
print(*[worker.process.pid for worker in env._stepper.workers], flush=True)
step = env.step({"p": torch.zeros(2, 1, dtype=torch.int64)})
print(step.groups["p"].observation.flatten().tolist(), flush=True)
if "wait" in sys.argv: time.sleep(1000)
"""


def script(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    file = tmp_path / "mine.py"
    file.write_text(textwrap.dedent(SCRIPT))
    return subprocess.Popen(
        [sys.executable, str(file), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_an_environment_of_a_script_without_a_main_guard(tmp_path: Path) -> None:
    """Defined in __main__, and not closed: the end of the script ends the workers, quietly."""
    with script(tmp_path) as process:
        out, err = process.communicate(timeout=200)
    lines = out.splitlines()
    assert process.returncode == 0 and err == "", err
    assert lines[1] == "[42.0, 42.0]"
    assert gone([int(pid) for pid in lines[0].split()])


@pytest.mark.parametrize("state", ["wait", "sleep"])
def test_a_killed_parent_takes_its_workers_along(tmp_path: Path, state: str) -> None:
    """Whether they wait for an order or are in the middle of a step; and the processes that environments started."""
    with script(tmp_path, state) as process:
        assert process.stdout is not None
        mine = [int(pid) for pid in process.stdout.readline().split()]
        if state == "wait":
            process.stdout.readline()
        else:
            time.sleep(0.3)
        assert len(mine) == 2 and [memory(pid) for pid in (process.pid, *mine)] == [["/memfd:marlnb"]] * 3
        started = [int(n) for pid in mine for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        process.kill()
        assert len(started) >= 2 and gone([*mine, *started])


def test_workers_of_a_thread_outlive_it() -> None:
    made: list[VectorEnv] = []
    thread = threading.Thread(target=lambda: made.append(pettingzoo_vector_env(sample_envs.Scripted, 2, workers=1)))
    thread.start()
    thread.join()
    time.sleep(0.2)
    with made[0] as env:
        assert env.reset(0).groups["a"].alive.sum() == 4
