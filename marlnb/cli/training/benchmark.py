"""Train, evaluate and compare algorithms × environments × seeds.

A YAML file or options say what to train. The same command continues: complete runs are skipped, interrupted ones
resume. If a run fails, the others continue.

  marlnb benchmark notebooks/benchmark.yaml --out runs/benchmark --jobs 2
  marlnb benchmark --algorithms ippo,mappo --envs mpe/simple_spread,mpe/simple_tag --seeds 5 frames=500_000
  marlnb benchmark runs/benchmark --dry-run

The folder then holds runs/<env>/<algorithm>/seed_<k>, marl_eval.json (marl-eval's layout) and report/.
Exit codes: 0 every run is complete; 1 a run failed; 130 stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.cli.config_dir_option import add_config_dir_argument
from marlnb.cli.exit_codes import FAILED, INTERRUPTED
from marlnb.cli.output import print_json, print_table, print_text, quiet_stdout, say
from marlnb.cli.trust_option import add_trust_argument
from marlnb.display.formatting import count, marlnb_command
from marlnb.errors import ConfigError, TrustError

if TYPE_CHECKING:
    from marlnb.batch.benchmark.benchmark import Benchmark
    from marlnb.batch.benchmark.spec import BenchmarkSpec

DEFAULT_SEEDS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help_words = "a YAML file or a benchmark's folder; and overrides of every run"
    add("words", nargs="*", default=[], metavar="SPEC|KEY=VALUE", help=help_words)
    add("--algorithms", metavar="NAME,...", help="algorithms, instead of a YAML file")
    add("--envs", metavar="NAME,...", help="environments, instead of a YAML file")
    add("--seeds", type=int, metavar="N", help=f"seeds 0 to N - 1, instead of a YAML file (default {DEFAULT_SEEDS})")
    add("--out", metavar="FOLDER", help="the benchmark's folder (default runs/<name of the file>)")
    add("--jobs", type=int, default=1, metavar="N", help="parallel processes (default %(default)s)")
    add("--compare", action="append", default=[], metavar="PATH", help="marl-eval JSON of other runs")
    add("--no-report", action="store_true", help="do not execute the report notebook")
    add_config_dir_argument(parser)
    add("--dry-run", action="store_true", help="print the runs and their states, train nothing")
    add_trust_argument(parser)
    add("--quiet", action="store_true", help="no progress")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    with quiet_stdout():
        spec, folder = _spec(arguments)
        if not arguments.dry_run:
            from marlnb.batch.benchmark.run_benchmark import benchmark

            report, progress = not arguments.no_report, not arguments.quiet
            result = benchmark(spec, folder, jobs=arguments.jobs, report=report, progress=progress)
    if arguments.dry_run:
        _show(spec, folder, arguments.json)
        return 0
    return _end(result, arguments.json)


def _spec(arguments: argparse.Namespace) -> tuple[BenchmarkSpec, Path]:
    """The spec, and the benchmark's folder."""
    from marlnb.batch.benchmark.benchmark import SPEC, Benchmark
    from marlnb.batch.benchmark.spec import BenchmarkSpec, read_spec

    overrides = [word for word in arguments.words if "=" in word]
    files = [Path(word) for word in arguments.words if "=" not in word]
    options = {"--algorithms": arguments.algorithms, "--envs": arguments.envs, "--seeds": arguments.seeds}
    if not files:
        if arguments.algorithms is None or arguments.envs is None:
            raise ConfigError("benchmark needs a YAML file or a benchmark's folder, or --algorithms and --envs")
        n_seeds = DEFAULT_SEEDS if arguments.seeds is None else arguments.seeds
        spec = BenchmarkSpec.make(arguments.algorithms, arguments.envs, n_seeds)
        folder = Path(arguments.out or "runs/benchmark")
    else:
        given = [name for name, value in options.items() if value is not None]
        if len(files) > 1 or given:
            raise ConfigError(
                f"benchmark accepts one YAML file or folder alone; got {', '.join([*map(str, files), *given])}"
            )
        (file,) = files
        if (file / SPEC).is_file():
            spec, folder = Benchmark.open(file).spec, Path(arguments.out or file)
        else:
            spec, folder = read_spec(file), Path(arguments.out or f"runs/{file.stem}")
    spec = spec.extended(overrides=overrides, compare=arguments.compare, config_dir=arguments.config_dir)
    if arguments.trust:
        spec.trust(str(folder), "granted")
    return spec, folder


def _show(spec: BenchmarkSpec, folder: Path, as_json: bool) -> None:
    from marlnb.batch.benchmark.benchmark import describe_runs
    from marlnb.batch.trainings.launch import check_runs

    try:
        check_runs(folder, spec.runs())
    except TrustError as error:
        say(str(error))
    rows = describe_runs(folder, spec)
    if as_json:
        return print_json({"folder": str(folder), "spec": spec.to_json(), "runs": rows})
    print_table(list(rows[0]), [list(row.values()) for row in rows])
    complete = sum(row["state"] == "complete" for row in rows)
    ending = ""
    if all(row["of"] is not None for row in rows):
        n_frames = sum(row["of"] - row["frames"] for row in rows if row["state"] != "complete")
        ending = f"; {n_frames:,} frames to train"
    print_text(f"\n{count(len(rows), 'run')} in {folder}, {complete} complete{ending}")


def _end(result: Benchmark, as_json: bool) -> int:
    rows = result.table()
    complete = int((rows["state"] == "complete").sum())
    if as_json:
        runs = [{str(key): value for key, value in row.items()} for row in rows.to_dict("records")]
        ends = {"failed": result.failed, "without_report": result.without_report, "stopped": result.stopped}
        print_json({"folder": str(result.path), "runs": runs, **ends})
    else:
        print_text(f"{result.path}: {complete} of {len(rows)} runs complete")
        for report in result.reports if not result.stopped else ():
            print_text(report.with_suffix(".html"))
    for name, message in result.failed.items():
        say(f"failed: {name}: {message}")
    for metric, message in result.without_report.items():
        say(f"no report of {metric}: {message}")
    if result.stopped:
        say(f"stopped before the end; to continue: {marlnb_command('benchmark', result.path)}")
        return INTERRUPTED
    return FAILED if result.failed else 0
