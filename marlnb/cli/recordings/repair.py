"""Mend a recording that was interrupted or damaged, in its place; one in which nothing is wrong is left as it is.

  marlnb repair runs/talk/recordings/recording.h5
  marlnb repair runs/talk/recordings/recording.h5 --keep

Exit codes: 0 it is whole, or mended; 2 nothing of it can be saved, it is untouched.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", metavar="FILE", help="a recording, or the joined file of one in segments")
    parser.add_argument("--keep", action="store_true", help="keep the original as FILE.bak")


def run(arguments: argparse.Namespace) -> int:
    from marlnb.recording.tools.repair import repair

    print(repair(arguments.recording, keep=arguments.keep))
    return 0
