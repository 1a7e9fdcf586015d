"""200 cycles of train, record, explain and plot in one kernel, then 200 interrupts of cells with worker processes.

    python -m tests.long_life
    python -m tests.long_life --cycles 50 --interrupts 0
    python -m tests.long_life --cycles 0 --interrupts 50 --seed 3

The exit code is 1 if something grows, stays or breaks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.long_life.cycles import MAX_MB_PER_CYCLE, growth, run_cycles
from tests.long_life.interruptions import interrupt_cells, problems


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.long_life")
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--interrupts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of interrupts")
    parser.add_argument("--log", type=Path, help="a file for what the kernel held after each cycle, as JSON")
    options = parser.parse_args(arguments)
    failures = []

    def say(text: str) -> None:
        print(text, flush=True)

    with tempfile.TemporaryDirectory(prefix="marlnb-long-life-") as folder:
        if options.cycles:
            holdings = run_cycles(options.cycles, Path(folder), say, options.log)
            grown = growth(holdings)
            say(f"grown after the warm-up, in {options.cycles} cycles: {grown}")
            limits = {name: MAX_MB_PER_CYCLE if name == "memory_mb_per_cycle" else 0 for name in grown}
            failures += [f"{name} grew by {value:.3g}" for name, value in grown.items() if value > limits[name]]
        if options.interrupts:
            before, interruptions = interrupt_cells(options.interrupts, Path(folder), options.seed, say)
            failures += problems(before, interruptions)
            endings = Counter(one.ending.error or "ended" for one in interruptions)
            say(f"{len(interruptions)} interrupted cells: {dict(endings)}")
    for text in failures:
        say(f"problem: {text}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
