"""`python -m marlnb.batch.doctor FOLDER`: the program that a compute node runs for `marlnb doctor --on-node`."""

from __future__ import annotations

import sys
from pathlib import Path

from marlnb.batch.doctor.node import examine_request

if __name__ == "__main__":
    examine_request(Path(sys.argv[1]))
