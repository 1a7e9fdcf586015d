"""The option --config-dir of commands that compose experiments or environments."""

from __future__ import annotations

import argparse


def add_config_dir_argument(parser: argparse.ArgumentParser, contents: str = "YAML variants") -> None:
    default = "default $MARLNB_CONFIG_DIR, or else ./conf if it exists"
    parser.add_argument("--config-dir", metavar="FOLDER", help=f"folder of {contents} ({default})")
