"""A cluster to try things on: `python -m tests.cluster up | down | install` (make cluster-up, make cluster-down)."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import fields
from pathlib import Path

from tests.cluster import packages
from tests.cluster.cluster import Cluster, left_over, take_down
from tests.cluster.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("action", choices=("install", "up", "down"))
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd and a database, so that sacct answers")
    default = Settings()
    for name in ("state", "port", "node", "network", "cpus"):
        value = getattr(default, name)
        parser.add_argument(f"--{name}", type=type(value) if name != "state" else Path, default=value)
    asked = parser.parse_args()
    known = {field.name for field in fields(Settings)}
    settings = Settings(**{key: value for key, value in vars(asked).items() if key in known})
    if asked.action == "install":
        packages.install(accounting=asked.accounting)
    elif asked.action == "up":
        cluster = Cluster.start(settings)
        print(cluster.command("sinfo"), end="")
        print(f"\nexport SLURM_CONF={settings.conf}\n\nThe node has no internet. When done: make cluster-down")
    else:
        take_down(settings)
        shutil.rmtree(settings.state, ignore_errors=True)
        remains = left_over(settings)
        print(f"still there:\n{remains}" if remains else "down; nothing is left")
        return 1 if remains else 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
