"""A recording as a labelled dataset (xarray, lazy) and as a tidy table (pandas)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from marlnb.recording.export.selection import ExportSelection, optional_import, select_arrays
from marlnb.recording.file.array import LabelledArray
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.extract import EpisodeNumbers, Patterns

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

NETCDF_TYPES = {"uint8": "int16", "uint16": "int32"}  # in files: netCDF 3 has no unsigned integers


def to_xarray(
    recording: RecordingLike, *, sites: Patterns = None, fields: Patterns = None, episodes: EpisodeNumbers = None
) -> xr.Dataset:
    """A labelled dataset that is read when it is used, with dims row, agent, unit, ... and coordinates episode, t.

    An axis that means different things in different arrays is named after its group or array, such as `listener_agent`.
    `to_netcdf` needs names without slashes, and writes uint8 as int16, which every netCDF file can hold.

    Args:
        recording: what is converted; it must stay open.
        sites: globs; None: all.
        fields: globs over everything else, as `marlnb.extract` takes them; None: all.
        episodes: numbers, or a slice that excludes its end; None: all.
    Raises:
        RecordingError, SiteError: something requested is not recorded.
        ConfigError: xarray is not installed.
    """
    recording = opened_recording(recording)
    xarray = optional_import("xarray")
    selection = select_arrays(recording, sites=sites, fields=fields, episodes=episodes)
    names = _axis_names(selection)
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {"episode": ("row", selection.episode), "t": ("row", selection.t)}
    for name, array in selection.arrays.items():
        axes = ["row", *(names[name, dim] for dim in array.dims[1:])]
        wider = NETCDF_TYPES.get(str(array.dtype))
        encoding = {"dtype": wider} if wider else {}
        variables[name] = xarray.Variable(axes, _lazy(array), {"stored": array.dtype_stored}, encoding)
        for dim, axis in zip(array.dims[1:], axes[1:]):
            if array.labels.get(dim):
                coordinates[axis] = (axis, list(array.labels[dim]))
    attributes = {"code_version": str(recording.file.attrs["code_version"]), "checkpoint": recording.checkpoint[1]}
    attributes |= {"recording": recording.path.name, "env": recording.spec.name}
    return xarray.Dataset(variables, coordinates, attributes)


def to_pandas(
    recording: RecordingLike, *, sites: Patterns = None, fields: Patterns = None, episodes: EpisodeNumbers = None
) -> pd.DataFrame:
    """A tidy table with one row per step and agent: row, episode, t, agent, group, then the chosen arrays.

    `row` is the step's position in the file, as in `recording.rows`, whichever episodes are chosen. The arguments are
    those of `to_xarray`.
    """
    recording = opened_recording(recording)
    import pandas as pd

    selection = select_arrays(recording, sites=sites, fields=fields, episodes=episodes)
    tables = [_group_table(recording, selection, group) for group in recording.groups]
    return pd.concat(tables, ignore_index=True).sort_values("row", kind="stable", ignore_index=True)


def _axis_names(selection: ExportSelection) -> dict[tuple[str, str], str]:
    """The name of each array's axis: its own where it means the same in all arrays, else with the group or array."""
    axes: dict[tuple[str, str], Any] = {}  # (array, dim) -> (length, labels)
    meanings: dict[str, dict[str, set[Any]]] = {}  # dim -> group -> distinct axes
    for name, array in selection.arrays.items():
        for dim, length in zip(array.dims[1:], array.shape[1:]):
            axis = (length, tuple(array.labels.get(dim) or ()))
            axes[name, dim] = axis
            meanings.setdefault(dim, {}).setdefault(selection.groups[name], set()).add(axis)
    names = {}
    for name, dim in axes:
        group, by_group = selection.groups[name], meanings[dim]
        if len(set.union(*by_group.values())) == 1:
            names[name, dim] = dim
        elif len(by_group[group]) == 1:
            names[name, dim] = f"{group or 'state'}_{dim}"
        else:
            names[name, dim] = f"{name}_{dim}"
    return names


def _lazy(array: LabelledArray) -> Any:
    """An array that xarray reads only where it needs numbers."""
    backends, indexing = optional_import("xarray.backends"), optional_import("xarray.core.indexing")

    class Rows(backends.BackendArray):  # type: ignore[misc, name-defined]
        shape, dtype = array.shape, array.dtype

        def __getitem__(self, key: Any) -> np.ndarray:
            support = indexing.IndexingSupport.OUTER
            return np.asarray(indexing.explicit_indexing_adapter(key, self.shape, support, _reader(array)))

    return indexing.LazilyIndexedArray(Rows())


def _reader(array: LabelledArray) -> Any:
    def read(key: tuple[Any, ...]) -> np.ndarray:
        row, axes = key[0], key[1:]
        rows = array.rows[np.atleast_1d(np.arange(len(array.rows))[row])]
        named = zip(array.dims[1:], axes)
        picks = {dim: pick for dim, pick in named if not isinstance(pick, slice) or pick != slice(None)}
        values = array.sel(**picks).read_rows(rows)
        return values[0] if isinstance(row, (int, np.integer)) else values

    return read


def _group_table(recording: Recording, selection: ExportSelection, group: str) -> pd.DataFrame:
    """One row per step and agent of one group."""
    import pandas as pd

    agents = recording.group_agents(group)
    n_rows, n_agents = len(selection.rows), len(agents)
    columns: dict[str, np.ndarray] = {
        "row": np.repeat(selection.rows, n_agents),
        "episode": np.repeat(selection.episode, n_agents),
        "t": np.repeat(selection.t, n_agents),
        "agent": np.tile(np.array(agents, dtype=object), n_rows),
        "group": np.full(n_rows * n_agents, group, dtype=object),
    }
    for name, array in selection.of_group(group):
        columns |= _columns(name, array, _all_agents(array, agents))
    for name, array in selection.of_group(""):
        columns |= _columns(name, array, np.repeat(array.to_numpy()[:, None], n_agents, axis=1))
    return pd.DataFrame(columns)


def _all_agents(array: LabelledArray, agents: list[str]) -> np.ndarray:
    """`[row, agent, ...]` for every agent of the group; NaN for agents that the array does not have."""
    values, array_agents = array.to_numpy(), list(array.labels["agent"])
    if array_agents == agents:
        return values
    spread = np.full((len(values), len(agents), *values.shape[2:]), np.nan)
    spread[:, [agents.index(agent) for agent in array_agents]] = values
    return spread


def _columns(name: str, array: LabelledArray, values: np.ndarray) -> dict[str, np.ndarray]:
    """`[row, agent, ...]` as columns: `reward`, `observation.velocity_x`, `actor/hidden_1[3]`."""
    inner = values.shape[2:]
    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    if not inner:
        return {name: flat[:, 0]}
    labels = array.labels.get(array.dims[-1]) if len(inner) == 1 else None
    if labels:
        names = [f"{name}.{label}" for label in labels]
    else:
        names = [f"{name}[{','.join(map(str, index))}]" for index in np.ndindex(*inner)]
    return {column: flat[:, index] for index, column in enumerate(names)}
