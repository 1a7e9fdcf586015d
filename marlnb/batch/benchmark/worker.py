"""A process for one run of a benchmark: `python -m marlnb.batch.benchmark.worker RUN CORES`.

CORES is a list like `0,2`, or empty for all. Exit codes: 0 complete, 1 failed, 130 stopped.
"""

from __future__ import annotations

import os
import sys


def main(folder: str, cores: str) -> int:
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    from marlnb.batch.benchmark.launch import STOPPED, finish
    from marlnb.training.runs.run import Run

    try:
        return 0 if finish(Run.open(folder)) == "complete" else STOPPED
    except KeyboardInterrupt:
        return STOPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
