"""Whole training iterations of IPPO: marlnb against BenchMARL, which alternate, with the same settings.

On one core: frames per second of CPU time, with one thread. On two cores: frames per wall-clock second, compared with
the fastest of BenchMARL's ways to use them. Run it on an idle machine.
"""

from __future__ import annotations

import argparse

from benchmarks import peers
from benchmarks.contest import Contestant, add_precisions, check_peers, measure, ways_of_marlnb
from benchmarks.table import report

ONE_CORE_TARGETS = {"multiwalker": 1.9, "simple_spread": 4.0, "navigation": 1.5}
ALL_CORES_TARGETS = {"multiwalker": 3.5, "simple_spread": 5.0, "navigation": None}
BENCHMARL_ON_ALL_CORES = (
    Contestant("BenchMARL, 1 thread", "benchmarl", 1, 2),
    Contestant("BenchMARL, 2 threads", "benchmarl", 2, 2),
    Contestant("BenchMARL, 8 workers", "benchmarl", 1, 2, ("--workers",)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=sorted(ONE_CORE_TARGETS), default=sorted(ONE_CORE_TARGETS))
    parser.add_argument("--repetitions", type=int, default=5, help="iterations that each is measured on")
    parser.add_argument("--part", choices=["one-core", "all-cores"], help="only this part")
    add_precisions(parser)
    arguments = parser.parse_args()
    check_peers(peers.BENCHMARL)
    one_core = (Contestant("BenchMARL", "benchmarl"), *ways_of_marlnb(arguments.precisions))
    all_cores = (*BENCHMARL_ON_ALL_CORES, *ways_of_marlnb(arguments.precisions, threads=2, n_cores=2))
    for task in arguments.tasks:
        if arguments.part != "all-cores":
            rows = measure(one_core, task, "cpu_s", arguments.repetitions, ONE_CORE_TARGETS[task])
            report(f"training-{task}-one-core", f"IPPO on {task}, one core", rows)
        if arguments.part != "one-core" and ALL_CORES_TARGETS[task] is not None:
            rows = measure(all_cores, task, "wall_s", arguments.repetitions, ALL_CORES_TARGETS[task])
            report(f"training-{task}-two-cores", f"IPPO on {task}, two cores", rows)


if __name__ == "__main__":
    main()
