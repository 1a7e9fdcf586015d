"""Whose policies made the rows of a recording: the run around the file, or a subject that is handed over."""

from __future__ import annotations

import os
from collections.abc import Mapping

from marlnb.errors import RecordingError
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.policy_source import PolicySource, as_policy_source
from marlnb.training.runs.run import Origin


def maker_of(recording: Recording, subject: PolicySource | str | os.PathLike[str] | None) -> PolicySource:
    """The subject that was recorded.

    Raises:
        RecordingError: none is given and the file lies in no run folder.
    """
    if subject is not None:
        return as_policy_source(subject)
    if recording.run_path is None:
        raise RecordingError(
            f"{recording.path} lies in no run folder, so the policies that made it are not known; give subject="
        )
    return as_policy_source(recording.run_path)


def origin_at(recording: Recording, row: int) -> Origin:
    """The checkpoint that made a row."""
    table = recording.checkpoints
    found = table[(table["row_start"] <= row) & (row < table["row_stop"])]
    if not len(found):
        raise RecordingError(f"{recording.path.name} does not say which checkpoint made row {row:,}")
    return Origin(int(found["iteration"].iloc[0]), str(found["sha256"].iloc[0]))


def policies_of(recording: Recording, subject: PolicySource, origin: Origin) -> Mapping[str, Policy]:
    """The policies of a checkpoint, once it is certain that they made the rows.

    Raises:
        RecordingError: they are others now. CheckpointError: the checkpoint is gone.
    """
    check_origin(recording, subject, origin)
    return subject.policies(origin.iteration)


def check_origin(recording: Recording, subject: PolicySource, origin: Origin) -> None:
    found = subject.origin(origin.iteration)
    if found.sha256 != origin.sha256:
        raise RecordingError(
            f"{recording.path.name} was made by weights {origin.sha256[:12]} (iteration {origin.iteration}); those of "
            f"{subject.path} are {found.sha256[:12]}"
        )
