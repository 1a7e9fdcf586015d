"""DrawnForm: options one below the other, each with its control, its help, and what is wrong with it, as one widget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import traitlets

from marlnb.widgets.core.controls import Drawn

PREFIX = "option_"


class DrawnForm(Drawn):
    """Text fields, boxes to tick and choices.

    What stands in the control of an option is a synced value of its own, `option_<name>`: a page that sends one of
    them says nothing of the others, which the kernel or another page may just have changed.

    Attributes:
        options: of each, in order: name, control (text, tick or choice), help, choices and placeholder.
        problems: by option, why it cannot be used.
        title: of what can be folded away; empty where the options are always seen.
        is_open: whether they are seen below the title.
    """

    _esm = Path(__file__).with_name("form_view.js")
    options: traitlets.List[dict[str, Any]] = traitlets.List(traitlets.Dict()).tag(sync=True)
    problems: traitlets.Dict[str, str] = traitlets.Dict().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    is_open = traitlets.Bool(False).tag(sync=True)

    def __init__(self, options: Sequence[Mapping[str, Any]], values: Mapping[str, str | bool], **traits: Any) -> None:
        """
        Args:
            options: as the attribute. values: what stands in each control.
            traits: the other attributes.
        """
        kinds = {
            name: traitlets.Bool if isinstance(value, bool) else traitlets.Unicode for name, value in values.items()
        }
        self.add_traits(**{PREFIX + name: kind().tag(sync=True) for name, kind in kinds.items()})
        given = {PREFIX + name: value for name, value in values.items()}
        super().__init__(options=[dict(option) for option in options], **given, **traits)
