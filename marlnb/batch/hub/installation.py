"""Installs a HubKernel, and takes exactly that away again: `marlnb/hub.json` remembers each file and its hash."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir

from marlnb.batch.hub import labextensions
from marlnb.batch.hub.kernelspec import HubKernel
from marlnb.errors import BatchError, unknown
from marlnb.training.runs.files import read_json, write_atomically

MANIFEST = Path("marlnb") / "hub.json"
KERNELS = "kernels"


class Installation:
    """What `marlnb hub install` has put into one Jupyter data folder.

    Attributes:
        data: the folder: `share/jupyter` of a prefix, or the user's own, which JUPYTER_DATA_DIR names.
        private: whether files are readable by their owner alone; they are where the folder is a user's own.
        kernels: by name: python, version, display_name, modules, variables (names alone), files (hashes by path).
        labextensions: by name: version, kernels (that were installed with it), files.
        folders: that were made, to be removed when they are empty again.
    """

    def __init__(self, prefix: str | os.PathLike[str] | None = None) -> None:
        """Raises RunError when what was installed cannot be read."""
        self.private = prefix is None
        self.data = (
            Path(jupyter_data_dir()) if prefix is None else Path(prefix).expanduser().absolute() / "share" / "jupyter"
        )
        found = read_json(self.data / MANIFEST) if (self.data / MANIFEST).exists() else {}
        self.kernels: dict[str, dict[str, Any]] = found.get("kernels", {})
        self.labextensions: dict[str, dict[str, Any]] = found.get("labextensions", {})
        self.folders: list[str] = found.get("folders", [])

    def install(self, kernel: HubKernel) -> list[str]:
        """Adds a kernel and the labextensions that are missing; returns a sentence on each thing done or left.

        Raises:
            BatchError: a kernel of that name is there and is not ours, or was changed; the folder cannot be written.
        """
        self._check_free(kernel.name)
        folder = f"{KERNELS}/{kernel.name}"
        files = {f"{folder}/{name}": content for name, content in kernel.files().items()}
        with self._writing():
            self._forget_files(self.kernels.get(kernel.name, {}).get("files", {}))
            self.kernels[kernel.name] = _describe(kernel, files)
            self._write()  # before the files: what is half done can be undone
            for name, content in files.items():
                self._put(name, content)
            found = labextensions.find(self.data, {name for name in self.labextensions if not self._was_changed(name)})
            for extension in found:
                self._add_labextension(extension, kernel.name)
            self._write()
        told = f'kernel {kernel.name} ("{kernel.shown_name}") installed in {self.data / folder}'
        return [told, *(extension.describe() for extension in found)]

    def uninstall(self, name: str, *, changed_too: bool = False) -> list[str]:
        """Removes a kernel and labextensions that no other kernel needs; returns a sentence on each thing.

        Raises:
            BatchError: there is no such kernel of ours, or its files were changed since; nothing was removed.
        """
        if name not in self.kernels:
            hint = f"; {self.data / KERNELS / name} was not made by `marlnb hub install`" if self._there(name) else ""
            raise BatchError(f"{unknown('kernel of marlnb hub install', name, self.kernels)}{hint}")
        files = self.kernels[name]["files"]
        changed = self.changed(files)
        if changed and not changed_too:
            raise BatchError(
                f"{', '.join(str(self.data / path) for path in changed)}: changed since it was installed, so nothing "
                f"was removed; --force removes it all the same"
            )
        with self._writing():
            told = [f"kernel {name} removed from {self.data / KERNELS / name}"]
            told += [f"{path} was gone already" for path in files if not (self.data / path).exists()]
            self._forget_files(files)
            del self.kernels[name]
            for extension in list(self.labextensions):
                told += self._drop_labextension(extension, name)
            if (self.data / KERNELS / name).is_dir():
                left = ", ".join(sorted(os.listdir(self.data / KERNELS / name)))
                told.append(f"{self.data / KERNELS / name} is left: it holds {left}, which marlnb did not put there")
            self._write()
            self._remove_folders()
        return told

    def changed(self, files: dict[str, str]) -> list[str]:
        """Of some files with their hashes those that are there and are not what was installed."""
        return [
            path for path, known in files.items() if (found := self.data / path).exists() and _sha256(found) != known
        ]

    def problems(self, name: str) -> list[str]:
        """What keeps a kernel from working, and what was changed."""
        entry = self.kernels[name]
        told = [f"{self.data / path} is missing" for path in entry["files"] if not (self.data / path).exists()]
        told += [f"{self.data / path} was changed" for path in self.changed(entry["files"])]
        if not os.access(entry["python"], os.X_OK):
            told.append(f"{entry['python']} is gone: the kernel cannot start")
        return told

    def _check_free(self, name: str) -> None:
        if name in self.kernels:
            changed = self.changed(self.kernels[name]["files"])
            if changed:
                raise BatchError(
                    f"{', '.join(str(self.data / path) for path in changed)}: changed since it was installed; give "
                    f"another --name, or first run `marlnb hub uninstall --name {name} --force`"
                )
        elif self._there(name):
            raise BatchError(
                f"{self.data / KERNELS / name} is there already and was not made by `marlnb hub install`; give "
                f"another --name"
            )

    def _there(self, name: str) -> bool:
        return os.path.lexists(self.data / KERNELS / name)

    def _add_labextension(self, found: labextensions.Labextension, kernel: str) -> None:
        if found.fate not in ("install", "ours"):
            return
        entry = self.labextensions.get(found.name, {"kernels": []})
        kernels = sorted({*entry["kernels"], kernel})
        if found.fate == "install" and found.source is not None:
            target = f"{labextensions.FOLDER}/{found.name}"
            paths = [path for path in sorted(found.source.rglob("*")) if path.is_file()]
            names = {f"{target}/{path.relative_to(found.source).as_posix()}": path for path in paths}
            self._forget_files(entry.get("files", {}))
            entry = {"version": found.version, "files": {name: _sha256(path) for name, path in names.items()}}
            self.labextensions[found.name] = {**entry, "kernels": kernels}
            self._write()
            for name, path in names.items():
                self._put(name, path.read_bytes())
        self.labextensions[found.name] = {**entry, "kernels": kernels}

    def _drop_labextension(self, extension: str, kernel: str) -> list[str]:
        entry = self.labextensions[extension]
        if kernel not in entry["kernels"]:
            return []
        entry["kernels"].remove(kernel)
        if entry["kernels"]:
            return [f"labextension {extension} stays: {', '.join(entry['kernels'])} needs it"]
        changed = self._was_changed(extension)
        del self.labextensions[extension]
        if changed:
            folder = self.data / labextensions.FOLDER / extension
            return [f"labextension {extension} was changed since it was installed, and is left in {folder}"]
        self._forget_files(entry["files"])
        return [f"labextension {extension} {entry['version']} removed"]

    def _was_changed(self, extension: str) -> bool:
        """By another installer, as pip's: a file differs or was added."""
        known = self.labextensions[extension]["files"]
        folder = self.data / labextensions.FOLDER / extension
        there = {path.relative_to(self.data).as_posix() for path in folder.rglob("*") if path.is_file()}
        return bool(self.changed(known) or there - set(known))

    def _forget_files(self, files: Iterable[str]) -> None:
        for path in files:
            (self.data / path).unlink(missing_ok=True)
        self._remove_folders()

    def _put(self, name: str, content: bytes) -> None:
        path = self.data / name
        self._make_folder(path.parent)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        mode = 0o600 if self.private and name.startswith(KERNELS) else 0o644
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
        part.replace(path)

    def _make_folder(self, folder: Path) -> None:
        missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
        folder.mkdir(parents=True, exist_ok=True)
        made = [str(path.relative_to(self.data)) for path in missing if path == self.data or self.data in path.parents]
        self.folders = sorted({*self.folders, *made})

    def _remove_folders(self) -> None:
        """Those that were made and are empty, the deepest first."""
        for name in sorted(self.folders, key=len, reverse=True):
            folder = self.data / name
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
            if not folder.is_dir():
                self.folders.remove(name)

    def _write(self) -> None:
        if not self.kernels and not self.labextensions:
            (self.data / MANIFEST).unlink(missing_ok=True)
            return
        self._make_folder((self.data / MANIFEST).parent)
        kept = {"format": 1, "kernels": self.kernels, "labextensions": self.labextensions, "folders": self.folders}
        write_atomically(self.data / MANIFEST, json.dumps(kept, indent=1) + "\n")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = "" if self.private else "; without --prefix it is installed for you alone, which needs no rights"
            raise BatchError(f"{error.filename or self.data}: {error.strerror or error}{hint}") from error


def _describe(kernel: HubKernel, files: dict[str, bytes]) -> dict[str, Any]:
    from marlnb.version import __version__

    return {
        "display_name": kernel.shown_name,
        "python": str(kernel.python),
        "version": __version__,
        "when": time.time(),
        "modules": list(kernel.modules),
        "variables": sorted(kernel.variables),  # not their values, which can be secrets
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
