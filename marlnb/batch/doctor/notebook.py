"""Checks that the notebook is readable, has parameters, and does not wait for a person."""

from __future__ import annotations

import re
from collections.abc import Iterator

from marlnb.batch.doctor.check import Answer, check
from marlnb.batch.doctor.request import DoctorRequest
from marlnb.batch.sweep.parameters import read_parameters
from marlnb.display.formatting import count

WAITING_CALLS = {
    "input": "waits for text from a keyboard",
    "getpass": "waits for a password from a keyboard",
    "getpass.getpass": "waits for a password from a keyboard",
    "breakpoint": "opens a debugger and waits",
    "pdb.set_trace": "opens a debugger and waits",
    "ipdb.set_trace": "opens a debugger and waits",
    "IPython.embed": "opens a prompt and waits",
}
_SCREEN = re.compile(r"matplotlib\s+(qt\w*|tk\w*|gtk\w*|wx\w*|osx|macosx|notebook|nbagg)\b")


@check("notebook")
def _readable(request: DoctorRequest) -> Iterator[Answer]:
    if request.notebook is None:
        return
    parameters = read_parameters(request.notebook)
    if not parameters:
        text = "no cell has the tag `parameters`, so the notebook can receive neither values nor the job's folder"
        remedy = "tag a cell `parameters` in JupyterLab (property inspector), with run = 'runs/x' in it"
        yield "warn", text, remedy
    elif "run" not in parameters:
        text = "the notebook has no parameter `run`, so it may write outside the job's folder"
        yield "warn", text, "add run = 'runs/x' to the parameters, and train into it: mnb.train(experiment, run=run)"
    for name, parameter in parameters.items():
        if parameter.is_required and name not in request.values:
            yield "fail", f"parameter {name!r} has neither a default nor a value", f"give a value: -p {name}=..."
    for cell in request.cells:
        if not cell.is_python:
            yield "fail", f"cell {cell.number} is not valid Python: {cell.problem}", "correct the cell"
    numbers = {"code cell": len(request.cells), "parameter": len(parameters), "job": len(request.sweep)}
    counts = ", ".join(count(number, word) for word, number in numbers.items())
    yield "ok", f"{request.notebook.name}: {counts}", ""


@check("interaction")
def _waits(request: DoctorRequest) -> Iterator[Answer]:
    for cell in request.cells:
        for name, call in cell.calls():
            if name in WAITING_CALLS:
                remedy = "use a parameter instead, or remove it"
                yield "fail", f"cell {cell.number} calls {name}(), which {WAITING_CALLS[name]}", remedy
            for keyword in call.keywords:
                if keyword.arg in ("render_mode", "mode") and getattr(keyword.value, "value", None) == "human":
                    text = f"cell {cell.number} draws on a screen ({keyword.arg}='human'), but a node has no screen"
                    yield "fail", text, f"{keyword.arg}='rgb_array', or mnb.record(..., frames=True)"
        for command in cell.commands():
            if match := _SCREEN.match(command):
                text = f"cell {cell.number} draws in a window (%matplotlib {match[1]}), but a node has no screen"
                yield "fail", text, "%matplotlib inline"
            if command.split()[:1] == ["debug"]:
                yield "fail", f"cell {cell.number} opens a debugger and waits (%debug)", "remove it"
