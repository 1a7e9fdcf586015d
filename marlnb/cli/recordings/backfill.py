"""Add sites that were not recorded, computed from the recorded observations and recurrent states.

They are computed by the checkpoint that made each row, of the run folder that holds the file.

  marlnb backfill runs/talk/recordings/recording.h5 --sites 'listener/critic/*'
"""

from __future__ import annotations

import argparse

from marlnb.cli.output import print_text, quiet_stdout
from marlnb.cli.trust_option import add_trust_argument, trust_if_asked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", metavar="FILE", help="a recording in its run's folder")
    parser.add_argument("--sites", nargs="+", required=True, metavar="GLOB", help="see `marlnb list sites RUN`")
    add_trust_argument(parser)


def run(arguments: argparse.Namespace) -> None:
    with quiet_stdout():
        from marlnb.recording.file.reader import Recording
        from marlnb.recording.tools.backfill import backfill

        with Recording.open(arguments.recording) as recording:
            trust_if_asked(arguments, recording)
            before = set(recording.sites)
            added = [site for site in backfill(recording, arguments.sites).sites if site not in before]
    print_text("\n".join(added))
