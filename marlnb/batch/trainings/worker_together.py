"""A process for runs that train together: `python -m marlnb.batch.trainings.worker_together CORES AFTER RUN RUN...`.

CORES is a list like `0,2`, or empty for all. AFTER is the path of the function that is called with each run that is
complete, `module:function`. The process that starts this one has created the runs, or has checked that
they are of the experiments to train, so their code is trusted. How each run ended is in its status, and why it
failed in the output.
"""

from __future__ import annotations

import os
import sys


def main(cores: str, after: str, *folders: str) -> None:
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    from marlnb.plugins.import_paths import load_object
    from marlnb.training.runs.run import Run
    from marlnb.training.runs.run_folder import trust_training
    from marlnb.training.together.train_together import train_together

    runs = [Run.open(folder) for folder in folders]
    for run in runs:
        trust_training(run.experiment, run.path)
    for run, error in train_together(runs).items():
        print(f"{run.path}: {error}")
    for run in runs:
        if run.status()["state"] == "complete":
            load_object(after)(run)


if __name__ == "__main__":
    main(*sys.argv[1:])
