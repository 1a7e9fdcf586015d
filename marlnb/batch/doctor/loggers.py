"""Checks that the loggers are installed and do not need internet."""

from __future__ import annotations

import re
from collections.abc import Iterator

from marlnb.batch.doctor.check import Answer, check
from marlnb.batch.doctor.request import DoctorRequest
from marlnb.training.reporting.loggers import LOGGERS

_LOGGERS_OPTION = re.compile(r"loggers=\[?([\w, ]*)\]?")


@check("loggers")
def _loggers(request: DoctorRequest) -> Iterator[Answer]:
    cell_numbers: dict[str, int] = {}
    for cell in request.cells:
        for text in cell.texts(request.values):
            match = _LOGGERS_OPTION.fullmatch(text)
            for name in re.findall(r"\w+", match[1]) if match else ():
                cell_numbers.setdefault(name, cell.number)
        for name, _ in cell.calls():
            if name == "wandb.init":
                cell_numbers.setdefault("wandb", cell.number)
    for name, number in cell_numbers.items():
        yield from _logger(name, number, request)


def _logger(name: str, number: int, request: DoctorRequest) -> Iterator[Answer]:
    where = f"cell {number} logs to"
    if name not in LOGGERS:
        yield "fail", f"cell {number}: unknown logger {name!r}", f"use one of {', '.join(LOGGERS)}"
        return
    if request.kernel_report.executable and name in request.kernel_report.missing:
        remedy = f"{request.kernel_report.executable} -m pip install 'marlnb[{name}]'"
        yield "fail", f"{where} {name}, which is not installed in {request.kernel_report.prefix}", remedy
        return
    mode = request.environment.get("WANDB_MODE", "online")
    if name == "wandb" and mode not in ("offline", "dryrun", "disabled"):
        text = f"{where} Weights & Biases with WANDB_MODE={mode}; without internet the job waits and fails"
        yield "warn", text, "set `offline: true` in the profile and unset WANDB_MODE; `marlnb sync` uploads later"
    elif name == "wandb":
        text = f"{where} Weights & Biases offline, without a key on the node; `marlnb sync` uploads later"
        yield "ok", text, ""
    else:
        yield "ok", f"{where} {name}, in the run's folder", ""
