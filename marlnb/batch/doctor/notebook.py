"""The notebook itself: it can be read, has parameters, and waits for nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator

from marlnb.batch.doctor.check import Answer, Subject, check
from marlnb.batch.sweep.parameters import read_parameters

WAITING = {
    "input": "asks for text, and nobody is there to type",
    "getpass": "asks for a password, and nobody is there to type",
    "getpass.getpass": "asks for a password, and nobody is there to type",
    "breakpoint": "opens a debugger and waits",
    "pdb.set_trace": "opens a debugger and waits",
    "ipdb.set_trace": "opens a debugger and waits",
    "IPython.embed": "opens a prompt and waits",
}
_SCREEN = re.compile(r"matplotlib\s+(qt\w*|tk\w*|gtk\w*|wx\w*|osx|macosx|notebook|nbagg)\b")


@check("notebook")
def _readable(subject: Subject) -> Iterator[Answer]:
    if subject.notebook is None:
        return
    parameters = read_parameters(subject.notebook)
    if not parameters:
        text = "no cell has the tag `parameters`: no value can be given, and the job's folder is not known to it"
        remedy = "tag the cell of parameters in JupyterLab (property inspector), with run = 'runs/x' in it"
        yield "warn", text, remedy
    elif "run" not in parameters:
        text = "there is no parameter `run`: what the notebook writes may not lie in the job's folder"
        yield "warn", text, "add run = 'runs/x' to the parameters, and train into it: mnb.train(experiment, run=run)"
    required = [name for name, found in parameters.items() if found.is_required and name not in subject.values]
    for name in required:
        yield "fail", f"parameter {name!r} has no default and is given no value", f"give one: -p {name}=..."
    for cell in subject.cells:
        if not cell.is_python:
            yield "fail", f"cell {cell.number} is no Python: {cell.problem}", "correct it"
    told = f"{len(subject.cells)} cells of code, {len(parameters)} parameters, jobs: {len(subject.sweep)}"
    yield "ok", f"{subject.notebook.name}: {told}", ""


@check("nobody is there")
def _waits(subject: Subject) -> Iterator[Answer]:
    for cell in subject.cells:
        for name, call in cell.calls():
            if name in WAITING:
                remedy = "make it a parameter, or remove it"
                yield "fail", f"cell {cell.number} calls {name}(), which {WAITING[name]}", remedy
            for keyword in call.keywords:
                human = keyword.arg in ("render_mode", "mode") and getattr(keyword.value, "value", None) == "human"
                if human:
                    text = f"cell {cell.number} draws on a screen ({keyword.arg}='human'), and a node has none"
                    yield "fail", text, f"{keyword.arg}='rgb_array', or mnb.record(..., frames=True)"
        for command in cell.commands():
            match = _SCREEN.match(command)
            if match:
                text = f"cell {cell.number} draws in a window (%matplotlib {match[1]}), and a node has no screen"
                yield "fail", text, "%matplotlib inline"
            if command.split()[:1] == ["debug"]:
                yield "fail", f"cell {cell.number} opens a debugger and waits (%debug)", "remove it"
