"""The front end's scripts and styles for notebooks, as `make widgets` builds them from extensions/views."""

from __future__ import annotations

import json
from pathlib import Path

BUNDLES = Path(__file__).resolve().parents[1] / "bundles"  # in the wheel; in a clone once it is built
# in place of a script that is not built: a sentence, and the message that a page shows the widget
_MISSING = """export default { render({ model, el }) {
  el.textContent = %s;
  el.setAttribute("role", "alert");
  model.send({ seen: true });
} };"""


def script(name: str) -> str:
    """An anywidget module; without the built one, a module that says how to build it."""
    path = BUNDLES / f"{name}.js"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    sentence = f"{path.name} is not built: run `make widgets` in the clone, then restart the kernel."
    return _MISSING % json.dumps(sentence)


def style(name: str) -> str:
    """The style sheet of a module; empty without the built one."""
    path = BUNDLES / f"{name}_style.css"
    return path.read_text(encoding="utf-8") if path.is_file() else ""
