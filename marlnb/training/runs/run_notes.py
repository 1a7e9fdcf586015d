"""A user's tags and note about a run, in `notes.json` in its folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marlnb.disk import problem_of, write_atomically
from marlnb.errors import RunError
from marlnb.training.runs.files import is_run, read_json

NOTES = "notes.json"
MAX_TAGS, MAX_TAG_LENGTH, MAX_NOTE_LENGTH = 50, 100, 10_000


def read_notes(run: Path) -> dict[str, Any]:
    """`tags`, a list of texts, and `note`, a text; empty without the file.

    Raises:
        RunError: the file cannot be read.
    """
    notes = read_json(run / NOTES) if (run / NOTES).exists() else {}
    tags, note = notes.get("tags"), notes.get("note")
    return {
        "tags": [tag[:MAX_TAG_LENGTH] for tag in tags if isinstance(tag, str)][:MAX_TAGS]
        if isinstance(tags, list)
        else [],
        "note": note[:MAX_NOTE_LENGTH] if isinstance(note, str) else "",
    }


def write_notes(run: Path, *, tags: Sequence[str], note: str) -> None:
    """Replaces a run's tags and note.

    Raises:
        RunError: the folder is not a run, a text is too long, or the file cannot be written.
    """
    if not is_run(run):
        raise RunError(f"{run} is not a run folder")
    unique = list(dict.fromkeys(filter(None, (tag.strip() for tag in tags))))
    if len(unique) > MAX_TAGS or any(len(tag) > MAX_TAG_LENGTH for tag in unique) or len(note) > MAX_NOTE_LENGTH:
        raise RunError(
            f"tags and note of {run.name}: at most {MAX_TAGS} tags of {MAX_TAG_LENGTH} characters and a note of "
            f"{MAX_NOTE_LENGTH:,} are kept; got {len(unique)} tags and {len(note):,} characters"
        )
    try:
        write_atomically(run / NOTES, json.dumps({"tags": unique, "note": note}) + "\n")
    except OSError as error:
        raise RunError(f"{run / NOTES} cannot be written: {problem_of(error, run)}") from error
