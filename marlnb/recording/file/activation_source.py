"""RecordingDonor: a recording as the donor of activations for edits."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from marlnb.errors import RecordingError, unknown
from marlnb.models.hooks.activation_sources import Donor
from marlnb.recording.file.reader import Recording


class RecordingDonor(Donor):
    """Reads what an edit asks for; the file is closed again after each question.

    The digest is of what determines every number in a recording: its settings, checkpoints, and count of rows.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with Recording.open(path) as recording:
            rows = recording.rows
            self.episode, self.t = rows["episode"].to_numpy(), rows["t"].to_numpy()
            told = {
                "settings": recording.settings,
                "checkpoints": recording.checkpoints["sha256"].tolist(),
                "agents": recording.agents,
                "rows": len(recording),
            }
        self.digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def values(self, site: str, agent: str) -> np.ndarray:
        group, _, rest = site.partition("/")
        with Recording.open(self.path) as recording:
            array = recording.steps(group, "observation") if rest == "observation" else recording[site]
            have = array.labels["agent"]
            if agent not in have:
                raise RecordingError(f"{self.path}: {unknown(f'recorded agent at {site!r}', agent, have)}")
            read = array.sel(agent=agent).to_numpy()
        return np.asarray(read.reshape(len(read), -1), dtype=np.float32)

    def alive(self, agent: str) -> np.ndarray:
        with Recording.open(self.path) as recording:
            for group in recording.groups:
                if agent in recording.group_agents(group):
                    return np.asarray(recording.steps(group, "alive").sel(agent=agent).to_numpy(), dtype=bool)
            raise RecordingError(f"{self.path}: {unknown('recorded agent', agent, recording.agents)}")
