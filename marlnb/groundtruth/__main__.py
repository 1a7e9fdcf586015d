"""Planted circuits: run marlnb's analyses on them, export them for another tool, score what it found.

python -m marlnb.groundtruth                      the benchmark and its table
python -m marlnb.groundtruth export DIR           instances as files
python -m marlnb.groundtruth score FILE --path DIR    a submission, scored
python -m marlnb.groundtruth join FILE...         the table of several --json files
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from marlnb.groundtruth.benchmark import Benchmark, benchmark
from marlnb.groundtruth.export import export, score_submission


def main(arguments: list[str] | None = None) -> None:
    asked = _parser().parse_args(arguments)
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    if asked.what == "export":
        (folder,) = asked.files
        made = export(folder, seeds, circuits=asked.circuits, episodes=asked.episodes)
        print(f"{len(made)} instances in {folder}")
        return
    if asked.what == "score":
        (file,) = asked.files
        found = score_submission(json.loads(file.read_text()), asked.path)
    elif asked.what == "join":
        found = Benchmark.join([json.loads(file.read_text()) for file in asked.files])
    else:
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m marlnb.groundtruth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", default="run", choices=("run", "export", "score", "join"))
    parser.add_argument(
        "files", nargs="*", type=Path, help="the folder to export to; the submission; the files to join"
    )
    parser.add_argument("--seeds", type=int, default=3, help="instances of each kind")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them")
    parser.add_argument("--episodes", type=int, default=60, help="recorded of each instance")
    parser.add_argument("--analyses", nargs="*", help="their names; all by default")
    parser.add_argument("--circuits", nargs="*", help="their names; all by default")
    parser.add_argument("--path", default="runs/groundtruth", help="folder of the instances")
    parser.add_argument("--json", type=Path, help="also write every score to this file")
    return parser


if __name__ == "__main__":
    main()
