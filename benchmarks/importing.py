"""What importing costs: CPU seconds in a fresh Python, from before the import to after it.

    python -m benchmarks.importing [--repetitions 9]

`import marlnb` loads nothing until a name is used; the verbs are what a notebook uses in its first cells.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.table import Row, report

VERBS = "import marlnb; marlnb.train, marlnb.evaluate, marlnb.record, marlnb.Run, marlnb.Recording"
PROGRAMS = {
    "import marlnb": ("pass", "import marlnb"),
    "import marlnb, after torch": ("import torch", "import marlnb"),
    "its verbs, after torch and tensordict": ("import torch, tensordict", VERBS),
    "its command": ("pass", "import marlnb.cli"),
}


def cpu_seconds(before: str, program: str) -> float:
    """CPU time of `program` in a fresh Python that has run `before`."""
    timed = f"import time; {before}; began = time.process_time(); {program}; print(time.process_time() - began)"
    return float(subprocess.run([sys.executable, "-c", timed], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=9)
    repetitions = parser.parse_args().repetitions
    rows = []
    for what, (before, program) in PROGRAMS.items():
        cpu_seconds(before, program)  # brings the files into memory
        values = tuple(cpu_seconds(before, program) for _ in range(repetitions))
        rows.append(Row(what, values, "CPU s", target=0.3, at_most=True))
    report("importing", "Importing marlnb", rows)


if __name__ == "__main__":
    main()
