"""What importing costs: CPU seconds of a fresh Python, less those of Python alone or of torch.

    python -m benchmarks.importing [--repetitions 9]

`import marlnb` loads nothing until a name is used; the verbs are what a notebook uses in its first cells.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

from benchmarks.table import Row, report

VERBS = "marlnb.train, marlnb.evaluate, marlnb.record, marlnb.Run, marlnb.Recording"
TORCH = "import torch, tensordict"
PROGRAMS = {
    "import marlnb": ("import marlnb", "pass"),
    "import marlnb, after torch": (f"{TORCH}; import marlnb", TORCH),
    "train, evaluate, record, Run and Recording, after torch and tensordict": (
        f"{TORCH}; import marlnb; {VERBS}",
        TORCH,
    ),
    "the command's --help": ("from marlnb.cli import main; main(['--help'])", "pass"),
}


def cpu_seconds(program: str) -> float:
    """CPU time of a Python that runs a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=9)
    repetitions = parser.parse_args().repetitions
    rows = []
    for what, (program, beneath) in PROGRAMS.items():
        cpu_seconds(program)  # brings the files into memory
        beyond = tuple(cpu_seconds(program) - cpu_seconds(beneath) for _ in range(repetitions))
        rows.append(Row(what, beyond, "CPU s", target=0.3, at_most=True))
    report("importing", "Importing marlnb", rows)


if __name__ == "__main__":
    main()
