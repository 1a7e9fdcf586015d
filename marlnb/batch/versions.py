"""Versions: of what results depend on, so that a batch can say what it was made with."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib import metadata


def installed_versions() -> dict[str, str]:
    """Of this Python and of the packages on which results depend; one that is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in ("marlnb", "torch"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
