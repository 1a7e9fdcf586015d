"""merge: several recordings of the same environment, agents and fields as one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from marlnb.errors import RecordingError
from marlnb.recording.file.layout import field_of
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.copying import Portion, all_paths, copy_episodes, new_recording

SAME_ATTRIBUTES = ("experiment", "source", "spec", "dtype", "every")
SAME_SETTINGS = ("env", "explore", "edits")


def merge(recordings: Sequence[Recording | str | os.PathLike[str]], path: str | os.PathLike[str]) -> Recording:
    """Copies recordings one after the other into a new file, in bounded memory.

    Episodes are numbered anew, 0, 1, ... in the recordings' order; each keeps its seed. The table of checkpoints says
    which rows are of which.

    Raises:
        RecordingError: there are none; they differ in experiment, environment, agents, datasets, dtype, every, in
            whether actions were sampled or in edits, which is named; they hold the same episodes, as two recordings of
            a checkpoint under the same seed do; `path` is there already.
    """
    if not recordings:
        raise RecordingError("there are no recordings to merge")
    target = Path(path).expanduser()
    with ExitStack() as stack:
        opened = [
            item if isinstance(item, Recording) else stack.enter_context(Recording.open(item)) for item in recordings
        ]
        for other in opened[1:]:
            _check_same(opened[0], other)
        _check_other_episodes(opened)
        portion = Portion(all_paths(opened[0]))
        total = sum(len(recording._index) for recording in opened)
        told = {
            "verb": "merge",
            "of": [recording.path.name for recording in opened],
            "settings": [recording.settings for recording in opened],
        }
        attributes = {
            "settings": json.dumps({**opened[0].settings, "episodes": total}, sort_keys=True),
            "derived": json.dumps(told, sort_keys=True),
        }
        complete = all(recording.complete for recording in opened)
        rows = sum(map(len, opened))
        with new_recording(
            target, opened[0], portion, attributes=attributes, expected_rows=rows, complete=complete
        ) as writer:
            number = 0
            for recording in opened:
                number += copy_episodes(recording, writer, portion, first_number=number)
    return Recording.open(target)


def _check_same(first: Recording, other: Recording) -> None:
    refused = f"{other.path} cannot be merged with {first.path}"
    for name in SAME_ATTRIBUTES:
        if first.file.attrs.get(name) != other.file.attrs.get(name):
            raise RecordingError(f"{refused}: another {name}")
    for name in SAME_SETTINGS:
        was, now = first.settings.get(name), other.settings.get(name)
        if was != now:
            raise RecordingError(f"{refused}: {name} is {now!r}, not {was!r}")
    if first.agents != other.agents:
        raise RecordingError(f"{refused}: its agents are {other.agents}, not {first.agents}")
    fields = [{field_of(recording.file, path) for path in all_paths(recording)} for recording in (first, other)]
    differing = sorted({field.path for field in fields[0] ^ fields[1]})
    if differing:
        raise RecordingError(f"{refused}: these datasets are not in both, or of another shape: {', '.join(differing)}")
    if ("frames" in first.file) != ("frames" in other.file):
        raise RecordingError(f"{refused}: frames are in one of them only")


def _check_other_episodes(recordings: Sequence[Recording]) -> None:
    """Refuses an episode that is there twice: fitted in one copy and tested in the other it would be known by heart."""
    found: dict[tuple[object, ...], Recording] = {}
    for recording in recordings:
        played = _played(recording)
        again = played & found.keys()
        if again:
            first = found[next(iter(again))]
            raise RecordingError(
                f"{recording.path} cannot be merged with {first.path}: {len(again)} of its episodes are the same ones, "
                "of the same checkpoint under the same seeds; record with another seed=, or extract the others"
            )
        found |= dict.fromkeys(played, recording)


def _played(recording: Recording) -> set[tuple[object, ...]]:
    """What makes each episode whose seed is known the one that it is: checkpoint, seed and, of sampled actions, how
    they were drawn."""
    settings = recording.settings
    sampled = (settings.get("explore", False), recording.file.attrs.get("generator_seed"), settings.get("n_envs"))
    drawn = sampled if sampled[0] else ()
    table, spans = recording.episodes, recording.checkpoints
    place = np.searchsorted(spans["row_start"].to_numpy(), table["start"].to_numpy(), side="right") - 1
    of = spans["sha256"].to_numpy()[place]
    return {(sha256, seed, *drawn) for sha256, seed in zip(of, table["seed"].tolist()) if seed >= 0}
