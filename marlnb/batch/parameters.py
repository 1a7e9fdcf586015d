"""Parameters of a notebook: read from its cell tagged `parameters`, checked before anything is executed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import papermill
from papermill.exceptions import PapermillException

from marlnb.errors import ConfigError, unknown


def parse_parameters(texts: Sequence[str]) -> dict[str, Any]:
    """`["seed=1", "name=abc"]` -> `{"seed": 1, "name": "abc"}`: JSON where it is JSON, text otherwise.

    Raises:
        ConfigError: one has no `=`.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"-p takes key=value; got {text!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def checked_parameters(notebook: Path, given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The values given, and the folder as `run` where the notebook has such a parameter and none is given.

    Raises:
        ConfigError: no such notebook, or a parameter that it does not have.
    """
    if not notebook.is_file():
        raise ConfigError(f"no notebook at {notebook}")
    try:
        have = papermill.inspect_notebook(str(notebook))
    except (PapermillException, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"{notebook} cannot be read as a notebook: {error}") from error
    for name in given:
        if name not in have:
            raise ConfigError(unknown(f"parameter of {notebook.name}", name, have))
    return {"run": str(folder), **given} if "run" in have else dict(given)
