"""Checks of JSON that marlnb wrote as a dataclass: the file may have been changed, or come from anyone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from marlnb.codec import from_json
from marlnb.errors import ConfigError, RunError
from marlnb.training.runs.files import read_json

T = TypeVar("T")


def read_record(path: Path, kind: type[T]) -> T:
    """The dataclass in a JSON file. Raises RunError as `checked_record`, or if the file cannot be read."""
    return checked_record(read_json(path), kind, str(path))


def checked_record(data: Mapping[str, Any], kind: type[T], where: str) -> T:
    """The dataclass with these values.

    Args:
        where: start of the message: the file, or a line of it.
    Raises:
        RunError: a value is missing, unknown or of another type.
    """
    try:
        return from_json(data, kind)
    except ConfigError as error:
        raise RunError(f"{where} is damaged: {error}") from error
