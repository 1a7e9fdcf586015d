"""The installed version of marlnb; a module of its own, because reading it is slow and few processes need it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("marlnb")
except PackageNotFoundError:  # a source tree on the path, not installed
    __version__ = "0+unknown"
