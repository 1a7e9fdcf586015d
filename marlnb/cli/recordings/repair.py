"""Repair an interrupted or damaged recording in place. An intact one is left unchanged.

  marlnb repair runs/talk/recordings/recording.h5
  marlnb repair runs/talk/recordings/recording.h5 --keep

Exit codes: 0 it is intact or repaired; 2 nothing of it can be restored, and it is unchanged.
"""

from __future__ import annotations

import argparse

from marlnb.cli.output import print_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", metavar="FILE", help="a recording, or the joined file of a segmented one")
    parser.add_argument("--keep", action="store_true", help="keep the original as FILE.bak")


def run(arguments: argparse.Namespace) -> None:
    from marlnb.recording.tools.repair import repair

    print_text(repair(arguments.recording, keep=arguments.keep))
