"""Whole iterations of learners that remember: marlnb against BenchMARL and AgileRL, stepped in turns.

MADDPG, QMIX and IQL on simple_spread: 8 environments, 1000 frames an iteration, minibatches of 256 frames, 100 updates
(125 beside AgileRL, which learns once every step of its 8 environments). Frames for each second of CPU time, one core,
one thread. Nothing else should be running.
"""

from __future__ import annotations

import argparse

from benchmarks import peers
from benchmarks.contest import Contestant, Driver, check_peers, measure
from benchmarks.table import report

ALGORITHMS = ("maddpg", "qmix", "iql")
BENCHMARL_TARGET, AGILERL_TARGET = 3.0, 1.5


def sides(peer: str, driver: Driver, *options: str) -> tuple[Contestant, Contestant]:
    return Contestant(peer, driver, options=options), Contestant("marlnb", "marlnb", options=options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=ALGORITHMS)
    parser.add_argument("--peers", nargs="+", choices=["benchmarl", "agilerl"], default=["benchmarl", "agilerl"])
    parser.add_argument("--repetitions", type=int, default=5, help="iterations that each is measured on")
    arguments = parser.parse_args()
    folders = {"benchmarl": peers.BENCHMARL, "agilerl": peers.AGILERL}
    check_peers(*(folders[name] for name in arguments.peers))
    if "benchmarl" in arguments.peers:
        for algorithm in arguments.algorithms:
            rows = measure(
                sides("BenchMARL", "benchmarl", "--algorithm", algorithm),
                "simple_spread",
                "cpu_s",
                arguments.repetitions,
                BENCHMARL_TARGET,
            )
            report(f"off-policy-{algorithm}", f"{algorithm.upper()} on simple_spread, one core", rows)
    if "agilerl" in arguments.peers and "maddpg" in arguments.algorithms:
        both = sides("AgileRL", "agilerl", "--algorithm", "maddpg", "--updates", "125")
        rows = measure(both, "simple_spread", "cpu_s", arguments.repetitions, AGILERL_TARGET)
        report("off-policy-agilerl", "MADDPG on simple_spread, 125 updates an iteration, one core", rows)


if __name__ == "__main__":
    main()
