"""Exports: what a Recording can be turned into for other tools; each format is a file of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from marlnb.recording.file.reader import Recording
    from marlnb.recording.tools.extract import Chosen


class Exports:
    """The verbs of Recording that lead to other formats; each needs the extra `export`, but for pandas."""

    @property
    def _recording(self) -> Recording:
        from marlnb.recording.file.reader import Recording

        assert isinstance(self, Recording)
        return self

    def to_xarray(
        self, *, sites: Chosen = None, fields: Chosen = None, episodes: Sequence[int] | slice | None = None
    ) -> xr.Dataset:
        """A labelled dataset, read when it is used: dims row, agent, unit, ...; coordinates episode, t and names.

        `sites`, `fields` and `episodes` choose as `marlnb.extract` does. An axis that means different things in
        different arrays is called after its group or array, as `listener_agent`.
        """
        from marlnb.recording.export.arrays import to_xarray

        return to_xarray(self._recording, sites=sites, fields=fields, episodes=episodes)

    def to_pandas(
        self, *, sites: Chosen = None, fields: Chosen = None, episodes: Sequence[int] | slice | None = None
    ) -> pd.DataFrame:
        """A tidy table, one row a step and agent: row, episode, t, agent, group, then what was chosen as columns."""
        from marlnb.recording.export.arrays import to_pandas

        return to_pandas(self._recording, sites=sites, fields=fields, episodes=episodes)

    def to_minari(
        self,
        dataset_id: str,
        *,
        group: str | None = None,
        agents: Sequence[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> list[str]:
        """Writes one Minari dataset an agent and returns their names, as `talk-listener_0-v0` of `talk-v0`.

        Finished episodes and the steps at which the agent acts; rewards in between are added up. The observation after
        the last step was not recorded: the last one is repeated there, and the description says so.

        Args:
            folder: Minari's root of datasets (MINARI_DATASETS_PATH); None: its own.
        Raises:
            RecordingError: not every step was recorded, or another name that is not there.
        """
        from marlnb.recording.export.minari import to_minari

        return to_minari(self._recording, dataset_id, group=group, agents=agents, folder=folder)

    def to_nwb(
        self,
        path: str | os.PathLike[str],
        *,
        sites: Chosen = None,
        fields: Chosen = None,
        episodes: Sequence[int] | slice | None = None,
        step_s: float = 1.0,
    ) -> Path:
        """Writes Neurodata Without Borders: a time series for each site and agent, trials, behaviour.

        Args:
            step_s: seconds that a step takes on the file's clock.
        """
        from marlnb.recording.export.nwb import to_nwb

        return to_nwb(self._recording, path, sites=sites, fields=fields, episodes=episodes, step_s=step_s)
