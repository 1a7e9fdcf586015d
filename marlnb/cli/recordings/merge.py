"""Join several recordings of the same environment, agents and fields into one. Episodes are renumbered.

marlnb merge runs/talk/recordings/a.h5 runs/talk/recordings/b.h5 --out runs/talk/recordings/both.h5
"""

from __future__ import annotations

import argparse

from marlnb.cli.output import print_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recordings", nargs="+", metavar="FILE", help="recordings, in the order of their rows")
    parser.add_argument("--out", required=True, metavar="PATH", help="the new file; it must not exist")


def run(arguments: argparse.Namespace) -> None:
    from marlnb.recording.tools.merge import merge

    with merge(arguments.recordings, arguments.out) as merged:
        print_text(merged.path)
