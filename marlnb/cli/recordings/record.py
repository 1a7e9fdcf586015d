"""Record what every agent's hidden units do, step by step, into HDF5.

Activations at the chosen sites, with observations, actions, logits, values, rewards and masks beside them. The plan
(what, how many gigabytes, how long) is said before recording starts. Episode k runs under seed + k.

  marlnb record runs/spread --sites '*/actor/*' --episodes 200
  marlnb record runs/spread --name development --checkpoint 10 50 130 --episodes 50
  marlnb record runs/spread --name sparse --every 4 --dtype float16 --plan
  marlnb record runs/spread --name longer --env mpe/simple_spread env.max_cycles=50
"""

from __future__ import annotations

import argparse
from typing import Any

from marlnb.cli.environment_options import add_environment_arguments, chosen_environment
from marlnb.cli.output import quiet_stdout, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's folder; the file goes to RUN/recordings/NAME.h5")
    add_environment_arguments(parser)
    parser.add_argument(
        "--sites",
        nargs="*",
        default=["*/actor/*"],
        metavar="GLOB",
        help="see `marlnb list sites RUN` (default */actor/*); no word after it: no sites",
    )
    parser.add_argument("--agents", nargs="+", metavar="AGENT", help="these only (default: all)")
    parser.add_argument("--episodes", type=int, default=200, metavar="N", help="episodes played (default %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=2000, metavar="N", help="of the first episode (default %(default)s)"
    )
    parser.add_argument("--every", type=int, default=1, metavar="K", help="every k-th step (default %(default)s)")
    parser.add_argument(
        "--dtype",
        default="float32",
        metavar="TYPE",
        help="of activations: float32, float16 or bfloat16 (default float32)",
    )
    parser.add_argument("--name", default="recording", help="of the file (default %(default)s)")
    parser.add_argument(
        "--checkpoint",
        nargs="+",
        default=["last"],
        metavar="WHICH",
        help="last, best or an iteration; several, or all: one file for them (default last)",
    )
    parser.add_argument("--explore", action="store_true", help="sample actions instead of taking the most likely")
    parser.add_argument("--no-values", action="store_true", help="without the critics' estimates")
    parser.add_argument(
        "--frames",
        type=int,
        nargs="?",
        const=1,
        default=0,
        metavar="K",
        help="rendered frames too, of every recorded step or of every k-th of them",
    )
    parser.add_argument("--n-envs", type=int, metavar="N", help="copies of the environment stepped at once")
    parser.add_argument("--plan", action="store_true", help="say what would be recorded and its size; record nothing")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    with quiet_stdout():
        from marlnb.recording.capture.plan import plan_recording
        from marlnb.training.runs.run import Run

        opened = Run.open(arguments.run)
        choices = _choices(arguments)
        plan = plan_recording(opened, **choices)
    if arguments.plan:
        print(plan)
        return 0
    say(plan.summary())
    with quiet_stdout():
        from marlnb.recording.capture.recorder import record

        recording = record(opened, progress=not arguments.quiet, **choices)
    print(recording.path)
    return 0


def _choices(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "sites": arguments.sites[0] if len(arguments.sites) == 1 else tuple(arguments.sites),
        "agents": arguments.agents,
        "episodes": arguments.episodes,
        "seed": arguments.seed,
        "every": arguments.every,
        "dtype": arguments.dtype,
        "name": arguments.name,
        "checkpoint": arguments.checkpoint[0] if len(arguments.checkpoint) == 1 else arguments.checkpoint,
        "explore": arguments.explore,
        "values": not arguments.no_values,
        "frames": arguments.frames,
        "n_envs": arguments.n_envs,
        "env": chosen_environment(arguments),
    }
