"""A recording as a labelled array (xarray, lazy) and as a tidy table (pandas)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from marlnb.recording.export.selection import Part, choose_part, feature_names, needs
from marlnb.recording.file.array import LabelledArray
from marlnb.recording.tools.extract import Chosen

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from marlnb.recording.file.reader import Recording


def to_xarray(
    recording: Recording,
    *,
    sites: Chosen = None,
    fields: Chosen = None,
    episodes: Sequence[int] | slice | None = None,
) -> xr.Dataset:
    """`Recording.to_xarray`."""
    xarray = needs("xarray")
    part = choose_part(recording, sites=sites, fields=fields, episodes=episodes)
    names = _axis_names(part)
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {"episode": ("row", part.episode), "t": ("row", part.t)}
    for name, array in part.arrays.items():
        dims = ["row", *(names[name, dim] for dim in array.dims[1:])]
        variables[name] = xarray.Variable(dims, _lazy(array), {"stored": array.dtype_stored})
        for dim, axis, length in zip(array.dims[1:], dims[1:], array.shape[1:]):
            if array.labels.get(dim):
                coordinates[axis] = (axis, feature_names(array, dim, length))
    attributes = {name: str(recording.file.attrs[name]) for name in ("code_version", "checkpoint")}
    attributes |= {"recording": recording.path.name, "env": recording.spec.name}
    return xarray.Dataset(variables, coordinates, attributes)


def to_pandas(
    recording: Recording,
    *,
    sites: Chosen = None,
    fields: Chosen = None,
    episodes: Sequence[int] | slice | None = None,
) -> pd.DataFrame:
    """`Recording.to_pandas`."""
    import pandas as pd

    part = choose_part(recording, sites=sites, fields=fields, episodes=episodes)
    tables = [_group_table(recording, part, group) for group in recording.groups]
    return pd.concat(tables, ignore_index=True).sort_values("row", kind="stable", ignore_index=True)


def _axis_names(part: Part) -> dict[tuple[str, str], str]:
    """What each array's axes are called: plainly where all arrays mean the same, else after their group or array."""
    meant: dict[str, dict[str, set[Any]]] = {}
    described: dict[tuple[str, str], Any] = {}
    for name, array in part.arrays.items():
        for dim, length in zip(array.dims[1:], array.shape[1:]):
            axis = (length, tuple(array.labels.get(dim) or ()))
            described[name, dim] = axis
            meant.setdefault(dim, {}).setdefault(part.groups[name], set()).add(axis)
    found = {}
    for (name, dim), _ in described.items():
        group, by_group = part.groups[name], meant[dim]
        if len(set.union(*by_group.values())) == 1:
            found[name, dim] = dim
        elif len(by_group[group]) == 1:
            found[name, dim] = f"{group or 'state'}_{dim}"
        else:
            found[name, dim] = f"{name}_{dim}"
    return found


def _lazy(array: LabelledArray) -> Any:
    """Read when xarray asks for numbers, and only those."""
    backends, indexing = needs("xarray.backends"), needs("xarray.core.indexing")

    class Rows(backends.BackendArray):  # type: ignore[misc, name-defined]
        shape, dtype = array.shape, array.dtype

        def __getitem__(self, key: Any) -> np.ndarray:
            support = indexing.IndexingSupport.OUTER
            return np.asarray(indexing.explicit_indexing_adapter(key, self.shape, support, _read_from(array)))

    return indexing.LazilyIndexedArray(Rows())


def _read_from(array: LabelledArray) -> Any:
    def read(key: tuple[Any, ...]) -> np.ndarray:
        row, axes = key[0], key[1:]
        rows = array.rows[np.atleast_1d(np.arange(len(array.rows))[row])]
        picks = {dim: pick for dim, pick in zip(array.dims[1:], axes) if pick != slice(None)} if axes else {}
        found = replace(array.sel(**picks), rows=rows).to_numpy()
        return found[0] if isinstance(row, (int, np.integer)) else found

    return read


def _group_table(recording: Recording, part: Part, group: str) -> pd.DataFrame:
    """One row a step and agent of one group."""
    import pandas as pd

    agents = recording.group_agents(group)
    n_rows, n_agents = len(part.episode), len(agents)
    columns: dict[str, np.ndarray] = {
        "row": np.repeat(np.arange(n_rows), n_agents),
        "episode": np.repeat(part.episode, n_agents),
        "t": np.repeat(part.t, n_agents),
        "agent": np.tile(np.array(agents, dtype=object), n_rows),
        "group": np.full(n_rows * n_agents, group, dtype=object),
    }
    for name, array in part.of_group(group):
        columns |= _columns(name, array, _spread(array, agents))
    for name, array in part.of_group(""):
        values = array.to_numpy()
        columns |= _columns(name, array, np.repeat(values[:, None], n_agents, axis=1))
    return pd.DataFrame(columns)


def _spread(array: LabelledArray, agents: list[str]) -> np.ndarray:
    """`[row, agent, ...]` with every agent of the group; those that the array is not of are NaN."""
    values, own = array.to_numpy(), list(array.labels["agent"])
    if own == agents:
        return values
    spread = np.full((len(values), len(agents), *values.shape[2:]), np.nan)
    spread[:, [agents.index(agent) for agent in own]] = values
    return spread


def _columns(name: str, array: LabelledArray, values: np.ndarray) -> dict[str, np.ndarray]:
    """`[row, agent, ...]` as columns: `reward`, `observation.velocity_x`, `actor/hidden_1[3]`."""
    inner = values.shape[2:]
    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    if not inner:
        return {name: flat[:, 0]}
    labels = array.labels.get(array.dims[-1]) if len(inner) == 1 else None
    names = [f"{name}.{label}" for label in labels] if labels else []
    names = names or [f"{name}[{','.join(map(str, index))}]" for index in np.ndindex(*inner)]
    return {column: flat[:, place] for place, column in enumerate(names)}
