"""The status of a run's training, from its files alone, and its two scores as text; nothing heavy is imported.

A score is exploring, as in the training curve, or greedy, as in an evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import dropwhile
from math import isfinite
from pathlib import Path
from typing import Any

from marlnb.display.formatting import format_number
from marlnb.errors import RunError
from marlnb.training.runs.files import LOCK, STATUS, is_damage, is_run, read_json
from marlnb.training.runs.lock import is_locked
from marlnb.training.runs.metrics_rows import leaves
from marlnb.training.runs.states import RUNNING_STATES, STATES
from marlnb.values import MAX_INTEGER

EXPLORING, GREEDY = "exploring", "greedy"
MISSING = {EXPLORING: "no episode yet", GREEDY: "not evaluated"}
TYPES: dict[str, type | tuple[type, ...]] = {
    "state": str,
    **dict.fromkeys(("iteration", "frames", "frames_total", "checkpoint", "pid"), int),
    **dict.fromkeys(("frames_per_second", "eta_s", "updated"), (int, float)),
    **dict.fromkeys(("host", "reason", "error"), str),
    **dict.fromkeys(("limits", "scores"), dict),
}


def read_status(run: Path) -> dict[str, Any]:
    """state, frames, frames_per_second, eta_s, pid, host, updated (seconds since 1970); as far as known.

    state is interrupted if a training run ended without reporting it, for example after a kill, or if the file is
    damaged: a training run resumes from its checkpoints, not from this file. Without the file, it is created, or
    missing if the folder is no run any more.

    Raises:
        RunError: the file cannot be read.
    """
    status = _read(run)
    if status["state"] in RUNNING_STATES and not is_locked(run / LOCK):
        status["state"] = "interrupted"
    return status


def _read(run: Path) -> dict[str, Any]:
    file = run / STATUS
    try:
        if file.exists():
            return _checked(read_json(file))
    except RunError as error:
        if file.exists():  # else it was deleted meanwhile
            if not is_damage(error):
                raise
            return {"state": "interrupted", "frames": 0}
    return {"state": "created" if is_run(run) else "missing", "frames": 0}


def _checked(status: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a status that have the right type. Without a known state, the training was interrupted."""
    known = {
        name: value
        for name, value in status.items()
        if (value is None or isinstance(value, TYPES.get(name, object))) and all(map(_is_json, leaves(value)))
    }
    state = known.get("state")
    return {**known, "frames": known.get("frames") or 0, "state": state if state in STATES else "interrupted"}


def _is_json(value: Any) -> bool:
    """Whether a value can be written as JSON again, and computed with: infinities, NaN and huge integers cannot."""
    return isfinite(value) if isinstance(value, float) else not isinstance(value, int) or abs(value) <= MAX_INTEGER


def error_parts(error: str) -> tuple[str, str]:
    """The message of an error, and the last exception of a traceback that it quotes, without frames; empty without one.

    Both have all of their lines.
    """
    message, *traces = re.split(r"(?:^|: )Traceback \(most recent call last\):$", error.strip(), flags=re.MULTILINE)
    lines = traces[-1].strip("\n").splitlines() if traces else []
    return message.strip(), "\n".join(dropwhile(lambda line: line.startswith(" "), lines)).strip()


def scores_text(status: Mapping[str, Any]) -> str:
    """The mean return of one agent by group in both modes, from a run's status; empty before any episode ended.

    `exploring` is the mean of the latest training episodes, whose actions were sampled; `greedy` that of the last
    evaluation, in which each agent took its most likely action.
    """
    scores: Mapping[str, Any] = status.get("scores") or {}
    texts = {mode: _by_group(scores.get(mode)) for mode in MISSING}
    if not any(texts.values()):
        return ""
    return "return " + ", ".join(f"{mode} {text or MISSING[mode]}" for mode, text in texts.items())


def scores_of_group(status: Mapping[str, Any], group: str) -> dict[str, float]:
    """By mode, the mean return of one agent of a group, as far as known; of a population that of the fittest member.

    Empty where the group's agents play against each other: then the scores are those of single agents.
    """
    return {mode: known[group] for mode, known in scores_by_mode(status).items() if group in known}


def scores_by_mode(status: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """By mode, the mean return of one agent by group, as far as known.

    By player where those of a single group play against each other; an evaluation has only their mean there, always 0,
    which is left out.
    """
    scores: Mapping[str, Any] = status.get("scores") or {}
    returns = {mode: _known(scores.get(mode)) for mode in MISSING}
    names = returns[EXPLORING] or returns[GREEDY]
    return {mode: {name: known[name] for name in names if name in known} for mode, known in returns.items()}


def _by_group(returns: Any) -> str:
    return " ".join(f"{name} {format_number(value)}" for name, value in _known(returns).items())


def _known(returns: Any) -> dict[str, float]:
    values = returns.items() if isinstance(returns, dict) else ()
    return {name: value for name, value in values if isinstance(value, int | float)}
