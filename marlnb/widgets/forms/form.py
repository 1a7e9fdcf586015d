"""ConfigForm: the fields of a configuration dataclass as a form, which is drawn by one widget when it is shown.

A field that holds options of its own, as those of a role in a league, is a form below, which can be folded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from typing import Any

from marlnb.composition.override_writing import write_override
from marlnb.values import hints
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.field import OptionField, default_of
from marlnb.widgets.forms.form_view import PREFIX, FormView


class ConfigForm:
    """The options of one dataclass.

    Attributes:
        kind: the dataclass.
        fields: by option.
        parts: by option that holds options of its own, its form.
    """

    def __init__(
        self,
        kind: type[Any],
        *,
        only: Sequence[str] | None = None,
        title: str = "",
        defaults: Any = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            only: names of the options in the form; None: all.
            title: below which the options can be folded; empty: they are always visible.
            defaults: an instance with other defaults than those of `kind`; None: those of `kind`.
            on_change: called under UI_LOCK after the user has changed an option.
        """
        self.kind = kind
        self._title = title
        self._view: FormView | None = None
        items = [item for item in fields(kind) if item.init and (only is None or item.name in only)]
        if defaults is not None:
            items = [_with_default(item, getattr(defaults, item.name)) for item in items]
        nested = {item.name: item for item in items if is_dataclass(hints(kind)[item.name])}
        self.fields = {item.name: OptionField(kind, item, on_change) for item in items if item.name not in nested}
        self.parts = {
            name: ConfigForm(
                hints(kind)[name],
                title=f"{name}: {item.metadata.get('help', '')}",
                defaults=default_of(item),
                on_change=on_change,
            )
            for name, item in nested.items()
        }
        for field in self.fields.values():
            field.show = partial(self._show, field)

    @property
    @with_ui_lock
    def box(self) -> FormView:
        """The widget to display. It is made on first use, since each widget costs a page time."""
        if self._view is None:
            self._view = FormView(
                [field.description for field in self.fields.values()],
                {name: field.raw for name, field in self.fields.items()},
                problems=self.problems,
                title=self._title_with_counts,
                is_open=bool(self.problems),
            )
            self._view.observe(self._entered, [PREFIX + name for name in self.fields])
        return self._view

    @property
    def boxes(self) -> list[FormView]:
        """The widgets to display below each other: `box`, and those of the options that hold options of their own."""
        return [self.box, *(box for part in self.parts.values() for box in part.boxes)]

    @property
    def values(self) -> dict[str, Any]:
        """The values of the options.

        Raises:
            ConfigError: a value is not valid; the message names the first such option.
        """
        own = {name: field.value for name, field in self.fields.items()}
        return own | {name: part.config for name, part in self.parts.items()}

    @property
    def config(self) -> Any:
        """The dataclass. Raises ConfigError as `values`, or if the options contradict each other."""
        return self.kind(**self.values)

    @property
    def problems(self) -> dict[str, str]:
        """By option, why its value is not valid."""
        return {name: field.problem for name, field in self.fields.items() if field.problem}

    @property
    def n_changed(self) -> int:
        """Number of options that differ from their defaults."""
        return sum(not field.is_default for field in self.fields.values())

    def as_overrides(self) -> list[str]:
        """The options that differ from their defaults, as overrides of an experiment for `Experiment.compose`."""
        own = [write_override(name, field.value) for name, field in self.fields.items() if not field.is_default]
        return own + [f"{name}.{word}" for name, part in self.parts.items() for word in part.as_overrides()]

    @with_ui_lock
    def set(self, config: Any) -> None:
        """Shows the options of a dataclass, or those of a mapping."""
        values = config if isinstance(config, Mapping) else vars(config)
        for name, part in self.parts.items():
            if name in values:
                part.set(values[name])
        with nullcontext() if self._view is None else self._view.hold_sync():
            for name, field in self.fields.items():
                if name in values:
                    field.set(values[name])

    def _entered(self, change: Any) -> None:
        self.fields[change["name"].removeprefix(PREFIX)].enter(change["new"])

    def _show(self, field: OptionField) -> None:
        """Shows one option. The others stay untouched: a page may have sent values that are not yet handled."""
        if self._view is not None:
            setattr(self._view, PREFIX + field.item.name, field.raw)
            self._view.problems = self.problems
            self._view.title = self._title_with_counts
            self._view.is_open = self._view.is_open or bool(self.problems)

    @property
    def _title_with_counts(self) -> str:
        if not self._title:
            return ""
        n_problems = len(self.problems)
        counts = [f"{self.n_changed} changed"] * bool(self.n_changed) + [f"{n_problems} invalid"] * bool(n_problems)
        return self._title + (f" ({', '.join(counts)})" if counts else "")


def _with_default(item: Field[Any], value: Any) -> Field[Any]:
    item = copy.copy(item)
    item.default, item.default_factory = value, MISSING
    return item
