"""Environments that misbehave: the numbers are right, or an error names the agent, the step and the seed."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from marlnb.cli.output import quiet_stdout
from marlnb.envs.contract import check_vector_env
from marlnb.envs.custom import pettingzoo_vector_env
from marlnb.envs.parallel import ParallelVectorEnv
from marlnb.envs.workers import pool
from marlnb.errors import EnvError
from tests.envs import difficult_envs
from tests.envs.difficult_envs import NESTED

ACTIONS = {"a": torch.zeros(1, 3, dtype=torch.int64)}


@pytest.mark.parametrize("workers", [0, 1])
def test_ragged_tuples_in_dicts_are_gymnasiums_numbers(workers: int) -> None:
    plain = difficult_envs.Nested()
    observations, _ = plain.reset(seed=7)
    with pettingzoo_vector_env(difficult_envs.Nested, 1, workers=workers) as env:
        rows = env.reset(7).groups["a"]
        assert rows.observation.shape == (1, 3, spaces.flatdim(NESTED))
        for _ in range(5):
            for i, agent in enumerate(plain.possible_agents):
                expected = spaces.flatten(NESTED, observations[agent]) if agent in observations else 0.0
                np.testing.assert_array_equal(rows.observation[0, i], np.float32(expected))
            observations, *_ = plain.step(dict.fromkeys(plain.agents, 0))
            observations = {agent: observations[agent] for agent in plain.agents}
            env.step(ACTIONS)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("shapes", r"as 'sizes/0' an array of shape \(3,\); its space says \(2,\)"),
        ("parts", r"as 'sizes' 1 parts; its space says 2"),
        ("choice", r"as 'deep/door' 0; its space says \[3\] choices from \[1\]"),
        ("key", r"KeyError: 'keys'"),
    ],
)
def test_a_part_that_is_wrong_in_one_step(wrong: str, message: str) -> None:
    with pettingzoo_vector_env(difficult_envs.Nested, 1, workers=0, kwargs={"wrong": wrong}) as env:
        env.reset(7)
        env.step(ACTIONS)
        where = "Nested: env 0 failed in step 2 of the episode with seed 7: agent 'a_1' observed "
        with pytest.raises(EnvError, match=where + message):
            env.step(ACTIONS)


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("one number", r"agent 'a_0' observed an array of shape \(1,\); its space says \(3,\)"),
        ("a scalar", r"agent 'a_0' observed an array of shape \(\); its space says \(3,\)"),
        ("two rows", r"agent 'a_0' observed an array of shape \(2, 3\); its space says \(3,\)"),
        ("words", r"agent 'a_0' observed could not convert string to float"),
        ("none", r"agent 'a_0' is in env.agents but has no observation"),
    ],
)
def test_another_shape_now_and_then(what: str, message: str, step: int) -> None:
    """numpy would repeat one number for all three."""
    with pettingzoo_vector_env(difficult_envs.Sometimes, 1, workers=0, kwargs={"what": what, "step": step}) as env:
        when = "while being reset to" if step == 0 else "in step 1 of"
        with pytest.raises(EnvError, match=rf"env 0 failed {when} the episode with seed 7: {message}") as caught:
            env.reset(7)
            env.step({"a": torch.zeros(1, 2, dtype=torch.int64)})
        assert "Traceback" not in str(caught.value)


def test_a_list_is_an_observation() -> None:
    with pettingzoo_vector_env(difficult_envs.Sometimes, 1, workers=0, kwargs={"what": "a list", "step": 1}) as env:
        env.reset(0)
        step = env.step({"a": torch.zeros(1, 2, dtype=torch.int64)})
        assert step.groups["a"].observation[0, 1].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("what", "number"), [("normalised", "0.5"), ("large", "256"), ("negative", "-1"), ("whole", ""), ("bytes", "")]
)
def test_numbers_that_bytes_cannot_hold(what: str, number: str) -> None:
    def build(n_envs: int) -> Any:
        return pettingzoo_vector_env(difficult_envs.Pictures, n_envs, workers=0, kwargs={"what": what})

    if not number:
        with build(1) as env:
            assert (env.reset(0).groups["eye"].observation == (7 if what == "bytes" else 200)).all()
        return
    with pytest.raises(EnvError, match=rf"agent 'eye_0' observed .*{re.escape(number)}.*; its space has dtype uint8"):
        check_vector_env(build)


def test_what_an_agent_saw_is_kept_though_the_environment_writes_to_it() -> None:
    """`slow` waits from step 1 to 2, in which its array is written to."""
    with pettingzoo_vector_env(difficult_envs.Reusing, 1, workers=0, agents_wait=True) as env:
        step = env.reset(0)
        for t in range(1, 5):
            env.step({name: torch.zeros(1, 1, dtype=torch.int64) for name in ("quick", "slow")})
            assert step.groups["quick"].observation[0, 0, 0] == t
            assert step.groups["slow"].observation[0, 0, 0] == (0 if t < 3 else 3)


def test_it_prints(capfd: pytest.CaptureFixture[str]) -> None:
    """The result of a command is not mixed with it."""
    with quiet_stdout(), pettingzoo_vector_env(difficult_envs.Rude, 1, workers=1, kwargs={"how": "prints"}) as env:
        env.reset(0)
        for _ in range(3):
            env.step(ACTIONS)
    output = capfd.readouterr()
    assert output.out == "" and output.err.count("printed") == 30_000


@pytest.mark.parametrize("workers", [0, 1])
def test_it_exits(workers: int) -> None:
    with pettingzoo_vector_env(difficult_envs.Rude, 1, workers=workers, kwargs={"how": "exits"}) as env:
        env.reset(7)
        env.step(ACTIONS)
        with pytest.raises(EnvError, match=r"(?s)env 0 failed in step 2 of the episode with seed 7.*SystemExit: 3"):
            env.step(ACTIONS)


def _is_alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _left_over(log: Path) -> list[int]:
    """The processes in the log that live on; some milliseconds pass between a signal and the end of a process."""
    numbers = [int(line) for line in log.read_text().split()]
    for _ in range(100):
        if not any(map(_is_alive, numbers)):
            break
        time.sleep(0.05)
    return [number for number in numbers if _is_alive(number)]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_processes_that_it_started_end_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pettingzoo_vector_env(
        difficult_envs.Rude, 2, workers=2, kwargs={"how": "starts processes", "log": str(log)}
    ) as env:
        env.reset(0)
        assert len(log.read_text().split()) == 3  # one of the reset that reads the spaces
    assert _left_over(log) == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_a_killed_worker_is_noticed_though_its_fork_lives(tmp_path: Path) -> None:
    """The fork would hold the end of the pipe at which the parent waits."""
    log = tmp_path / "log"
    env = pettingzoo_vector_env(difficult_envs.Rude, 1, workers=1, kwargs={"how": "forks", "log": str(log)})
    env.reset(0)
    env.step(ACTIONS)
    with pytest.raises(EnvError, match="was killed by SIGKILL"):
        env.step(ACTIONS)
    assert _left_over(log) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_it_raises_in_the_thousandth_step(workers: int) -> None:
    with pettingzoo_vector_env(difficult_envs.Thousandth, 1, workers=workers) as env:
        env.reset(7)
        for _ in range(999):
            env.step(ACTIONS)
        with pytest.raises(EnvError, match=r"(?s)env 0 failed in step 1000 of the episode with seed 7.*its balance"):
            env.step(ACTIONS)


def test_a_slow_reset_is_waited_for() -> None:
    with pettingzoo_vector_env(difficult_envs.Slow, 1, workers=1, kwargs={"reset_s": 1.0}) as env:
        started = time.monotonic()
        assert env.reset(7).groups["a"].observation[0, 0].tolist() == [0, 1, 7]
        assert time.monotonic() - started >= 1.0


def test_a_reset_of_a_minute_ends_at_the_second_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one waits until the environment can continue later."""
    monkeypatch.setattr(pool, "_GRACE_S", 0.1)

    def interrupt() -> None:
        for _ in range(2):
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGINT)

    env = pettingzoo_vector_env(difficult_envs.Slow, 1, workers=1, kwargs={"reset_s": 60.0})
    assert isinstance(env, ParallelVectorEnv) and isinstance(env._stepper, pool.Pool)
    (worker,) = env._stepper.workers
    started = time.monotonic()
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        env.reset(7)
    assert 1.0 <= time.monotonic() - started < 30 and worker.process.poll() is not None
    with pytest.raises(EnvError, match="is closed"):
        env.reset(7)


def test_a_folder_and_handlers_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGINT)
    for how in ("changes directory", "sets handlers"):
        with pettingzoo_vector_env(difficult_envs.Rude, 1, workers=0, kwargs={"how": how}) as env:
            env.reset(0)
            for _ in range(3):
                env.step(ACTIONS)
                assert os.getcwd() == str(tmp_path) and signal.getsignal(signal.SIGINT) is handler
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN


def _groups(names: list[str], **options: Any) -> tuple[str, ...]:
    with pettingzoo_vector_env(difficult_envs.Named, 1, workers=0, kwargs={"names": names}, **options) as env:
        return env.spec.group_names


def test_the_groups_of_names_with_slashes() -> None:
    assert _groups(["team/red_0", "team/red_1", "team/blue_0"]) == ("team_red", "team_blue")
    assert json.dumps(_groups(["a/b", "c"])) == '["a_b", "c"]'
