"""Sizes of files and folders, for people."""

from __future__ import annotations

from pathlib import Path


def folder_bytes(folder: Path) -> int:
    """Of the files in a folder; one that is removed meanwhile counts nothing."""
    return sum(file_bytes(path) for path in folder.rglob("*") if path.is_file())


def file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
