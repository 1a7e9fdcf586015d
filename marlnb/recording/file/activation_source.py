"""RecordedActivations: a recording as the source of activations for edits."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from marlnb.errors import RecordingError, unknown
from marlnb.models.hooks.activation_sources import ActivationSource
from marlnb.recording.file.reader import Recording


class RecordedActivations(ActivationSource):
    """Reads what an edit needs. The file is closed after each call.

    The digest covers what determines every number in a recording: its settings, checkpoints, agents and row count.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with Recording.open(path) as recording:
            rows = recording.rows
            self.episode, self.t = rows["episode"].to_numpy(), rows["t"].to_numpy()
            table = recording.checkpoints
            self.checkpoints = sorted(iteration for iteration, _ in set(zip(table["iteration"], table["sha256"])))
            identity = {
                "settings": recording.settings,
                "checkpoints": table["sha256"].tolist(),
                "agents": recording.agents,
                "rows": len(recording),
            }
        self.digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def values(self, site: str, agent: str) -> np.ndarray:
        group, _, rest = site.partition("/")
        with Recording.open(self.path) as recording:
            array = recording.steps(group, "observation") if rest == "observation" else recording[site]
            agents = array.labels["agent"]
            if agent not in agents:
                raise RecordingError(f"{self.path}: {unknown(f'recorded agent at {site!r}', agent, agents)}")
            values = array.sel(agent=agent).to_numpy()
        return np.asarray(values.reshape(len(values), -1), dtype=np.float32)

    def alive(self, agent: str) -> np.ndarray:
        with Recording.open(self.path) as recording:
            for group in recording.groups:
                if agent in recording.group_agents(group):
                    return np.asarray(recording.steps(group, "alive").sel(agent=agent).to_numpy(), dtype=bool)
            raise RecordingError(f"{self.path}: {unknown('recorded agent', agent, recording.agents)}")
