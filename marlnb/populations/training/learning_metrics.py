"""Names of the metrics of one player or member, next to those of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Metrics = TypeVar("Metrics")


def metrics_named(name: str, by_group: Mapping[str, Metrics]) -> dict[str, Metrics]:
    """The metrics of its only group under its name, those of several groups under name/group."""
    several = len(by_group) > 1
    return {f"{name}/{group}" if several else name: metrics for group, metrics in by_group.items()}
