"""Donors: recorded activations that an edit puts in, or takes its statistics from.

An edit names its donor by path; the file is opened when the edit comes into force. What reads it lives in
`marlnb.recording`, above this layer, and is found by its import path, as registries find their members.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from os import PathLike, fspath
from typing import cast

import numpy as np

from marlnb.errors import ConfigError
from marlnb.imports import found_at

READER = "marlnb.recording.file.activation_source:RecordingDonor"


class Donor(ABC):
    """What a recording gives.

    Attributes:
        digest: tells this recording from any other; episode, t: `[row]`.
    """

    digest: str
    episode: np.ndarray
    t: np.ndarray

    @abstractmethod
    def values(self, site: str, agent: str) -> np.ndarray:
        """An agent's activations at a site, `[row, unit]` float32; of `<group>/observation`, its features."""

    @abstractmethod
    def alive(self, agent: str) -> np.ndarray:
        """`[row]` bool."""


def open_donor(path: str, digest: str | None = None) -> Donor:
    """The recording at `path`.

    Raises:
        ConfigError: it is not the one that `digest` tells of.
        RecordingError: there is none.
    """
    donor = cast(Donor, found_at(READER)(path))
    if digest is not None and donor.digest != digest:
        raise ConfigError(
            f"the recording at {path} is not the one that this edit was made with "
            f"(digest {donor.digest[:12]}, the edit says {digest[:12]})"
        )
    return donor


def source_path(source: object) -> str | None:
    """The path of a recording, of a path or of None."""
    if source is None or isinstance(source, str):
        return source
    return fspath(cast("PathLike[str]", getattr(source, "path", source)))
