"""Install a HubKernel, and remove exactly what was installed: `marlnb/hub.json` lists each file with its hash."""

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
from marlnb.paths import expanded
from marlnb.training.runs.files import read_json

MANIFEST = Path("marlnb") / "hub.json"
KERNELS = "kernels"


class Installation:
    """What `marlnb hub install` has installed in one Jupyter data folder.

    Attributes:
        data: the data folder: `share/jupyter` of a prefix, or the user's own (JUPYTER_DATA_DIR).
        private: whether files are readable by their owner alone, as in a user's own folder.
        kernels: by name: python, version, display_name, modules, variables (names only), files (hashes by path).
        labextensions: by name: version, kernels (installed with it), files.
        folders: created folders, which are removed when they are empty again.
    """

    def __init__(self, prefix: str | os.PathLike[str] | None = None) -> None:
        """Reads what is installed.

        Args:
            prefix: prefix of a Jupyter; None: the user's own data folder.
        Raises:
            RunError: `hub.json` cannot be read.
        """
        self.private = prefix is None
        own = Path(jupyter_data_dir())
        self.data = own if prefix is None else expanded(prefix).absolute() / "share" / "jupyter"
        manifest = read_json(self.data / MANIFEST) if (self.data / MANIFEST).exists() else {}
        self.kernels: dict[str, dict[str, Any]] = manifest.get("kernels", {})
        self.labextensions: dict[str, dict[str, Any]] = manifest.get("labextensions", {})
        self.folders: list[str] = manifest.get("folders", [])

    def install(self, kernel: HubKernel) -> list[str]:
        """Installs a kernel and missing labextensions; returns a sentence about each.

        Raises:
            BatchError: another kernel has that name, or its files were changed; or the folder cannot be written.
        """
        name, folder = kernel.name, f"{KERNELS}/{kernel.name}"
        if name in self.kernels:
            advice = f"; give another --name, or first run `marlnb hub uninstall --name {name} --force`"
            self._check_unchanged(name, advice)
        elif self._exists(name):
            problem = f"{self.data / folder} already exists and was not made by `marlnb hub install`"
            raise BatchError(f"{problem}; give another --name")
        files = {f"{folder}/{name}": content for name, content in kernel.files().items()}
        with self._writing():
            self._delete_files(self.kernels.get(kernel.name, {}).get("files", {}))
            self.kernels[kernel.name] = _describe(kernel, files)
            self._write()  # before the files, so that a partial installation can be removed
            for name, content in files.items():
                self._write_file(name, content)
            unchanged = {name for name in self.labextensions if not self._was_changed(name)}
            extensions = labextensions.find(self.data, unchanged)
            for extension in extensions:
                self._add_labextension(extension, kernel.name)
            self._write()
        message = f'kernel {kernel.name} ("{kernel.shown_name}") installed in {self.data / folder}'
        return [message, *(extension.describe() for extension in extensions)]

    def uninstall(self, name: str, *, remove_changed: bool = False) -> list[str]:
        """Removes a kernel and labextensions that no other kernel needs; returns a sentence about each.

        Raises:
            BatchError: marlnb installed no such kernel, or its files were changed; nothing was removed.
        """
        if name not in self.kernels:
            hint = f"; {self.data / KERNELS / name} was not made by `marlnb hub install`" if self._exists(name) else ""
            raise BatchError(f"{unknown('kernel of marlnb hub install', name, self.kernels)}{hint}")
        files = self.kernels[name]["files"]
        if not remove_changed:
            self._check_unchanged(name, ", so nothing was removed; give --force to remove it anyway")
        with self._writing():
            messages = [f"kernel {name} removed from {self.data / KERNELS / name}"]
            messages += [f"{path} had already been deleted" for path in files if not (self.data / path).exists()]
            self._delete_files(files)
            del self.kernels[name]
            for extension in list(self.labextensions):
                messages += self._remove_labextension(extension, name)
            if (folder := self.data / KERNELS / name).is_dir():
                others = ", ".join(sorted(os.listdir(folder)))
                messages.append(f"{folder} was not deleted: it contains {others}, which marlnb did not install")
            self._write()
            self._remove_folders()
        return messages

    def changed(self, files: dict[str, str]) -> list[str]:
        """Those of some files, given with their hashes, that exist and have changed."""
        existing = {path: sha256 for path, sha256 in files.items() if (self.data / path).exists()}
        return [path for path, sha256 in existing.items() if _sha256(self.data / path) != sha256]

    def problems(self, name: str) -> list[str]:
        """Missing and changed files of a kernel, and a missing Python."""
        entry = self.kernels[name]
        problems = [f"{self.data / path} is missing" for path in entry["files"] if not (self.data / path).exists()]
        problems += [f"{self.data / path} was changed" for path in self.changed(entry["files"])]
        if not os.access(entry["python"], os.X_OK):
            problems.append(f"{entry['python']} does not exist: the kernel cannot start")
        return problems

    def _check_unchanged(self, name: str, advice: str) -> None:
        if changed := self.changed(self.kernels[name]["files"]):
            paths = ", ".join(str(self.data / path) for path in changed)
            raise BatchError(f"{paths}: changed since the installation{advice}")

    def _exists(self, name: str) -> bool:
        return os.path.lexists(self.data / KERNELS / name)

    def _add_labextension(self, extension: labextensions.Labextension, kernel: str) -> None:
        if extension.action not in ("install", "keep"):
            return
        entry = self.labextensions.get(extension.name, {"kernels": []})
        kernels = sorted({*entry["kernels"], kernel})
        if extension.action == "install" and extension.source is not None:
            target = f"{labextensions.FOLDER}/{extension.name}"
            paths = [path for path in sorted(extension.source.rglob("*")) if path.is_file()]
            names = {f"{target}/{path.relative_to(extension.source).as_posix()}": path for path in paths}
            self._delete_files(entry.get("files", {}))
            entry = {"version": extension.version, "files": {name: _sha256(path) for name, path in names.items()}}
            self.labextensions[extension.name] = {**entry, "kernels": kernels}
            self._write()
            for name, path in names.items():
                self._write_file(name, path.read_bytes())
        self.labextensions[extension.name] = {**entry, "kernels": kernels}

    def _remove_labextension(self, extension: str, kernel: str) -> list[str]:
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
            return [f"labextension {extension} was changed since the installation and stays in {folder}"]
        self._delete_files(entry["files"])
        return [f"labextension {extension} {entry['version']} removed"]

    def _was_changed(self, extension: str) -> bool:
        """Whether another installer, e.g. pip, changed or added a file."""
        installed = self.labextensions[extension]["files"]
        folder = self.data / labextensions.FOLDER / extension
        existing = {path.relative_to(self.data).as_posix() for path in folder.rglob("*") if path.is_file()}
        return bool(self.changed(installed) or existing - set(installed))

    def _delete_files(self, files: Iterable[str]) -> None:
        for path in files:
            (self.data / path).unlink(missing_ok=True)
        self._remove_folders()

    def _write_file(self, name: str, content: bytes) -> None:
        path = self.data / name
        self._make_folder(path.parent)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        mode = 0o600 if self.private and name.startswith(KERNELS) else 0o644
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            if not self.private:
                os.fchmod(file.fileno(), mode)  # whatever the umask is: everybody uses a prefix
            file.write(content)
        part.replace(path)

    def _make_folder(self, folder: Path) -> None:
        missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
        folder.mkdir(parents=True, exist_ok=True)
        if not self.private:
            for path in missing:
                path.chmod(0o755)
        made = [str(path.relative_to(self.data)) for path in missing if path == self.data or self.data in path.parents]
        self.folders = sorted({*self.folders, *made})

    def _remove_folders(self) -> None:
        """Removes created folders that are empty, the deepest first."""
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
        manifest = {"format": 1, "kernels": self.kernels, "labextensions": self.labextensions, "folders": self.folders}
        self._write_file(MANIFEST.as_posix(), f"{json.dumps(manifest, indent=1)}\n".encode())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = "; without --prefix it is installed for you alone, which needs no permissions"
            problem = f"{error.filename or self.data}: {error.strerror or error}"
            raise BatchError(problem + ("" if self.private else hint)) from error


def _describe(kernel: HubKernel, files: dict[str, bytes]) -> dict[str, Any]:
    from marlnb.version import __version__

    return {
        "display_name": kernel.shown_name,
        "python": str(kernel.python),
        "version": __version__,
        "when": time.time(),
        "modules": list(kernel.modules),
        "variables": sorted(kernel.variables),  # without their values, which may be secret
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
