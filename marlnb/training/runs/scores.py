"""The two scores of a run, each with its name: exploring, as in the training curve, and greedy, as in an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXPLORING, GREEDY = "exploring", "greedy"
MISSING = {EXPLORING: "no episode yet", GREEDY: "not evaluated"}


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


def _by_group(returns: Any) -> str:
    values = returns if isinstance(returns, dict) else {}
    return " ".join(f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, int | float))
