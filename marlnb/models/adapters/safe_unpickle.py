"""Reads pickles without executing them: every class becomes a plain record, and nothing is imported.

Python's pickles are programs. This reader allows them to build numbers, text, lists, dictionaries and records, and
raises an error for everything else, so an untrusted file cannot run code.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from marlnb.errors import CheckpointError
from marlnb.text_files import read_bytes


class Record:
    """An object of a class that is not imported.

    Attributes:
        home: module and name of the class, for example `benchmarl.models.mlp.MlpConfig`.
        kind: the name of the class.
        state: the object's attributes by name.
        arguments: the arguments of its constructor.
    """

    home = ""

    def __new__(cls, *arguments: Any) -> Record:
        record = super().__new__(cls)
        record.arguments, record.state = arguments, {}
        return record

    def __init__(self, *arguments: Any) -> None:
        self.arguments: tuple[Any, ...]
        self.state: dict[str, Any]

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
            state = {**(state[0] or {}), **state[1]}
        self.state = dict(state) if isinstance(state, dict) else {"state": state}

    @property
    def kind(self) -> str:
        return self.home.rpartition(".")[2]

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute of the original object, or the default."""
        return self.state.get(name, default)

    def __repr__(self) -> str:
        return f"Record({self.home}, {self.state or self.arguments})"


class _Reader(pickle.Unpickler):
    """Replaces every class with a subclass of Record; raises an error for functions."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in REFUSED and (module, name) not in PLAIN:
            raise CheckpointError(f"{module}.{name} is neither data nor a class of the experiment")
        if (module, name) in PLAIN:
            return PLAIN[module, name]
        return type(name.rpartition(".")[2], (Record,), {"home": f"{module}.{name}"})

    def persistent_load(self, pid: Any) -> NoReturn:
        raise CheckpointError("an object is stored outside the file")


def _new(kind: Any, *arguments: Any) -> Any:
    if not (isinstance(kind, type) and issubclass(kind, Record)):
        raise CheckpointError(f"building {kind!r} would run code")
    return kind()


def _member(kind: Any, name: Any) -> Any:
    """An enum member, which is pickled as an attribute of its class."""
    record = _new(kind)
    record.state = {"name": str(name)}
    return record


DATA_MODULES = {"collections", "dataclasses", "datetime", "decimal", "enum", "fractions", "typing", "uuid"}
OTHER_CODE = {"__builtin__", "__main__", "cloudpickle", "copy_reg", "dill", "numpy", "pip"}
REFUSED = (sys.stdlib_module_names - DATA_MODULES) | OTHER_CODE
PLAIN: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "getattr"): _member,
    ("copyreg", "_reconstructor"): _new,
    ("collections", "OrderedDict"): dict,
    ("pathlib", "PosixPath"): lambda *parts: "/".join(map(str, parts)),
}


def read_records(path: Path) -> list[Any]:
    """The objects of a file of consecutive pickles. Instances of classes become `Record`s.

    Raises:
        CheckpointError: the file is not a pickle, or contains more than data.
    """
    try:
        data = io.BytesIO(read_bytes(path))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    records = []
    while data.tell() < len(data.getbuffer()):
        try:
            records.append(_Reader(data).load())
        except CheckpointError as error:
            raise CheckpointError(f"{path} is not plain data: {error}") from error
        except Exception as error:
            raise CheckpointError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    return records
