"""Choices that the options of several algorithms have."""

from __future__ import annotations

from typing import Literal

RegressionLoss = Literal["l2", "huber"]
