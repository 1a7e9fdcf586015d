"""OptionalPart: a part that an experiment can be without, such as a league: a checkbox, and the part below it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import ipywidgets as w

from marlnb.plugins.registry import Registry
from marlnb.widgets.core.controls import Checkbox
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.part_form import PartForm


class OptionalPart:
    """Whether an experiment has a part, which one, and its options.

    Attributes:
        box: the widget to display.
        is_on: the checkbox.
    """

    def __init__(
        self, registry: Registry[Any], part: Any | None, first: str, description: str, *, on_change: Callable[[], None]
    ) -> None:
        """
        Args:
            part: its config; None: the experiment has none.
            first: name of the one that is shown when the checkbox is first ticked.
            description: of the checkbox.
            on_change: called under UI_LOCK after each change.
        """
        self._registry, self._first, self._on_change = registry, part or first, on_change
        self._is_updating = False
        self.is_on = Checkbox(value=part is not None, description=description, indent=False)
        self.is_on.observe(self._switched, "value")
        self.box = w.VBox(self._children)

    @cached_property
    def part(self) -> PartForm:
        """Made on first use: most experiments have none."""
        return PartForm(self._registry, self._first, on_change=self._on_change)

    @property
    def config(self) -> Any | None:
        """None: the experiment has none. Raises ConfigError: an option is not valid."""
        return self.part.config if self.is_on.value else None

    @with_ui_lock
    def set(self, config: Any | None) -> None:
        """Shows a part, or that there is none; `on_change` is not called."""
        self._is_updating = True
        try:
            if config is not None:
                self.part.set(config)
            self.is_on.value = config is not None
        finally:
            self._is_updating = False

    @property
    def _children(self) -> list[w.Widget]:
        return [self.is_on, *([self.part.box] if self.is_on.value else [])]

    def _switched(self, change: Any) -> None:
        self.box.children = self._children
        if not self._is_updating:
            self._on_change()
