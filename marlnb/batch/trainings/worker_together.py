"""A process for several runs that train together: `python -m marlnb.batch.trainings.worker_together CORES RUN RUN...`.

CORES is a list like `0,2`, or empty for all. The process that starts this one has created the runs, or has checked that
they are of the experiments to train, so their code is trusted. How each run ended is in its status.
"""

from __future__ import annotations

import os
import sys


def main(cores: str, *folders: str) -> None:
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    from marlnb.training.runs.run import Run
    from marlnb.training.runs.run_folder import trust_training
    from marlnb.training.train_together import train_together

    runs = [Run.open(folder) for folder in folders]
    for run in runs:
        trust_training(run.experiment, run.path)
    train_together(runs)


if __name__ == "__main__":
    main(*sys.argv[1:])
