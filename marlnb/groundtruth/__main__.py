"""`python -m marlnb.groundtruth`: run the benchmark, export instances for another tool, score its submission."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from marlnb.groundtruth.benchmark import benchmark


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m marlnb.groundtruth", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="instances of each kind")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them")
    parser.add_argument("--episodes", type=int, default=60, help="recorded of each instance")
    parser.add_argument("--analyses", nargs="*", help="their names; all by default")
    parser.add_argument("--circuits", nargs="*", help="their names; all by default")
    parser.add_argument("--path", default="runs/groundtruth", help="folder of the recordings")
    parser.add_argument("--json", type=Path, help="also write every score to this file")
    asked = parser.parse_args()
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    found = benchmark(
        seeds,
        names=asked.analyses,
        circuits=asked.circuits,
        episodes=asked.episodes,
        path=asked.path,
        progress=True,
    )
    print(found)
    if asked.json:
        asked.json.write_text(json.dumps(found.to_json(), indent=1))


if __name__ == "__main__":
    main()
