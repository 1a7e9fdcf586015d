"""PersistentSnapshot: keeps the latest snapshot of a panel in the open notebooks, also after a page was reloaded."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

Bundle = Mapping[str, Any]


class PersistentSnapshot(anywidget.AnyWidget):
    """Sends each new snapshot to the pages, which replace the notebook outputs that carry its name.

    JupyterLab does this itself, but only until the page is reloaded.

    Attributes:
        name: of the outputs that show the snapshot, in their metadata.
    """

    _esm = Path(__file__).with_name("persistent_snapshot.js").read_text(encoding="utf-8")
    name = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        self._latest: Bundle = {}
        super().__init__(name=secrets.token_hex(8))
        self.on_msg(self._receive)

    @property
    def metadata(self) -> dict[str, str]:
        """For an output that shows the snapshot."""
        return {"marlnb_snapshot": self.name}

    def update(self, bundle: Bundle) -> None:
        """Replaces the snapshot by a new mime bundle."""
        self._latest = bundle
        self.send({"snapshot": dict(bundle)})

    def _receive(self, _: Any, content: dict[str, Any], buffers: Any) -> None:
        """A page that was just opened requests the snapshot: its notebook may be older."""
        if content.get("request") == "snapshot" and self._latest:
            self.send({"snapshot": dict(self._latest)})
