"""The file `submissions/<n>/jobs.json`: which jobs a submission has."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from marlnb.training.runs.files import write_atomically
from marlnb.training.runs.records import read_record

SUBMITTED = "jobs.json"


@dataclass(frozen=True)
class Submission:
    """What was submitted.

    Attributes:
        jobs: names of the jobs, in the order of their index.
        then: whether the report runs when all are complete.
        reason: of a restart; empty if a person submitted it.
        when: in seconds since 1970.
        updated: by name, the time in each job's status when it was submitted. A status with another time is of this
            submission; which of two times is later says nothing, since clocks differ and are set back.
    """

    jobs: tuple[str, ...]
    then: bool
    reason: str = ""
    when: float = field(default_factory=time.time)
    updated: Mapping[str, float] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        write_atomically(folder / SUBMITTED, json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def read(folder: Path) -> Submission:
        """The submission in a folder. Raises RunError: the file is missing or damaged."""
        return read_record(folder / SUBMITTED, Submission)
