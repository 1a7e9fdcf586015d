"""Record what every agent's hidden units do, step by step, into HDF5.

The file holds activations at the chosen sites with observations, actions, logits, values, rewards and masks. The plan
(datasets, size, time) is printed before recording starts. Episode k runs under seed + k.

  marlnb record runs/spread --sites '*/actor/*' --episodes 200
  marlnb record runs/spread --name development --checkpoint 10 50 130 --episodes 50
  marlnb record runs/spread --name sparse --every 4 --dtype float16 --plan
  marlnb record runs/spread --name longer --env mpe/simple_spread env.max_cycles=50
"""

from __future__ import annotations

import argparse

from marlnb.cli.environment_options import add_environment_arguments, chosen_environment
from marlnb.cli.output import print_text, quiet_stdout, say
from marlnb.cli.trust_option import add_trust_argument
from marlnb.display.formatting import short_path
from marlnb.errors import RecordingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from marlnb.cli.options import add_config_options
    from marlnb.recording.capture.config import RecordingConfig

    parser.add_argument("run", metavar="RUN", help="the run's folder; the file goes to RUN/recordings/NAME.h5")
    add_environment_arguments(parser)
    add_config_options(parser, RecordingConfig, bare={"frames": 1})
    parser.add_argument("--plan", action="store_true", help="print what would be recorded and its size, and stop")
    add_trust_argument(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> None:
    with quiet_stdout():
        from marlnb.cli.options import config_from
        from marlnb.recording.capture.config import RecordingConfig
        from marlnb.recording.capture.plan import plan_recording
        from marlnb.training.runs.run import Run

        opened = Run.open(arguments.run, trust=arguments.trust)
        arguments.env = chosen_environment(arguments)
        config = config_from(arguments, RecordingConfig)
        plan = plan_recording(opened, config)
    if arguments.plan:
        return print_text(plan)
    if plan.path.exists():
        raise RecordingError(f"{short_path(plan.path)} already exists; give another name: --name NAME")
    say(plan.summary())
    with quiet_stdout():
        from marlnb.recording.capture.recorder import record

        recording = record(opened, config, progress=not arguments.quiet)
    print_text(short_path(recording.path))
