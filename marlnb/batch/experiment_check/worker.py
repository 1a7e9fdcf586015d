"""A process that composes experiments without loading torch: `python -m marlnb.batch.experiment_check.worker`.

It reads a list of lists of overrides as JSON from stdin, and writes one `Verdict` for each to stdout, also as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict


def main() -> None:
    from marlnb.batch.experiment_check import stand_ins

    stand_ins.install()
    from marlnb.batch.experiment_check.compose_all import compose_all

    request = json.load(sys.stdin)
    results = os.dup(1)
    os.dup2(2, 1)  # what modules of the user print at import
    verdicts = compose_all(request["overrides"], time_limit_s=request["time_limit_s"])
    with open(results, "w", encoding="utf-8") as file:
        json.dump([None if verdict is None else asdict(verdict) for verdict in verdicts], file)


if __name__ == "__main__":
    main()
