"""Train, evaluate and compare algorithms × environments × seeds.

A YAML file states the plan, or options do. Run again, the same line goes on: what is complete is skipped, what was
interrupted is resumed. A run that fails is told, and the others go on.

  marlnb benchmark notebooks/benchmark.yaml --out runs/benchmark --jobs 2
  marlnb benchmark --algorithms ippo,mappo --envs mpe/simple_spread,mpe/simple_tag --seeds 5 frames=500_000
  marlnb benchmark runs/benchmark --dry-run

Afterwards the folder holds runs/<env>/<algorithm>/seed_<k>, marl_eval.json (marl-eval's layout) and report/.
Exit codes: 0 every run is complete; 1 one failed; 130 stopped, the same line goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.cli.output import print_json, print_table, quiet_stdout, say
from marlnb.errors import ConfigError

if TYPE_CHECKING:
    from marlnb.batch.benchmark.benchmark import Benchmark
    from marlnb.batch.benchmark.spec import BenchmarkSpec

FAILED, STOPPED = 1, 130
PLAN = "benchmark.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="PLAN|KEY=VALUE",
        help="a YAML file, or a benchmark's folder; overrides of every run",
    )
    parser.add_argument("--algorithms", metavar="NAME,...", help="instead of a plan")
    parser.add_argument("--envs", metavar="NAME,...", help="instead of a plan")
    parser.add_argument("--seeds", type=int, metavar="N", help="instead of a plan: seeds 0 to N - 1 (default 3)")
    parser.add_argument("--out", metavar="FOLDER", help="the benchmark's folder (else runs/<name of the plan>)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes side by side (default %(default)s)")
    parser.add_argument("--compare", action="append", default=[], metavar="PATH", help="marl-eval JSON of other runs")
    parser.add_argument("--no-report", action="store_true", help="do not execute the report notebook")
    parser.add_argument("--config-dir", metavar="FOLDER", help="YAML variants (else MARLNB_CONFIG_DIR)")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and each run's state, train nothing")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    with quiet_stdout():
        spec, folder = _plan(arguments)
        if not arguments.dry_run:
            from marlnb.batch.benchmark.run_benchmark import benchmark

            found = benchmark(
                spec,
                folder,
                jobs=arguments.jobs,
                report=not arguments.no_report,
                progress=not arguments.quiet,
            )
    if arguments.dry_run:
        return _show(spec, folder, arguments.json)
    return _end(found, arguments.json)


def _plan(arguments: argparse.Namespace) -> tuple[BenchmarkSpec, Path]:
    """The plan, and the folder in which it is or will be."""
    from dataclasses import replace

    from marlnb.batch.benchmark.benchmark import Benchmark
    from marlnb.batch.benchmark.spec import BenchmarkSpec, read_spec

    overrides = [word for word in arguments.words if "=" in word]
    files = [Path(word) for word in arguments.words if "=" not in word]
    options = {"--algorithms": arguments.algorithms, "--envs": arguments.envs, "--seeds": arguments.seeds}
    if not files:
        if arguments.algorithms is None or arguments.envs is None:
            raise ConfigError("benchmark needs a plan (a YAML file), or --algorithms and --envs")
        made = BenchmarkSpec.make(
            arguments.algorithms, arguments.envs, 3 if arguments.seeds is None else arguments.seeds
        )
        made = replace(made, config_dir=arguments.config_dir)
        out = Path(arguments.out or "runs/benchmark")
    else:
        spec = [name for name, value in options.items() if value is not None]
        if len(files) > 1 or spec:
            raise ConfigError(f"one plan alone; got {', '.join([*map(str, files), *spec])}")
        (file,) = files
        if (file / PLAN).is_file():
            made, out = Benchmark.open(file).spec, Path(arguments.out or file)
        else:
            made = read_spec(file, config_dir=arguments.config_dir)
            out = Path(arguments.out or f"runs/{file.stem}")
    compared = BenchmarkSpec.make("x", "x", 1, compare=arguments.compare).compare
    return replace(
        made, overrides=(*made.overrides, *overrides), compare=tuple(dict.fromkeys((*made.compare, *compared)))
    ), out


def _show(spec: BenchmarkSpec, folder: Path, as_json: bool) -> int:
    from marlnb.batch.benchmark.benchmark import describe_runs
    from marlnb.batch.benchmark.launch import check_runs

    runs = spec.runs()
    check_runs(folder, runs)
    rows = describe_runs(folder, runs)
    if as_json:
        print_json({"folder": str(folder), "plan": spec.to_json(), "runs": rows})
        return 0
    print_table(list(rows[0]), [list(row.values()) for row in rows])
    left = sum(row["of"] - row["frames"] for row in rows if row["state"] != "complete")
    complete = sum(row["state"] == "complete" for row in rows)
    print(f"\n{len(rows)} runs in {folder}, {complete} complete; {left:,} frames to train")
    return 0


def _end(found: Benchmark, as_json: bool) -> int:
    rows = found.table()
    complete = int((rows["state"] == "complete").sum())
    if as_json:
        runs = [{str(key): value for key, value in row.items()} for row in rows.to_dict("records")]
        print_json({"folder": str(found.path), "runs": runs, "failed": found.failed, "stopped": found.stopped})
    else:
        print(f"{found.path}: {complete} of {len(rows)} runs complete")
        if found.report.exists() and not found.stopped:
            print(found.report.with_suffix(".html"))
    for name, message in found.failed.items():
        say(f"failed: {name}: {message}")
    if found.stopped:
        say(f"stopped before its end; `marlnb benchmark {found.path}` goes on")
        return STOPPED
    return FAILED if found.failed else 0
