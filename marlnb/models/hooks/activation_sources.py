"""ActivationSource: recorded activations that edits copy in or take statistics from.

An edit names its recording by path, and opens it when it comes into force. Recordings are read in a layer above this
one, so the package's root registers the function that opens them (`register_activation_reader`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from os import PathLike, fspath
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import numpy as np


class ActivationSource(ABC):
    """Recorded activations.

    Attributes:
        digest: identifies the recording.
        episode: `[row]` int64, the episode's number.
        t: `[row]` int64, steps since the episode began.
        checkpoints: the iteration of each network that was recorded.
    """

    digest: str
    episode: np.ndarray
    t: np.ndarray
    checkpoints: list[int]

    @abstractmethod
    def values(self, site: str, agent: str) -> np.ndarray:
        """An agent's activations at a site, `[row, unit]` float32; at `<group>/observation`, its features."""

    @abstractmethod
    def alive(self, agent: str) -> np.ndarray:
        """`[row]` bool."""


Reader = Callable[[str], ActivationSource]
_readers: list[Reader] = []


def register_activation_reader(reader: Reader) -> None:
    """Sets the function that opens the recording at a path."""
    _readers[:] = [reader]


def open_activation_source(path: str, digest: str | None = None) -> ActivationSource:
    """The recording at `path`.

    Args:
        digest: the digest that the recording must have; None: any.
    Raises:
        ConfigError: the recording has another digest.
        RecordingError: there is no recording.
    """
    from marlnb.errors import ConfigError  # here, because `import marlnb` imports this module and must stay light

    source = _readers[0](path)
    if digest is not None and source.digest != digest:
        raise ConfigError(
            f"the recording at {path} is not the one that this edit was made with "
            f"(its digest is {source.digest[:12]}, expected {digest[:12]})"
        )
    return source


def source_path(source: object) -> str | None:
    """The path of a recording or of a path; None stays None."""
    if source is None or isinstance(source, str):
        return source
    return fspath(cast("PathLike[str]", getattr(source, "path", source)))
