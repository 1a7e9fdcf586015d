"""A recording as Neurodata Without Borders: units × time by site and agent, trials, behaviour.

One step is `step_s` seconds of the file's clock, so a row is `every` times as long. Episodes follow one another in the
order of their rows.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from marlnb.disk import replacing, writing
from marlnb.errors import RecordingError, RecordingWriteError
from marlnb.paths import expanded
from marlnb.recording.export.selection import ExportSelection, optional_import, select_arrays
from marlnb.recording.file.array import LabelledArray
from marlnb.recording.file.journal import JournaledFile
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.extract import EpisodeNumbers, Patterns
from marlnb.values import checked_number

BATCH_ROWS = 4096


def to_nwb(
    recording: RecordingLike,
    path: str | os.PathLike[str],
    *,
    sites: Patterns = None,
    fields: Patterns = None,
    episodes: EpisodeNumbers = None,
    step_s: float = 1.0,
) -> Path:
    """Writes Neurodata Without Borders: a time series per site and agent, trials and behaviour.

    Args:
        recording: what is converted.
        path: the new file, `<name>.nwb`; its folder is made.
        sites, fields, episodes: as in `to_xarray`.
        step_s: seconds that one step takes on the file's clock, more than 0.
    Raises:
        RecordingError, SiteError: the file exists, or something requested is not recorded.
        ConfigError: pynwb is not installed, or step_s is no such number.
    """
    step_s = checked_number(step_s, float, "step_s", gt=0)
    recording = opened_recording(recording)
    pynwb = optional_import("pynwb")
    selection = select_arrays(recording, sites=sites, fields=fields, episodes=episodes)
    target = expanded(path)
    if target.suffix != ".nwb":
        raise RecordingError(f"an NWB file must be called <name>.nwb; got {target.name!r}")
    if target.exists():
        raise RecordingError(f"{target} already exists; give another name")
    with writing(target, kind=RecordingWriteError):
        target.parent.mkdir(parents=True, exist_ok=True)
        # HDF5 ends the process where it cannot write to a path
        with replacing(target) as unfinished, JournaledFile(unfinished, locking=False) as storage:
            file = _contents(pynwb, recording, selection, step_s, storage)
            with h5py.File(storage, "w") as output, pynwb.NWBHDF5IO(file=output, mode="w") as io:
                io.write(file)
    return target


def _contents(
    pynwb: Any, recording: Recording, selection: ExportSelection, step_s: float, storage: JournaledFile
) -> Any:
    """What is written to `storage`, read only then."""
    recorded_at = datetime.fromtimestamp(recording.path.stat().st_mtime, tz=timezone.utc)
    file = pynwb.NWBFile(
        session_description=f"{recording.spec.name}, recorded by marlnb; one step is {step_s} s",
        identifier=f"{recording.checkpoint[1]}-{recording.path.stem}",
        session_start_time=recorded_at,
        source_script=f"marlnb {recording.file.attrs['code_version']}",
        source_script_file_name="marlnb",
    )
    row_s = step_s * int(recording.file.attrs["every"])
    clock = np.arange(len(selection.t)) * row_s
    activity = file.create_processing_module("ecephys", "activations of hidden units, by site and agent")
    behaviour = file.create_processing_module("behavior", "observations, actions and rewards, by field and agent")
    for name, array in selection.arrays.items():
        module = activity if name in recording.sites else behaviour
        agents: Sequence[str | None] = array.labels.get("agent") or [None]
        for agent in agents:
            module.add(_series(pynwb, name, array, agent, clock, storage))
    _add_trials(file, recording, selection.episode, row_s)
    return file


def _series(
    pynwb: Any, name: str, array: LabelledArray, agent: str | None, clock: np.ndarray, storage: JournaledFile
) -> Any:
    chosen = array if agent is None else array.sel(agent=agent)
    chunks = optional_import("hdmf.data_utils")
    shape = (None, *chosen.shape[1:])
    data = chunks.DataChunkIterator(
        data=storage.until_refused(_rows(chosen)), buffer_size=BATCH_ROWS, maxshape=shape, dtype=_numeric_dtype(chosen)
    )
    labels = chosen.labels.get(chosen.dims[-1]) if len(chosen.dims) > 1 else None
    return pynwb.TimeSeries(
        name=(name if agent is None else f"{name} {agent}").replace("/", "."),
        data=data if len(clock) else np.zeros((0, *chosen.shape[1:]), chosen.dtype),
        unit="n.a.",
        timestamps=clock,
        description=", ".join(labels) if labels else f"{name}, axes {', '.join(('time', *chosen.dims[1:]))}",
    )


def _rows(array: LabelledArray) -> Iterator[np.ndarray]:
    for batch in array.batches(BATCH_ROWS):
        yield from batch.astype(_numeric_dtype(array), copy=False)


def _numeric_dtype(array: LabelledArray) -> np.dtype:
    """NWB's time series hold numbers, so flags become 0 and 1."""
    return np.dtype("uint8") if array.dtype == np.bool_ else array.dtype


def _add_trials(file: Any, recording: Recording, episode: np.ndarray, row_s: float) -> None:
    table = recording.episodes
    file.add_trial_column("episode", "the episode's number")
    file.add_trial_column("seed", "the episode's seed")
    file.add_trial_column("finished", "whether the episode's end was recorded")
    for agent in recording.agents:
        file.add_trial_column(f"return_{agent}", f"sum of the rewards of {agent}")
    edges = [0, *(np.flatnonzero(np.diff(episode)) + 1), len(episode)] if len(episode) else [0]
    for start, stop in itertools.pairwise(edges):
        number = int(episode[start])
        entry = table.loc[number]
        returns = {f"return_{agent}": float(entry[agent]) for agent in recording.agents}
        file.add_trial(
            start_time=start * row_s,
            stop_time=stop * row_s,
            episode=number,
            seed=int(entry["seed"]),
            finished=bool(entry["finished"]),
            **returns,
        )
