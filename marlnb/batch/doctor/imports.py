"""What the notebook's cells import and which environments they name: whether the node's Python has it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from marlnb.batch.doctor.check import Answer, Subject, check

_ENV = re.compile(r"env=([\w/.:-]+)")
# the extra of marlnb, or the package, that brings a module with another name than its own
BRINGS = {
    "Box2D": "marlnb[sisl]",
    "pygame": "marlnb[butterfly]",
    "pymunk": "marlnb[butterfly]",
    "rlcard": "marlnb[classic]",
    "chess": "marlnb[classic]",
    "vmas": "marlnb[vmas]",
    "pyspiel": "marlnb[openspiel]",
    "umap": "marlnb[umap]",
    "stable_baselines3": "marlnb[sb3]",
    "xarray": "marlnb[export]",
    "minari": "marlnb[export]",
    "pynwb": "marlnb[export]",
    "sklearn": "scikit-learn",
    "cv2": "opencv-python",
    "PIL": "pillow",
    "yaml": "pyyaml",
}


def imported(subject: Subject) -> dict[str, int]:
    """Each module that a cell imports, with the first cell's number; those whose absence is caught are left out."""
    found: dict[str, int] = {}
    for cell in subject.cells:
        for name in _imports(cell.tree) if cell.is_python else ():
            found.setdefault(name, cell.number)
    return found


def named_environments(subject: Subject) -> dict[str, int]:
    """Each environment that a text `env=...` of a cell names, with the first cell's number."""
    found: dict[str, int] = {}
    for cell in subject.cells:
        for text, _ in cell.texts(subject.values):
            match = _ENV.fullmatch(text)
            if match:
                found.setdefault(match[1], cell.number)
    return found


@check("imports")
def _found(subject: Subject) -> Iterator[Answer]:
    names = imported(subject)
    if not names:
        return
    if not subject.seen.executable:
        yield "warn", "imports are not checked, since the kernel did not start", "see the check `kernel`"
        return
    for name in subject.seen.missing:
        package = BRINGS.get(name.partition(".")[0], name.partition(".")[0])
        remedy = f"before the batch, where there is internet: {subject.seen.executable} -m pip install '{package}'"
        yield "fail", f"cell {names[name]} imports {name}, which {subject.seen.executable} does not find", remedy
    if not subject.seen.missing:
        yield "ok", f"all {len(names)} modules that the cells import are there", ""


@check("environments")
def _built(subject: Subject) -> Iterator[Answer]:
    names = named_environments(subject)
    if not names or not subject.seen.executable or subject.seen.import_error:
        return
    for name, problem in subject.seen.broken.items():
        yield "fail", f"cell {names[name]}: env={name} cannot be built: {problem}", "install what the message names"
    if not subject.seen.broken:
        yield "ok", f"every environment that is named was built: {', '.join(names)}", ""


def _imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.level == 0 and child.module:
            yield child.module
        elif isinstance(child, ast.Try):  # `try: import x except ImportError:` goes on without it
            for part in (*child.handlers, *child.orelse, *child.finalbody):
                yield from _imports(part)
        else:
            yield from _imports(child)
