"""Paths that stand in the notebook: data, weights and runs that a node would not find."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from marlnb.batch.doctor.cells import Cell, dotted, resolve
from marlnb.batch.doctor.check import Answer, Subject, check
from marlnb.batch.doctor.files import is_local

_ABSOLUTE = re.compile(r"(?:~|/[\w.@+=,-]+)(?:/[\w.@+=, -]+)+/?")
_OPENS = ("Run.open", "Recording.open", "Batch.open", "Checkpoint.open", "read_csv", "read_json", "read_parquet")
_LOADS = ("torch.load", "np.load", "numpy.load", "h5py.File", "nbformat.read", "pickle.load", "json.load")


@check("data and weights")
def _there(subject: Subject) -> Iterator[Answer]:
    n_paths = 0
    for cell in subject.cells:
        opened = dict(_opened(cell, subject))
        for path, call in opened.items():
            n_paths += 1
            if not (subject.cwd / Path(path).expanduser()).exists():
                text = f"cell {cell.number} opens {path!r} by {call}(), and {subject.cwd / path} is not there"
                yield "fail", text, "make it before the batch, or give its path by a parameter"
        for path in dict.fromkeys(text for text, _ in cell.texts(subject.values) if _ABSOLUTE.fullmatch(text)):
            n_paths += 1
            yield from _absolute(path, cell, subject, is_opened=path in opened)
    if subject.cells and not n_paths:
        yield "ok", "no cell names a file or folder outside the job's own", ""


@check("variables")
def _variables(subject: Subject) -> Iterator[Answer]:
    """Variables that cells read and nobody sets."""
    set_there = {name for cell in subject.cells if cell.is_python for name in _set(cell.tree)}
    for cell in subject.cells:
        for name, is_needed in _read(cell) if cell.is_python else ():
            if name in subject.reaching or name in set_there or name.startswith("MARLNB_"):
                continue
            if name.startswith("SLURM") and subject.profile.executor == "slurm":
                continue
            kept_back = name in subject.environment
            why = "is set here and not handed to jobs (--export=NONE)" if kept_back else "is not set"
            text = f"cell {cell.number} reads the variable {name}, which {why}"
            remedy = f"set it in the profile: environment: {{{name}: ...}}, or in your login files on the cluster"
            yield ("fail" if is_needed and not kept_back else "warn"), text, remedy


def _opened(cell: Cell, subject: Subject) -> Iterator[tuple[str, str]]:
    """Paths that a cell reads from, with what reads them."""
    for name, call in cell.calls():
        reads = name.endswith(_OPENS) or name in _LOADS or (name == "open" and not _writes(call))
        if reads and call.args and not _writes(call):
            for path in resolve(call.args[0], subject.values):
                if "://" not in path:
                    yield path, name


def _writes(call: ast.Call) -> bool:
    mode = call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "mode"), None)
    return isinstance(mode, ast.Constant) and any(letter in str(mode.value) for letter in "wax+")


def _absolute(path: str, cell: Cell, subject: Subject, *, is_opened: bool) -> Iterator[Answer]:
    found = Path(path).expanduser()
    if not found.exists() and not found.parent.exists() and not is_opened:
        text = f"cell {cell.number} names {path}, which is not there, nor is its folder"
        yield "warn", text, "give it by a parameter, or make it before the batch"
    elif subject.profile.executor != "local" and not subject.on_node and (kind := is_local(found)):
        text = f"cell {cell.number} names {path}, which lies on a disk of this machine ({kind}): nodes do not see it"
        yield "warn", text, "put it into a folder that the nodes share"


def _read(cell: Cell) -> Iterator[tuple[str, bool]]:
    """Names of variables that a cell reads, and whether their absence is an error."""
    for node in ast.walk(cell.tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_environ(dotted(node.value)):
            if isinstance(node.slice, ast.Constant):
                yield str(node.slice.value), True
        elif isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            is_get = dotted(node.func) in ("os.getenv", "getenv", "os.environ.get", "environ.get")
            if is_get and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value), False


def _set(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _is_environ(dotted(node.value)):
            if isinstance(node.slice, ast.Constant):
                yield str(node.slice.value)
        elif isinstance(node, ast.Call) and dotted(node.func).endswith(("environ.setdefault", "environ.update")):
            yield from (str(item.value) for item in node.args if isinstance(item, ast.Constant))
            yield from (item.arg for item in node.keywords if item.arg)


def _is_environ(name: str) -> bool:
    return name in ("os.environ", "environ")
