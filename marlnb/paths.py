"""Paths as users write them."""

from __future__ import annotations

import os
from pathlib import Path

from marlnb.errors import ConfigError


def is_file_name(name: str) -> bool:
    """Whether a name is that of a file in a folder, so that it leads to no other folder."""
    return name == Path(name).name and name not in ("", "..")


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with a leading `~` or `~user` replaced by that user's folder.

    Raises:
        ConfigError: this machine knows no such user, or not the folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        name = Path(path).parts[0]
        raise ConfigError(
            f"{os.fspath(path)!r}: this machine does not know the home folder of {name}; expected ~ or "
            f"~user; a folder that is called {name} is ./{name}"
        ) from None
