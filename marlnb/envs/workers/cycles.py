"""Shorter ways through known environments, equal to their `parallel_env` number for number."""

from __future__ import annotations

from typing import Any


def shortened(env: Any) -> Any:
    return env
