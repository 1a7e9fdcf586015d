"""The part of a recording that every export takes, with the names of its arrays there."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

from marlnb.errors import ConfigError
from marlnb.recording.file.array import LabelledArray
from marlnb.recording.file.layout import field_of
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.copying import STEP_COLUMNS
from marlnb.recording.tools.extract import EpisodeNumbers, Patterns, select


@dataclass(frozen=True)
class ExportSelection:
    """The selected rows of some arrays.

    Attributes:
        arrays: by name, lazy.
        groups: by name, the array's group; empty where it belongs to none.
        rows: `[row]`, positions in the file.
        episode: `[row]`, the episode's number.
        t: `[row]`, steps since the episode began.
    """

    arrays: dict[str, LabelledArray]
    groups: dict[str, str]
    rows: np.ndarray
    episode: np.ndarray
    t: np.ndarray

    def of_group(self, group: str) -> Iterator[tuple[str, LabelledArray]]:
        """(name within the group, array), such as `actor/hidden_1` or `observation`."""
        for name, array in self.arrays.items():
            if self.groups[name] == group:
                yield name.removeprefix(f"{group}/"), array


def select_arrays(
    recording: Recording, *, sites: Patterns = None, fields: Patterns = None, episodes: EpisodeNumbers = None
) -> ExportSelection:
    """The selected episodes' rows of the selected sites and fields; None selects all.

    A site keeps its name; a step's field is called `<group>/<field>`, a label `labels/<name>`, a state `recurrent/...`.

    Raises:
        RecordingError, SiteError: something requested is not recorded.
    """
    portion = select(recording, episodes=episodes, sites=sites, fields=fields)
    rows = np.arange(len(recording))
    if portion.episodes is not None:
        rows = recording._index.rows(rows, {"episode": portion.episodes}, recording._times)
    arrays, groups = {}, {}
    for path in portion.paths:
        if path in STEP_COLUMNS:
            continue
        name = path.removeprefix("activations/").removeprefix("steps/")
        arrays[name] = replace(recording._array(path), rows=rows)
        groups[name] = field_of(recording.file, path).group
    table = recording.rows
    return ExportSelection(arrays, groups, rows, table["episode"].to_numpy()[rows], table["t"].to_numpy()[rows])


def optional_import(package: str) -> ModuleType:
    """A package of the extra `export`.

    Raises:
        ConfigError: it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(f"this export needs {package}: pip install 'marlnb[export]'") from error
