"""Checks of paths in the notebook: data, weights and runs that a node would not find; and of variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from marlnb.batch.doctor.cells import Cell, dotted, resolve
from marlnb.batch.doctor.check import Answer, check
from marlnb.batch.doctor.files import is_local
from marlnb.batch.doctor.request import DoctorRequest
from marlnb.paths import expanded

_ABSOLUTE = re.compile(r"(?:~|/[\w.@+=,-]+)(?:/[\w.@+=, -]+)+/?")
_OPENS = ("Run.open", "Recording.open", "Batch.open", "Checkpoint.open", "read_csv", "read_json", "read_parquet")
_LOADS = ("torch.load", "np.load", "numpy.load", "h5py.File", "nbformat.read", "pickle.load", "json.load")
_FILLS = ("train", "start", "copy", "create", "copytree", "extractall", "unpack_archive")  # a folder, with files


@check("data and weights")
def _there(request: DoctorRequest) -> Iterator[Answer]:
    n_paths = 0
    written: set[Path] = set()
    for cell in request.cells:
        opened = dict(_opened(cell, request))
        written.update(_written(cell, request))
        for path, call in opened.items():
            n_paths += 1
            absolute = request.cwd / expanded(path)
            if written.isdisjoint([absolute, *(parent / "*" for parent in absolute.parents)]) and not absolute.exists():
                text = f"cell {cell.number} opens {path!r} with {call}(), but {request.cwd / path} does not exist"
                yield "fail", text, "create it before the batch, or give its path with a parameter"
        for path in dict.fromkeys(text for text in cell.texts(request.values) if _ABSOLUTE.fullmatch(text)):
            n_paths += 1
            yield from _absolute(path, cell, request, is_opened=path in opened)
    if request.cells and not n_paths:
        yield "ok", "no cell names a file or folder outside the job's folder", ""


@check("variables")
def _variables(request: DoctorRequest) -> Iterator[Answer]:
    """Environment variables that cells read and that are not set."""
    set_in_cells = {name for cell in request.cells if cell.is_python for name in _set(cell.tree)}
    for cell in request.cells:
        for name, is_needed in _read(cell) if cell.is_python else ():
            scheduler = ("SLURM",) if request.profile.executor == "slurm" else ()
            if name in request.job_variables or name in set_in_cells or name.startswith(("MARLNB_", *scheduler)):
                continue
            only_here = name in request.environment
            state = "is set here but not passed to jobs (--export=NONE)" if only_here else "is not set"
            text = f"cell {cell.number} reads the variable {name}, which {state}"
            remedy = f"set it in the profile: environment: {{{name}: ...}}, or in your login files on the cluster"
            yield ("fail" if is_needed and not only_here else "warn"), text, remedy


def _opened(cell: Cell, request: DoctorRequest) -> Iterator[tuple[str, str]]:
    """Paths that a cell reads, each with the function that reads it."""
    for name, call in cell.calls():
        if _reads(name, call) and call.args:
            for path in resolve(call.args[0], request.values):
                if "://" not in path:
                    yield path, name


def _written(cell: Cell, request: DoctorRequest) -> Iterator[Path]:
    """Paths that a cell gives to other functions, which may write them, and `path/*` where these fill a folder."""
    for name, call in cell.calls():
        if not _reads(name, call):
            for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
                for path in resolve(argument, request.values):
                    yield request.cwd / expanded(path)
                    if path and name.endswith(_FILLS):
                        yield request.cwd / expanded(path) / "*"


def _reads(name: str, call: ast.Call) -> bool:
    return (name.endswith(_OPENS) or name in _LOADS or name == "open") and not _writes(call)


def _writes(call: ast.Call) -> bool:
    mode = call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "mode"), None)
    return isinstance(mode, ast.Constant) and any(letter in str(mode.value) for letter in "wax+")


def _absolute(path: str, cell: Cell, request: DoctorRequest, *, is_opened: bool) -> Iterator[Answer]:
    absolute = expanded(path)
    if not absolute.exists() and not absolute.parent.exists() and not is_opened:
        text = f"cell {cell.number} names {path}, but neither it nor its folder exists"
        yield "warn", text, "give it with a parameter, or create it before the batch"
    elif request.profile.executor != "local" and not request.on_node and (kind := is_local(absolute)):
        text = f"cell {cell.number} names {path}, which is on a disk of this machine ({kind}) that nodes cannot see"
        yield "warn", text, "move it to a folder that nodes share"


def _read(cell: Cell) -> Iterator[tuple[str, bool]]:
    """Names of environment variables that a cell reads, and whether a missing one raises an error."""
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
