"""FormView: one widget that draws options below each other, each with its control, its help and its problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import traitlets

from marlnb.widgets.core.controls import JavaScriptWidget

PREFIX = "option_"


class FormView(JavaScriptWidget):
    """Text fields, checkboxes and choices.

    The value of each option is a synced trait `option_<name>`. So a page that sends one value does not overwrite the
    others, which the kernel or another page may have just changed.

    Attributes:
        options: of each option: name, control (text, tick or choice), help, choices and placeholder.
        problems: by option, why its value is not valid.
        title: of the part that can be folded; empty if the options are always visible.
        is_open: whether the options below the title are visible.
    """

    _esm = Path(__file__).with_name("form_view.js").read_text(encoding="utf-8")
    options: traitlets.List[dict[str, Any]] = traitlets.List(traitlets.Dict()).tag(sync=True)
    problems: traitlets.Dict[str, str] = traitlets.Dict().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    is_open = traitlets.Bool(False).tag(sync=True)

    def __init__(self, options: Sequence[Mapping[str, Any]], values: Mapping[str, str | bool], **traits: Any) -> None:
        """
        Args:
            options: as the attribute.
            values: of each option, what its control shows.
            traits: the other attributes.
        """
        kinds = {
            name: traitlets.Bool if isinstance(value, bool) else traitlets.Unicode for name, value in values.items()
        }
        self.add_traits(**{PREFIX + name: kind().tag(sync=True) for name, kind in kinds.items()})
        prefixed = {PREFIX + name: value for name, value in values.items()}
        super().__init__(options=[dict(option) for option in options], **prefixed, **traits)
