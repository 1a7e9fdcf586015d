"""SnapshotTimeline: the snapshots of each player of a league on a line, of which one can be chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import traitlets

from marlnb.populations.league.player_log import PlayerEvent
from marlnb.widgets.core.controls import JavaScriptWidget


class SnapshotTimeline(JavaScriptWidget):
    """One line for each player, its snapshots at the frames that the player had learned from.

    Attributes:
        content: lines, and the frames at their end.
        chosen: id of the chosen snapshot; empty if none is chosen.
    """

    _esm = Path(__file__).with_name("timeline.js").read_text(encoding="utf-8")
    content = traitlets.Dict().tag(sync=True)
    chosen = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        super().__init__(content={"lines": [], "end": 1})

    def show(self, events: Sequence[PlayerEvent], states: Mapping[str, str], end: int) -> None:
        """Replaces the lines.

        Args:
            events: of the players.
            states: by player, such as "learning".
            end: frames at the end of the lines.
        """
        marks: dict[str, list[dict[str, Any]]] = {player: [] for player in states}
        for event in events:
            owner = event.parent if event.event == "snapshot" else event.player
            if event.event not in ("added", "published") and owner in marks:
                reason = f" ({event.reason})" if event.reason else ""
                text = f"{event.player}: {event.event} after {event.frames:,} frames{reason}"
                marks[owner].append({"x": event.frames, "kind": event.event, "id": event.player, "text": text})
        lines = [{"player": player, "state": states[player], "marks": marks[player]} for player in states]
        self.content = {"lines": lines, "end": end}
