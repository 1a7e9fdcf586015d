"""The file that tells simulators where to connect and with which token. Only its owner can read it."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from marlnb.client.messages import SERVER_FILE
from marlnb.disk import problem_of, replacing
from marlnb.envs.external.addresses import is_listening
from marlnb.errors import EnvBuildError


class AddressFile:
    """Written atomically. `remove` deletes it, unless another server has replaced it since."""

    NAME = SERVER_FILE

    def __init__(self, path: Path, address: str, token: str) -> None:
        self._path = path
        self._content = json.dumps({"address": address, "token": token, "pid": os.getpid()})
        self._made_folder = not path.parent.exists()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as part:
                part.unlink(missing_ok=True)
                descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(descriptor, "w", encoding="utf-8") as file:
                    file.write(self._content)
        except OSError as error:
            problem = problem_of(error, path)
            raise EnvBuildError(f"cannot write the server's address to {path}: {problem}") from error

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            if self._path.read_text(encoding="utf-8") == self._content:
                self._path.unlink()
                if self._made_folder:
                    self._path.parent.rmdir()


def is_published(path: Path) -> bool:
    """Whether a server listens at the address in a file."""
    try:
        return is_listening(str(json.loads(path.read_text(encoding="utf-8"))["address"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False
