"""A process for one of several training runs: `python -m marlnb.batch.trainings.worker CORES FINISH RUN`.

CORES is a list like `0,2`, or empty for all. FINISH is the path of the function that trains a run to its end,
`module:function`. The process that starts this one has created the run, or has checked that it is of the experiment
to train, so its code is trusted. Exit codes: 0 complete, 1 failed, 130 stopped.
"""

from __future__ import annotations

import os
import sys


def main(cores: str, finish: str, folder: str) -> int:
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    from marlnb.batch.trainings.launch import STOPPED
    from marlnb.plugins.import_paths import load_object
    from marlnb.training.runs.run import Run
    from marlnb.training.runs.run_folder import trust_training

    run = Run.open(folder)
    trust_training(run.experiment, run.path)
    try:
        return 0 if load_object(finish)(run) == "complete" else STOPPED
    except KeyboardInterrupt:
        return STOPPED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
