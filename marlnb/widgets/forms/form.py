"""ConfigForm: the fields of a configuration dataclass as a form, which is drawn by one widget when it is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from typing import Any

from marlnb.composition.override_writing import write_override
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.field import OptionField
from marlnb.widgets.forms.form_view import PREFIX, FormView


class ConfigForm:
    """The options of one dataclass.

    Attributes:
        kind: the dataclass.
        fields: by option.
    """

    def __init__(
        self,
        kind: type[Any],
        *,
        only: Sequence[str] | None = None,
        title: str = "",
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            only: names of the options in the form; None: all.
            title: below which the options can be folded; empty: they are always visible.
            on_change: called under UI_LOCK after the user has changed an option.
        """
        self.kind = kind
        self._title = title
        self._view: FormView | None = None
        items = [item for item in fields(kind) if item.init and (only is None or item.name in only)]
        self.fields = {item.name: OptionField(kind, item, on_change) for item in items}
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
    def values(self) -> dict[str, Any]:
        """The values of the options.

        Raises:
            ConfigError: a value is not valid; the message names the first such option.
        """
        return {name: field.value for name, field in self.fields.items()}

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
        return [write_override(name, field.value) for name, field in self.fields.items() if not field.is_default]

    @with_ui_lock
    def set(self, config: Any) -> None:
        """Shows the options of a dataclass, or those of a mapping."""
        with nullcontext() if self._view is None else self._view.hold_sync():
            values = config if isinstance(config, Mapping) else vars(config)
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
