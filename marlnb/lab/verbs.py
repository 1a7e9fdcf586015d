"""Session: what the extension can ask for. Each public method is a verb that takes and returns JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marlnb.training.runs.listing import RunListing

BUDGET_S = 0.07  # of one answer


class Session:
    """One open page of the extension."""

    def __init__(self) -> None:
        self._listings: dict[tuple[str, ...], RunListing] = {}

    def runs(self, folders: Sequence[str], *, fresh: bool = False) -> dict[str, Any]:
        """Runs under some folders that are new or changed since the last call.

        Args:
            folders: relative to the kernel's, or absolute.
            fresh: return all of them.
        """
        key = tuple(folders)
        if fresh or key not in self._listings:
            self._listings[key] = RunListing(folders)
        changes = self._listings[key].read(BUDGET_S)
        return {
            "changed": [run.to_json() for run in changes.changed],
            "removed": changes.removed,
            "complete": changes.is_complete,
            "problems": changes.problems,
        }
