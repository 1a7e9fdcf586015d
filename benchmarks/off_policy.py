"""Whole iterations of off-policy learners: marlnb against BenchMARL and AgileRL, which alternate.

MADDPG, MASAC, QMIX and IQL on simple_spread: 8 environments, 1000 frames an iteration, minibatches of 256 frames, 100
updates (125 in the comparison with AgileRL, which learns once every step of its 8 environments). Frames per second of
CPU time, one core, one thread. MADDPG and MASAC are compared with BenchMARL twice: with BenchMARL's actor update, which
replaces all agents' actions at once, and with equation 6 of Lowe et al. 2017, the default of marlnb and AgileRL. Run it
on an idle machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks import peers
from benchmarks.contest import Contestant, add_precisions, check_peers, measure, ways_of_marlnb
from benchmarks.table import report

ALGORITHMS = ("maddpg", "masac", "qmix", "iql")
BENCHMARL_TARGETS, AGILERL_TARGET = {"maddpg": 5.0, "masac": 5.0, "qmix": 5.0, "iql": 3.0}, 1.5


def against_benchmarl(algorithm: str, repetitions: int, precisions: Sequence[str]) -> None:
    variants: dict[str, tuple[str, ...]] = {"": ()}
    if algorithm in ("maddpg", "masac"):
        variants = {
            ", all actions at once": ("--policy-actions", "all"),
            ", marlnb by equation 6": ("--policy-actions", "own"),
        }
    options = ("--algorithm", algorithm)
    for what, ours in variants.items():
        benchmarl = Contestant("BenchMARL", "benchmarl", options=options)
        contestants = [benchmarl, *ways_of_marlnb(precisions, options=(*options, *ours))]
        rows = measure(contestants, "simple_spread", "cpu_s", repetitions, BENCHMARL_TARGETS[algorithm])
        name = "-".join(("off-policy", algorithm, *ours[1:]))
        report(name, f"{algorithm.upper()} on simple_spread{what}, one core", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=ALGORITHMS)
    parser.add_argument("--peers", nargs="+", choices=["benchmarl", "agilerl"], default=["benchmarl", "agilerl"])
    parser.add_argument("--repetitions", type=int, default=5, help="iterations that each is measured on")
    add_precisions(parser)
    arguments = parser.parse_args()
    folders = {"benchmarl": peers.BENCHMARL, "agilerl": peers.AGILERL}
    check_peers(*(folders[name] for name in arguments.peers))
    if "benchmarl" in arguments.peers:
        for algorithm in arguments.algorithms:
            against_benchmarl(algorithm, arguments.repetitions, arguments.precisions)
    if "agilerl" in arguments.peers and "maddpg" in arguments.algorithms:
        options = ("--algorithm", "maddpg", "--updates", "125")
        agilerl = Contestant("AgileRL", "agilerl", options=options)
        contestants = [agilerl, *ways_of_marlnb(arguments.precisions, options=options)]
        rows = measure(contestants, "simple_spread", "cpu_s", arguments.repetitions, AGILERL_TARGET)
        report("off-policy-agilerl", "MADDPG on simple_spread, 125 updates an iteration, one core", rows)


if __name__ == "__main__":
    main()
