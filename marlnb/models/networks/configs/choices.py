"""Choices that the options of several networks have."""

from __future__ import annotations

from typing import Literal

ActivationName = Literal["tanh", "relu", "elu", "gelu", "silu"]
Pooling = Literal["mean", "sum", "max"]
"""Over the entities of a set."""
