"""The sbatch script, readable for students and administrators, without any value of a parameter.

What a task executes is in `jobs.json` next to the script and in each job's `job.json`, so a shell never sees the value
of a parameter.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marlnb.allocations import ENDS_AT
from marlnb.batch.batch import Batch
from marlnb.batch.local.process import THREAD_VARIABLES
from marlnb.batch.offline import OFFLINE_VARIABLES, job_environment
from marlnb.batch.profile import Profile
from marlnb.batch.slurm.refusals import check_path
from marlnb.display.formatting import count
from marlnb.training.runs.files import JOB_VARIABLE

SCRIPT = "script.sbatch"
REPORT_SCRIPT = "report.sbatch"
REPORT_LOG = "report.log"
RUN_JOB = "marlnb.batch.job.run_job"
MAX_LABEL_LENGTH = 40
OF_THIS_PROCESS = (JOB_VARIABLE, ENDS_AT, "MARLNB_TOKEN")  # its job, its end, its secret


@dataclass(frozen=True)
class Part:
    """The jobs of one array, whose size SLURM limits.

    Attributes:
        number: of the part, from 1.
        first: index in `jobs.json` of its task 0.
        count: number of tasks.
    """

    number: int
    first: int
    count: int

    @property
    def script(self) -> str:
        return SCRIPT if self.number == 1 else f"script-{self.number}.sbatch"

    def log(self, task: int | str) -> str:
        """Name of the file with the output of SLURM and of the script for a task."""
        return f"{task}.log" if self.number == 1 else f"{self.number}-{task}.log"


def parts(n_jobs: int, max_size: int) -> list[Part]:
    """Divides `n_jobs` jobs into as few arrays of at most `max_size` tasks as possible."""
    return [Part(k + 1, first, min(max_size, n_jobs - first)) for k, first in enumerate(range(0, n_jobs, max_size))]


def array_script(batch: Batch, profile: Profile, submission: Path, part: Part, n_parts: int, after: str = "") -> str:
    """The script of one array.

    Args:
        n_parts: number of arrays of the submission.
        after: id of an array that must end first; empty without one.
    """
    tasks = f"Jobs {part.first} to {part.first + part.count - 1}" if n_parts > 1 else count(part.count, "job")
    comment = [
        f"{tasks} of the batch {shlex.quote(str(batch.path))},",
        f"one task each: task k executes the job of index {f'{part.first} + k' if part.first else 'k'} in jobs.json,",
        "next to this file. The values of parameters are in each job's job.json, never here.",
        "On SIGUSR1 or SIGTERM a job saves, and continues from there when this script runs again.",
    ]
    throttle = f"%{profile.at_once}" if profile.at_once else ""
    options = [f"--array=0-{part.count - 1}{throttle}", *_options(batch, profile, submission / part.log("%a"))]
    if after:  # otherwise each part would run its own at_once jobs in parallel
        options.append(f"--dependency=afterany:{after}")
    index = f"$(({part.first} + SLURM_ARRAY_TASK_ID))" if part.first else "$SLURM_ARRAY_TASK_ID"
    words = f'--submission {shlex.quote(str(submission))} --index "{index}"'
    return _script(batch, profile, comment, options, words)


def report_script(batch: Batch, profile: Profile, submission: Path, after: Sequence[str]) -> str:
    """The script of the report, which runs after all tasks and arrays in `after` have succeeded."""
    report = batch.report_job()
    comment = [f"The report of the batch {shlex.quote(str(batch.path))},", "once all of its jobs are complete."]
    options = ["--array=0", *_options(batch, profile, submission / REPORT_LOG, "-report")]
    if after:
        options += [f"--dependency=afterok:{':'.join(after)}", "--kill-on-invalid-dep=yes"]
    return _script(batch, profile, comment, options, shlex.quote(str(report.folder)))


def _script(batch: Batch, profile: Profile, comment: Sequence[str], options: Sequence[str], words: str) -> str:
    """The script: comment, options, setup, and the call of Python."""
    # a login shell defines the site's `module` and `conda`; SLURM's own environment does not
    shell = "#!/bin/bash -l" if profile.modules or profile.setup else "#!/bin/bash"
    check_path(batch.path, Path(profile.interpreter))
    lines = [
        *(shell, "#", *(f"# {line}" for line in comment), "#"),
        *(f"#SBATCH {option}" for option in (*options, *profile.options)),
        "",
        "set -e  # the job ends if a module or a setup line fails",
        *(f"module load {shlex.quote(module)}" for module in profile.modules),
        *profile.setup,
        "",
        "# threads for the requested cores, offline mode, the profile's variables",
        *(f"export {name}={shlex.quote(value)}" for name, value in exports(profile, os.environ).items()),
        "",
        "# exec: Python receives the signals that SLURM sends to this shell",
        f"exec {shlex.quote(profile.interpreter)} -m {RUN_JOB} {words}",
    ]
    return "\n".join(lines) + "\n"


def _options(batch: Batch, profile: Profile, log: Path, suffix: str = "") -> list[str]:
    gres = profile.gres or (f"gpu:{profile.gpus}" if profile.gpus else None)
    requested = {
        "job-name": job_name(batch) + suffix,
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": profile.cores,
        "mem": None if profile.memory_gb is None else f"{math.ceil(profile.memory_gb * 1024)}M",
        "gres": gres,
        "time": profile.time_limit,
        **{key: getattr(profile, key) for key in ("partition", "account", "qos", "constraint")},
        # sent to Python in time to save; SLURM may send it up to a minute early
        "signal": f"B:USR1@{profile.warn_s}" if profile.warn_s else None,
    }
    return [
        *(f"--{name}={value}" for name, value in requested.items() if value is not None),
        *("--requeue", "--open-mode=append"),
        "--export=NONE",  # the user's login environment on the node, not the environment of the submitting shell
        output_option(log),
    ]


def output_option(log: Path) -> str:
    """The option for a log; its name may have patterns of SLURM, its folder may not."""
    folder = str(log.parent).replace("%", "%%").replace('"', '\\"')
    return f'--output="{folder}/{log.name}"'


def job_name(batch: Batch) -> str:
    """`marlnb-sweep`: the name of the batch's folder, in characters that SLURM's tables can show."""
    return "marlnb-" + re.sub(r"[^A-Za-z0-9._-]+", "_", batch.path.name)[:MAX_LABEL_LENGTH]


def exports(profile: Profile, shell: Mapping[str, str]) -> dict[str, str]:
    """Variables that the script sets: threads for the cores, offline mode, and the profile's own.

    Of the submitting shell's variables only marlnb's own, PYTHONPATH and the offline variables are passed on, but none
    of `OF_THIS_PROCESS`.
    """
    names = [name for name in sorted(shell) if name.startswith("MARLNB_") and name not in OF_THIS_PROCESS]
    names += [name for name in ("PYTHONPATH", *OFFLINE_VARIABLES) if name in shell]
    carried = {name: shell[name] for name in names}
    return {**{name: str(profile.cores) for name in THREAD_VARIABLES}, **carried, **job_environment(profile)}
