"""Fifty kills at random moments over one training run: weights and curve are the undisturbed run's.

Signals and targets are mixed: USR1 and TERM to the job, KILL to the job, KILL to its kernel; half of them fall anywhere
from the first import on, half while it trains. About ten minutes on an idle machine. MARLNB_KILLS_SEED repeats one.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from marlnb.batch.job.job import Job
from tests.cluster import notebooks
from tests.cluster.evidence import evidence, iterations
from tests.cluster.processes import children, until

KILLS = int(os.environ.get("MARLNB_KILLS", "50"))
ITERATIONS = 2500
WAYS = ("USR1 job", "TERM job", "KILL job", "KILL kernel")


def begin(job: Job) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "marlnb.batch.job.run_job", str(job.folder)], start_new_session=True)


def made(folder: Path, notebook: Path, **parameters: object) -> Job:
    job = Job(folder, notebook, {"iterations": ITERATIONS, **parameters}, folder.parent)
    job.write()
    return job


@pytest.mark.timeout(3600)
def test_weights_after_fifty_kills_are_those_of_the_undisturbed_run(tmp_path: Path) -> None:
    seed = int(os.environ.get("MARLNB_KILLS_SEED", time.time_ns() % 10**6))
    print(f"\nMARLNB_KILLS_SEED={seed}")
    source = notebooks.write(tmp_path / "training.ipynb", notebooks.TRAINING)
    undisturbed = made(tmp_path / "undisturbed", source)
    started = time.monotonic()
    assert begin(undisturbed).wait() == 0
    print(f"undisturbed: {time.monotonic() - started:.0f} s")

    killed = made(tmp_path / "killed", source)
    counts = kill_again_and_again(killed, random.Random(seed))
    process = begin(killed)
    assert process.wait() == 0, killed.log.read_text()[-3000:]

    print(dict(counts))
    expected, actual = evidence(undisturbed.folder), evidence(killed.folder)
    assert actual.iteration == expected.iteration == ITERATIONS
    assert actual.tensors == expected.tensors
    assert actual.curve == expected.curve
    cells, expected_cells = (notebooks.executed_cells(one.folder / "notebook.ipynb") for one in (killed, undisturbed))
    assert cells == expected_cells
    assert sum(counts.values()) == KILLS
    assert counts["while training"] >= KILLS // 4


def kill_again_and_again(job: Job, chance: random.Random) -> Counter[str]:
    """Kills it `KILLS` times; returns how often each way, less those that came too late to hit anything."""
    counts: Counter[str] = Counter()
    while sum(counts.values()) < KILLS:
        way, while_training = chance.choice(WAYS), chance.random() < 0.6
        process = begin(job)
        when = _await_time_to_kill(job, process, chance, while_training)
        hit = _kill(process, way)
        code = process.wait(timeout=120)
        assert code in (75, -9, -signal.SIGTERM, -signal.SIGUSR1), (
            f"{way}, {when}: ended with {code}\n{job.log.read_text()[-3000:]}"
        )
        until("the lock is free and the kernel gone", lambda: not job.is_executing, timeout_s=20)
        counts[when if hit else "nothing hit"] += hit
        done = iterations(job.folder)
        print(
            f"{sum(counts.values()):3} {way:11} {when:15} -> {code:3}, {done} of {ITERATIONS} iterations",
            flush=True,
        )
        assert done < ITERATIONS, "the training ended before all kills had come; make it longer"
    return counts


def _await_time_to_kill(job: Job, process: subprocess.Popen[bytes], chance: random.Random, while_training: bool) -> str:
    """Waits for a random moment and says which kind it is."""
    if not while_training:
        time.sleep(chance.uniform(0, 6))
        return "at any time"
    before = iterations(job.folder)
    until(
        "it trains", lambda: iterations(job.folder) > before or process.poll() is not None, timeout_s=120, every_s=0.02
    )
    time.sleep(chance.uniform(0, 2))
    return "while training"


def _kill(process: subprocess.Popen[bytes], way: str) -> bool:
    """Whether there was something to kill."""
    name, target = way.split()
    pids = [process.pid] if target == "job" else children(process.pid)
    if process.poll() is not None or not pids:
        process.kill()
        return False
    os.kill(pids[0], signal.Signals[f"SIG{name}"])
    return True
