"""Copy a part of a recording into a new recording: episodes, agents, sites, fields, every k-th step.

marlnb extract runs/talk/recordings/recording.h5 --out runs/talk/recordings/part.h5 --episodes 0:20 --sites '*/hidden_1'
"""

from __future__ import annotations

import argparse

from marlnb.cli.output import print_text
from marlnb.cli.selection_options import add_selection_arguments, chosen_selection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", metavar="FILE", help="a recording")
    parser.add_argument("--out", required=True, metavar="PATH", help="the new file; it must not exist")
    parser.add_argument("--agents", nargs="+", metavar="AGENT", help="names or globs (default: all)")
    parser.add_argument("--every", type=int, metavar="K", help="every k-th step (default: as recorded)")
    add_selection_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    from marlnb.recording.tools.extract import extract

    selection = {"agents": arguments.agents, "every": arguments.every, **chosen_selection(arguments)}
    with extract(arguments.recording, arguments.out, **selection) as extracted:
        print_text(extracted.path)
