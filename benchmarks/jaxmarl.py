"""Whole training iterations of IPPO on simple_spread: marlnb against JaxMARL, which alternate, with the same settings.

256 and 1024 environments × 25 steps, two hidden layers of 64 and of 256, 4 epochs of 4 minibatches, frames per second
of CPU time on one core and of wall-clock time on two. JaxMARL compiles a whole training run, which is not counted.
Run it on an idle machine.
"""

from __future__ import annotations

import argparse

from benchmarks import peers
from benchmarks.contest import Clock, Contestant, add_precisions, check_peers, measure, ways_of_marlnb
from benchmarks.drivers.settings import NATIVE
from benchmarks.table import report

TARGET = 1.2
MIN_FRAMES = 25_000  # of a request: one to four iterations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(NATIVE), default=list(NATIVE), help="envs x hidden units")
    parser.add_argument("--cores", nargs="+", type=int, choices=[1, 2], default=[1, 2])
    parser.add_argument("--repetitions", type=int, default=5, help="requests that each is measured on")
    add_precisions(parser)
    arguments = parser.parse_args()
    check_peers(peers.JAXMARL)
    for task in arguments.tasks:
        every = ("--every", str(-(-MIN_FRAMES // NATIVE[task].frames)))
        for cores in arguments.cores:
            sides = (
                Contestant("JaxMARL", "jaxmarl", cores, cores, every),
                *ways_of_marlnb(arguments.precisions, threads=cores, n_cores=cores, options=every),
            )
            clock: Clock = "cpu_s" if cores == 1 else "wall_s"
            rows = measure(sides, task, clock, arguments.repetitions, TARGET)
            name = f"{task}-{'one-core' if cores == 1 else 'two-cores'}"
            report(f"jaxmarl-{name}", f"IPPO on simple_spread, {name}", rows)


if __name__ == "__main__":
    main()
