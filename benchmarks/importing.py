"""What a start costs: seconds in a fresh Python until something has been imported, composed, trained or opened.

    python -m benchmarks.importing [--repetitions 5]

`import marlnb` loads nothing until a name is used; the verbs are what a notebook uses in its first cells. Each row is
measured twice, as CPU time and as time on the clock from the start of Python, on a machine that should do nothing else.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.table import Row, report

ROOT = Path(__file__).resolve().parents[1]
TRAINED = ROOT / "data" / "speaker_listener"
POLL_S = 0.005
VERBS = "marlnb.train, marlnb.evaluate, marlnb.record, marlnb.Run, marlnb.Recording"
COMPOSE = "import marlnb; marlnb.Experiment.compose('env=mpe/simple_spread', 'algorithm=ippo')"
OPEN = (
    "import marlnb; recording = marlnb.Recording.open({path!r}); repr(recording); recording[recording.sites[0]].shape"
)
TRAIN = ["train", "env=mpe/simple_spread", "algorithm=ippo", "frames=1_000_000", "--quiet"]
TARGETS_S = {"import marlnb": (None, 1.0), "an experiment composed": (1.5, None), "the first iteration": (None, 3.0)}
TARGETS_S |= {"a recording opened": (None, 2.0)}
"""(CPU time, time on the clock)."""


def programs(recording: Path) -> dict[str, str]:
    return {
        "import torch, for comparison": "import torch",
        "import marlnb": "import marlnb",
        "its verbs, torch included": f"import marlnb; {VERBS}",
        "its command": "import marlnb.cli",
        "an experiment composed": COMPOSE,
        "a recording opened": OPEN.format(path=str(recording)),
    }


def until_done(program: str) -> tuple[float, float]:
    """CPU time and time on the clock until a fresh Python has run `program`; its end does not count."""
    timed = f"{program}; import time; print(time.process_time(), flush=True)"
    start = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", timed], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        cpu_s = float(process.stdout.readline())
        return cpu_s, time.perf_counter() - start


def until_trained() -> tuple[float, float]:
    """CPU time and time on the clock until the command has finished the first iteration of a training run."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder, "run", "metrics.jsonl")
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "marlnb", *TRAIN, f"run={metrics.parent}"], stdout=subprocess.DEVNULL
        )
        while not (metrics.exists() and metrics.stat().st_size):
            if process.poll() is not None:
                raise RuntimeError(f"marlnb {' '.join(TRAIN)} ended before its first iteration: {process.returncode}")
            time.sleep(POLL_S)
        wall_s = time.perf_counter() - start
        process.kill()
        _, _, usage = os.wait4(process.pid, 0)
        return usage.ru_utime + usage.ru_stime, wall_s


def record(folder: str) -> Path:
    """A recording of 20 episodes."""
    run = shutil.copytree(TRAINED, Path(folder, "run"))
    command = [sys.executable, "-m", "marlnb", "record", str(run), "--episodes", "20", "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return next(run.glob("recordings/*.h5"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        measured: dict[str, Callable[[], tuple[float, float]]] = {
            what: partial(until_done, code) for what, code in programs(record(folder)).items()
        }
        measured["the first iteration"] = until_trained
        for what, measure in measured.items():
            measure()  # brings the files into memory
            cpu_s, wall_s = zip(*(measure() for _ in range(repetitions)), strict=True)
            cpu_target, wall_target = TARGETS_S.get(what, (None, None))
            rows.append(Row(what, cpu_s, "CPU s", target=cpu_target, at_most=True))
            rows.append(Row(f"{what}, on the clock", wall_s, "s", target=wall_target, at_most=True))
    report("importing", "Starting marlnb", rows)


if __name__ == "__main__":
    main()
