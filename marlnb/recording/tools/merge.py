"""merge: joins several recordings of the same environment, agents and fields into one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from marlnb.errors import RecordingError, shown
from marlnb.paths import expanded
from marlnb.recording.file.layout import field_of, row_paths
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.copying import Portion, copy_episodes, new_recording
from marlnb.recording.tools.recorded_env import differing_options, in_words, recorded_options
from marlnb.training.limits import CHANGEABLE

EQUAL_ATTRIBUTES = ("source", "spec", "dtype", "every")
EQUAL_SETTINGS = ("env", "explore", "edits")


def merge(recordings: Sequence[RecordingLike], path: str | os.PathLike[str]) -> Recording:
    """Copies recordings one after the other into a new file, in bounded memory.

    Episodes are renumbered 0, 1, ... in the recordings' order and keep their seeds. `checkpoints` states which rows
    each checkpoint made.

    Raises:
        RecordingError: there are no recordings; they differ in experiment (but for what `resume` changes), environment
            or its options, agents, datasets, dtype, every, explore or edits; they hold the same episodes, as two
            recordings of one checkpoint under the same seed do; or `path` exists.
    """
    if isinstance(recordings, Recording | str | os.PathLike):
        name = str(recordings.path if isinstance(recordings, Recording) else recordings)
        raise RecordingError(f"merge needs a list of recordings or their paths; got one, {shown(name)}")
    if not recordings:
        raise RecordingError("there are no recordings to merge")
    target = expanded(path)
    with ExitStack() as stack:
        opened = [
            item if isinstance(item, Recording) else stack.enter_context(opened_recording(item)) for item in recordings
        ]
        for other in opened[1:]:
            _check_compatible(opened[0], other)
        _check_no_duplicates(opened)
        portion = Portion(row_paths(opened[0].file))
        n_episodes = sum(len(recording._index) for recording in opened)
        derived = {
            "verb": "merge",
            "of": [recording.path.name for recording in opened],
            "settings": [recording.settings for recording in opened],
        }
        attributes = {
            "settings": json.dumps({**opened[0].settings, "episodes": n_episodes}, sort_keys=True),
            "derived": json.dumps(derived, sort_keys=True),
        }
        complete = all(recording.complete for recording in opened)
        n_rows = sum(map(len, opened))
        with new_recording(
            target, opened[0], portion, attributes=attributes, expected_rows=n_rows, complete=complete
        ) as writer:
            number = 0
            for recording in opened:
                number += copy_episodes(recording, writer, portion, first_number=number)
    return Recording.open(target)


def _check_compatible(first: Recording, other: Recording) -> None:
    problem = f"{other.path} cannot be merged with {first.path}"
    a, b = _lasting_options(first), _lasting_options(other)
    if differing := sorted(name for name in a | b if a.get(name) != b.get(name)):
        raise RecordingError(f"{problem}: experiment differs in {', '.join(differing)}")
    for name in EQUAL_ATTRIBUTES:
        if first.file.attrs.get(name) != other.file.attrs.get(name):
            raise RecordingError(f"{problem}: {name} differs")
    for name in EQUAL_SETTINGS:
        expected, got = first.settings.get(name), other.settings.get(name)
        if expected != got:
            raise RecordingError(f"{problem}: {name} is {got!r}, not {expected!r}")
    options = recorded_options(first), recorded_options(other)
    if differing := differing_options(*options):
        expected, got = (in_words(each, differing) for each in options)
        raise RecordingError(f"{problem}: its environment has {got}, not {expected}")
    if bool(options[0]) != bool(options[1]):
        raise RecordingError(f"{problem}: only one of them states the options of its environment")
    if first.agents != other.agents:
        raise RecordingError(f"{problem}: its agents are {other.agents}, not {first.agents}")
    fields = [{field_of(item.file, path) for path in row_paths(item.file)} for item in (first, other)]
    differing = sorted({field.path for field in fields[0] ^ fields[1]})
    if differing:
        raise RecordingError(f"{problem}: these datasets are missing in one or differ in shape: {', '.join(differing)}")
    if ("frames" in first.file) != ("frames" in other.file):
        raise RecordingError(f"{problem}: only one of them has frames")


def _lasting_options(recording: Recording) -> dict[str, Any]:
    """The options of its experiment that `resume` cannot change; empty without an experiment."""
    options = json.loads(recording.file.attrs.get("experiment") or "{}")
    return {name: value for name, value in options.items() if name not in CHANGEABLE}


def _check_no_duplicates(recordings: Sequence[Recording]) -> None:
    """Raises RecordingError for an episode in two recordings: it could be in both training and test data."""
    owners: dict[tuple[object, ...], Recording] = {}
    for recording in recordings:
        keys = _episode_keys(recording)
        duplicates = keys & owners.keys()
        if duplicates:
            first = owners[next(iter(duplicates))]
            raise RecordingError(
                f"{recording.path} cannot be merged with {first.path}: {len(duplicates)} of its episodes are the same, "
                "of the same checkpoint under the same seeds; record with another seed=, or extract the others"
            )
        owners |= dict.fromkeys(keys, recording)


def _episode_keys(recording: Recording) -> set[tuple[object, ...]]:
    """What identifies each episode with a known seed: checkpoint, seed and how sampled actions were drawn."""
    settings = recording.settings
    sampling: tuple[object, ...] = ()
    if settings.get("explore", False):
        sampling = (True, recording.file.attrs.get("generator_seed"), settings.get("n_envs"))
    table, checkpoints = recording.episodes, recording.checkpoints
    index = np.searchsorted(checkpoints["row_start"].to_numpy(), table["start"].to_numpy(), side="right") - 1
    hashes = checkpoints["sha256"].to_numpy()[index]
    return {(sha256, seed, *sampling) for sha256, seed in zip(hashes, table["seed"].tolist()) if seed >= 0}
