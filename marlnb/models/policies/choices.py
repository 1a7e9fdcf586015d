"""Choices that the options of several algorithms give their policies."""

from __future__ import annotations

from typing import Literal

Squash = Literal["tanh", "clip"]
"""How continuous actions are bounded."""
StdOf = Literal["parameter", "network"]
"""Where a continuous action's standard deviation comes from."""
LOG_STD_RANGE = (-5.0, 2.0)
"""Minimum and maximum of that standard deviation's logarithm, in nats, bounds scaled to -1..1."""
