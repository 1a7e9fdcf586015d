"""Planted circuits: run marlnb's analyses on them, export them for another tool, score its submission.

python -m marlnb.groundtruth                          the benchmark and its table
python -m marlnb.groundtruth export DIR               instances as files
python -m marlnb.groundtruth score FILE --path DIR    score a submission
python -m marlnb.groundtruth join FILE...             the table of several --json files
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from marlnb.errors import ConfigError, MarlnbError
from marlnb.groundtruth.benchmark import Benchmark, benchmark
from marlnb.groundtruth.export import export, read_json, score_submission

FILES = {"run": "no files", "export": "one folder", "score": "one file", "join": "one or more files"}


def main(arguments: list[str] | None = None) -> int:
    """0; 2 for a bad request."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except (MarlnbError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


def _run(options: argparse.Namespace) -> None:
    n_files, command = len(options.files), options.command
    if n_files != (0 if command == "run" else 1) and not (command == "join" and n_files):
        raise ConfigError(f"{command} expects {FILES[command]}; got {n_files}")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if command == "export":
        (folder,) = options.files
        exported = export(folder, seeds, circuits=options.circuits, episodes=options.episodes)
        print(f"{len(exported)} instances in {folder}")
        return
    if command == "score":
        (file,) = options.files
        result = score_submission(read_json(file), options.path)
    elif command == "join":
        result = Benchmark.join([read_json(file) for file in options.files])
    else:
        result = benchmark(
            seeds,
            names=options.analyses,
            circuits=options.circuits,
            episodes=options.episodes,
            path=options.path,
            progress=True,
        )
    print(result)
    if options.json:
        options.json.write_text(json.dumps(result.to_json(), indent=1))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m marlnb.groundtruth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", default="run", choices=("run", "export", "score", "join"))
    parser.add_argument(
        "files", nargs="*", type=Path, help="export: the folder; score: the submission; join: the files to join"
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of instances of each version")
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first instance")
    parser.add_argument("--episodes", type=int, default=60, help="recorded episodes of each instance")
    parser.add_argument("--analyses", nargs="*", help="names of analyses (default: all)")
    parser.add_argument("--circuits", nargs="*", help="names of circuits (default: all)")
    parser.add_argument("--path", default="runs/groundtruth", help="folder of the instances")
    parser.add_argument("--json", type=Path, help="also write every score to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
