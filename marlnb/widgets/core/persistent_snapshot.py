"""KeptPicture: a panel's newest still picture in the notebooks that have it open, also after a page was loaded anew."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

Bundle = Mapping[str, Any]


class KeptPicture(anywidget.AnyWidget):
    """Sends each new picture to the pages, which put it where the notebook's outputs carry this name.

    Attributes:
        name: of the outputs that show the picture, in their metadata.
    """

    _esm = Path(__file__).with_name("persistent_snapshot.js")
    name = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        self._newest: Bundle = {}
        super().__init__(name=secrets.token_hex(8))
        self.on_msg(self._heard)

    @property
    def metadata(self) -> dict[str, str]:
        """Of an output that shows the picture."""
        return {"marlnb_picture": self.name}

    def keep(self, bundle: Bundle) -> None:
        """A mime bundle, instead of the one before."""
        self._newest = bundle
        self.send({"picture": dict(bundle)})

    def _heard(self, _: Any, content: dict[str, Any], buffers: Any) -> None:
        """A page was opened, whose notebook may be older."""
        if content.get("ask") == "picture" and self._newest:
            self.send({"picture": dict(self._newest)})
