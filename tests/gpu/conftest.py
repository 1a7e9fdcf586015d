"""Run by `make gpu-test`, on a machine with a GPU."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("MARLNB_GPU_TESTS") == "1" else ["*"]
