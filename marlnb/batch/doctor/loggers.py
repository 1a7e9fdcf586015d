"""Loggers beside the run's files: there, and not calling out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from marlnb.batch.doctor.check import Answer, Subject, check
from marlnb.training.loggers import LOGGERS

_ASKED = re.compile(r"loggers=\[?([\w, ]*)\]?")


@check("loggers")
def _loggers(subject: Subject) -> Iterator[Answer]:
    asked: dict[str, int] = {}
    for cell in subject.cells:
        for text, _ in cell.texts(subject.values):
            match = _ASKED.fullmatch(text)
            for name in re.findall(r"\w+", match[1]) if match else ():
                asked.setdefault(name, cell.number)
        for name, _ in cell.calls():
            if name == "wandb.init":
                asked.setdefault("wandb", cell.number)
    for name, number in asked.items():
        yield from _logger(name, number, subject)


def _logger(name: str, number: int, subject: Subject) -> Iterator[Answer]:
    if name not in LOGGERS:
        yield "fail", f"cell {number}: there is no logger {name!r}", f"one of {', '.join(LOGGERS)}"
        return
    if subject.seen.executable and name in subject.seen.missing:
        remedy = f"{subject.seen.executable} -m pip install 'marlnb[{name}]'"
        yield "fail", f"cell {number} logs to {name}, which is not installed in {subject.seen.prefix}", remedy
        return
    mode = subject.environment.get("WANDB_MODE", "online")
    if name == "wandb" and mode not in ("offline", "dryrun", "disabled"):
        text = f"cell {number} logs to Weights & Biases with WANDB_MODE={mode}: without internet a job waits and fails"
        yield "warn", text, "leave `offline` of the profile true and WANDB_MODE unset; `marlnb sync` uploads later"
    elif name == "wandb":
        text = f"cell {number} logs to Weights & Biases offline; no key is needed on the node"
        yield "ok", f"{text}, `marlnb sync` uploads later", ""
    else:
        yield "ok", f"cell {number} logs to {name}, in the run's folder", ""
