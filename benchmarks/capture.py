"""The cost of capturing hidden layers: marlnb's capture, plain hooks, nnsight and TransformerLens on the same MLP.

    python -m benchmarks.capture [--repeats 15]

A policy of three agents with two hidden layers of 256 tanh units, shared weights, acting for 8 environments: one
forward pass a step, both hidden layers captured. The same `nn.Linear` and `nn.Tanh` on each side, with the same
weights. The peers run in `.peers/capture` (see `benchmarks.peers`), which may have another version of torch. So the
result of each side is its extra CPU time over the same network without capture, measured in the side's own process.
The sides alternate; one thread; medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

from benchmarks.peers import CAPTURE, ROOT, python
from benchmarks.table import markdown_table

SIDES = ("marlnb", "hooks", "nnsight", "transformer_lens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    times = measure(arguments.repeats)
    rows = []
    for side, pairs in times.items():
        extra = sorted(seen - plain for plain, seen in pairs)
        seen = statistics.median(seen for _, seen in pairs)
        rows.append((side, f"{seen:.1f}", f"{statistics.median(extra):.1f}", f"{extra[0]:.1f} – {extra[-1]:.1f}"))
    print(markdown_table(("seen by", "a pass, µs", "extra over its own plain pass, µs", "lowest – highest"), rows))


def measure(repeats: int) -> dict[str, list[tuple[float, float]]]:
    """By side, `(plain, seen)` µs a pass for each repetition; the sides take turns."""
    workers = {side: worker(side) for side in SIDES}
    try:
        times: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
        for _ in range(repeats):
            for side, process in workers.items():
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write("go\n")
                process.stdin.flush()
                line = process.stdout.readline()
                while line and not line.startswith("{"):
                    line = process.stdout.readline()
                if not line:
                    raise RuntimeError(f"{side} ended without an answer")
                result = json.loads(line)
                times[side].append((result["plain"], result["seen"]))
        return times
    finally:
        for process in workers.values():
            process.terminate()


def worker(side: str) -> subprocess.Popen[str]:
    own = sys.executable if side in ("marlnb", "hooks") else str(python(CAPTURE))
    command = [own, "-m", "benchmarks.drivers.capture_sides", side]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    main()
