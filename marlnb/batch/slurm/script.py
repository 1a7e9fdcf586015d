"""The sbatch script: a text that a student or an administrator can read, with no value of any parameter in it.

What a task executes stands in `jobs.json` beside the script and in each job's `job.json`: so no value of a parameter
comes near a shell, whatever it holds.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marlnb.batch.batch import Batch
from marlnb.batch.local.process import THREADS
from marlnb.batch.offline import OFFLINE_VARIABLES, job_environment
from marlnb.batch.profile import Profile
from marlnb.batch.slurm.refusals import check_path

SCRIPT = "script.sbatch"
REPORT_SCRIPT = "report.sbatch"
REPORT_LOG = "report.log"
RUN_JOB = "marlnb.batch.job.run_job"
LONGEST_LABEL = 40


@dataclass(frozen=True)
class Part:
    """The jobs of one array: SLURM limits how many it may have.

    Attributes:
        number: of the part, from 1. first: the index in `jobs.json` of its task 0. count: how many tasks it has.
    """

    number: int
    first: int
    count: int

    @property
    def script(self) -> str:
        return SCRIPT if self.number == 1 else f"script-{self.number}.sbatch"

    def log(self, task: int | str) -> str:
        """The name of the file with what SLURM and the script say of a task."""
        return f"{task}.log" if self.number == 1 else f"{self.number}-{task}.log"


def parts(count: int, largest: int) -> list[Part]:
    """As few arrays as can be."""
    return [Part(k + 1, first, min(largest, count - first)) for k, first in enumerate(range(0, count, largest))]


def array_script(batch: Batch, profile: Profile, submission: Path, part: Part, of: int, after: str = "") -> str:
    """The script of one part of `of`; with `after`, the id of an array, it begins when that has ended."""
    tasks = f"{part.count} jobs" if part.count > 1 else "1 job"
    if of > 1:
        tasks = f"Jobs {part.first} to {part.first + part.count - 1}"
    told = [
        f"{tasks} of the batch {shlex.quote(str(batch.path))},",
        f"one task each: task k executes the job of index {f'{part.first} + k' if part.first else 'k'} in jobs.json,",
        "beside this file. The values of parameters are in each job's job.json, never here.",
        "Saved when SIGUSR1 or SIGTERM comes, a job goes on from there when this runs again.",
    ]
    throttle = f"%{profile.at_once}" if profile.at_once else ""
    options = [f"--array=0-{part.count - 1}{throttle}", *_options(batch, profile, submission / part.log("%a"))]
    if after:  # else each part would have jobs side by side up to the limit
        options.append(f"--dependency=afterany:{after}")
    index = f"$(({part.first} + SLURM_ARRAY_TASK_ID))" if part.first else "$SLURM_ARRAY_TASK_ID"
    words = f'--submission {shlex.quote(str(submission))} --index "{index}"'
    return _script(batch, profile, told, options, words)


def report_script(batch: Batch, profile: Profile, submission: Path, after: Sequence[str]) -> str:
    """The script of the report, which begins when all that `after` names have ended well."""
    report = batch.report_job()
    told = [
        f"The report of the batch {shlex.quote(str(batch.path))},",
        "once all of its jobs are complete.",
    ]
    options = ["--array=0", *_options(batch, profile, submission / REPORT_LOG, "-report")]
    if after:
        options += [f"--dependency=afterok:{':'.join(after)}", "--kill-on-invalid-dep=yes"]
    return _script(batch, profile, told, options, shlex.quote(str(report.folder)))


def _script(batch: Batch, profile: Profile, told: Sequence[str], options: Sequence[str], words: str) -> str:
    """Comment, options, what comes before Python, Python."""
    # a login shell has the site's `module` and `conda`, which an environment made by SLURM has not
    shell = "#!/bin/bash -l" if profile.modules or profile.setup else "#!/bin/bash"
    python = os.path.expanduser(profile.python or sys.executable)
    check_path(batch.path, Path(python))
    lines = [
        *(shell, "#", *(f"# {line}" for line in told), "#"),
        *(f"#SBATCH {option}" for option in (*options, *profile.options)),
        "",
        "set -e  # a module or a line of setup that fails ends the job",
        *(f"module load {shlex.quote(module)}" for module in profile.modules),
        *profile.setup,
        "",
        "# threads for the cores asked for; no reaching for the internet; the profile's own",
        *(f"export {name}={shlex.quote(value)}" for name, value in exports(profile, os.environ).items()),
        "",
        "# exec: the signals that SLURM sends to this shell reach Python",
        f"exec {shlex.quote(python)} -m {RUN_JOB} {words}",
    ]
    return "\n".join(lines) + "\n"


def _options(batch: Batch, profile: Profile, log: Path, suffix: str = "") -> list[str]:
    gres = profile.gres or (f"gpu:{profile.gpus}" if profile.gpus else None)
    asked = {
        "job-name": job_name(batch) + suffix,
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": profile.cores,
        "mem": None if profile.memory_gb is None else f"{math.ceil(profile.memory_gb * 1024)}M",
        "gres": gres,
        "time": profile.time_limit,
        "partition": profile.partition,
        "account": profile.account,
        "qos": profile.qos,
        "constraint": profile.constraint,
        # to Python, in time to save; sent up to a minute early
        "signal": f"B:USR1@{profile.warn_s}" if profile.warn_s else None,
    }
    output = str(log.parent).replace("%", "%%").replace('"', '\\"') + f"/{log.name}"
    return [
        *(f"--{name}={value}" for name, value in asked.items() if value is not None),
        *("--requeue", "--open-mode=append"),
        "--export=NONE",  # the user's login environment on the node, and not that of whoever submits
        f'--output="{output}"',
    ]


def job_name(batch: Batch) -> str:
    """`marlnb-sweep`: the batch's folder with what SLURM's tables can show."""
    return "marlnb-" + re.sub(r"[^A-Za-z0-9._-]+", "_", batch.path.name)[:LONGEST_LABEL]


def exports(profile: Profile, shell: Mapping[str, str]) -> dict[str, str]:
    """Variables that the script sets: threads as there are cores, no internet, the profile's own.

    Of the shell that submits come only marlnb's own variables, the places where Python looks for modules, and what it
    says about being offline.
    """
    names = [name for name in sorted(shell) if name.startswith("MARLNB_") and name != "MARLNB_JOB"]
    names += [name for name in ("PYTHONPATH", *OFFLINE_VARIABLES) if name in shell]
    carried = {name: shell[name] for name in names}
    return {**{name: str(profile.cores) for name in THREADS}, **carried, **job_environment(profile)}
