"""What every export takes of a recording, and how it is called there: one statement of the options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from marlnb.errors import ConfigError
from marlnb.recording.file.array import LabelledArray
from marlnb.recording.file.layout import field_of
from marlnb.recording.tools.copying import ALWAYS
from marlnb.recording.tools.extract import Chosen, choose

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording


@dataclass(frozen=True)
class Part:
    """Attributes: arrays: by name, lazy, of the chosen rows; episode, t: `[row]` of those rows."""

    arrays: dict[str, LabelledArray]
    groups: dict[str, str]
    episode: np.ndarray
    t: np.ndarray

    def of_group(self, group: str) -> Iterator[tuple[str, LabelledArray]]:
        """Name within the group and array: `actor/hidden_1`, `observation`."""
        for name, array in self.arrays.items():
            if self.groups[name] == group:
                yield name.removeprefix(f"{group}/"), array


def choose_part(
    recording: Recording,
    *,
    sites: Chosen = None,
    fields: Chosen = None,
    episodes: Sequence[int] | slice | None = None,
) -> Part:
    """The chosen episodes' rows of the chosen sites and fields; None: all of them.

    A site is called as it is, a step's field `<group>/<field>`, a label `labels/<name>`, a state `recurrent/...`.

    Raises:
        RecordingError, SiteError: something that is not there.
    """
    portion = choose(recording, episodes=episodes, sites=sites, fields=fields)
    rows = np.arange(len(recording))
    if portion.episodes is not None:
        rows = recording._index.rows(rows, {"episode": portion.episodes}, recording._times)
    arrays, groups = {}, {}
    for path in portion.paths:
        if path in ALWAYS:
            continue
        name = path.removeprefix("activations/").removeprefix("steps/")
        arrays[name] = replace(recording._array(path), rows=rows)
        groups[name] = field_of(recording.file, path).group
    table = recording.rows
    return Part(arrays, groups, table["episode"].to_numpy()[rows], table["t"].to_numpy()[rows])


def feature_names(array: LabelledArray, dim: str, length: int) -> list[str]:
    """Names along an axis, numbers where nobody named them."""
    return list(array.labels.get(dim) or map(str, range(length)))


def needs(package: str) -> ModuleType:
    """An optional package.

    Raises:
        ConfigError: it is not installed, with what installs it.
    """
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(f"exporting needs {package}: pip install 'marlnb[export]'") from error
