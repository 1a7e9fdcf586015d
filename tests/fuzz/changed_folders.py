"""Folders of which some files are changed at random, and then looked at.

An input is JSON: a list of (file, change, bytes as Latin-1). A change replaces the bytes, or the file by something that
is no ordinary file: a folder, a pipe, a link to a device, to nothing or to itself, or a file that claims a terabyte.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from marlnb.errors import MarlnbError
from tests.fuzz.processes import Outcome, where
from tests.fuzz.values import Generator, changed_bytes, changed_json, json_bytes, pick

INSTEAD = ("nothing", "folder", "pipe", "device", "dangling", "loop", "terabyte")
TERABYTE = 2**40
WIDGETS_EVERY = 20  # inputs: panels are slow

Looks = Callable[[Path, bool], Mapping[str, Callable[[], Any]]]
"""Of a folder, and whether widgets are wanted: by name, everything that is read of it. Opening it may raise."""


class FolderTarget:
    """A target of changed folders; every input changes the same one.

    Args:
        original: the folder as it should be.
        copy: where it is changed.
        looks: what is then read.
    """

    def __init__(self, original: Path, copy: Path, looks: Looks) -> None:
        self.original, self.copy, self.looks = original, copy, looks
        files = [path.relative_to(original) for path in sorted(original.rglob("*")) if path.is_file()]
        self.contents = {str(path): (original / path).read_bytes() for path in files if path.name != "tensors.bin"}
        self.n_inputs = 0

    def draw(self, generator: Generator) -> bytes:
        changes = []
        for _ in range(1 + int(generator.random() < 0.3)):
            name = pick(generator, list(self.contents))
            kind = pick(generator, ("json", "json", "bytes", "bytes", "bytes", "instead"))
            if kind == "instead":
                changes.append((name, pick(generator, INSTEAD), ""))
            else:
                content = self._changed(name, kind, generator)
                changes.append((name, "bytes", content.decode("latin-1")))
        return json.dumps(changes).encode()

    def outcome(self, data: bytes) -> Outcome:
        shutil.rmtree(self.copy, ignore_errors=True)  # what a process left that a hang or a crash ended
        shutil.copytree(self.original, self.copy)
        try:
            for name, kind, text in json.loads(data):
                _replace(self.copy / name, kind, text.encode("latin-1"))
            self.n_inputs += 1
            return self._look(self.n_inputs % WIDGETS_EVERY == 0)
        finally:
            shutil.rmtree(self.copy)

    def _changed(self, name: str, kind: str, generator: Generator) -> bytes:
        content = self.contents[name]
        if kind == "json" and name.endswith((".json", ".jsonl")) and content:
            lines = content.splitlines() if name.endswith(".jsonl") else [content]
            number = int(generator.integers(len(lines)))
            lines[number] = json_bytes(changed_json(json.loads(lines[number]), generator))
            return b"\n".join(lines) + b"\n"
        return changed_bytes(content, generator)

    def _look(self, with_widgets: bool) -> Outcome:
        """Everything that is read of a folder; refused if any of it was."""
        refused = ""
        for name, look in self.looks(self.copy, with_widgets).items():
            try:
                look()
            except MarlnbError as error:
                refused = f"{name}: {error}"
            except Exception as error:
                return "traceback", f"{name}: {where(error)}"
        return ("refused", refused) if refused else ("accepted", "")


def _replace(path: Path, kind: str, content: bytes) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    if kind == "bytes":
        path.write_bytes(content)
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "dangling":
        path.symlink_to("nothing")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "terabyte":
        with open(path, "wb") as file:
            file.truncate(TERABYTE)
