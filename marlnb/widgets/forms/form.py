"""Forms: a configuration dataclass as fields, drawn by one widget once somebody can see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from typing import Any

from marlnb.widgets.core.ui_lock import in_turn
from marlnb.widgets.forms.field import OptionField
from marlnb.widgets.forms.form_view import PREFIX, DrawnForm
from marlnb.wording import write_override


class ConfigForm:
    """The options of one dataclass.

    Attributes:
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
            only: names of the options that it has; None: all.
            title: of what the options can be folded away under; empty: they are always seen.
            on_change: called in turn after somebody changed an option.
        """
        self.kind = kind
        self._title = title
        self._drawn: DrawnForm | None = None
        chosen = [item for item in fields(kind) if item.init and (only is None or item.name in only)]
        self.fields = {item.name: OptionField(kind, item, on_change) for item in chosen}
        for field in self.fields.values():
            field.show = partial(self._show, field)

    @property
    @in_turn
    def box(self) -> DrawnForm:
        """The widget to show; made when it is first asked for, as it costs a page something."""
        if self._drawn is None:
            self._drawn = DrawnForm(
                [field.description for field in self.fields.values()],
                {name: field.raw for name, field in self.fields.items()},
                problems=self.problems,
                title=self._headline,
                is_open=bool(self.problems),
            )
            self._drawn.observe(self._entered, [PREFIX + name for name in self.fields])
        return self._drawn

    @property
    def values(self) -> dict[str, Any]:
        """The options as they stand.

        Raises:
            ConfigError: one of them cannot be used; the first such one is named.
        """
        return {name: field.value for name, field in self.fields.items()}

    @property
    def config(self) -> Any:
        """The dataclass. Raises ConfigError as `values`, or where the options do not fit together."""
        return self.kind(**self.values)

    @property
    def problems(self) -> dict[str, str]:
        """By option, why it cannot be used."""
        return {name: field.problem for name, field in self.fields.items() if field.problem}

    @property
    def n_changed(self) -> int:
        """Options that differ from their defaults."""
        return sum(not field.is_default for field in self.fields.values())

    def as_overrides(self) -> list[str]:
        """Options that differ from their defaults, as `Experiment.compose` takes those of an experiment itself."""
        return [write_override(name, field.value) for name, field in self.fields.items() if not field.is_default]

    @in_turn
    def set(self, config: Any) -> None:
        """Shows the options of a dataclass, or those of a mapping."""
        with nullcontext() if self._drawn is None else self._drawn.hold_sync():
            for name, field in self.fields.items():
                if isinstance(config, Mapping):
                    if name in config:
                        field.set(config[name])
                else:
                    field.set(getattr(config, name))

    def _entered(self, change: Any) -> None:
        self.fields[change["name"].removeprefix(PREFIX)].enter(change["new"])

    def _show(self, field: OptionField) -> None:
        """Shows one option, and nothing of the others: a page may have sent what is not yet known of these."""
        if self._drawn is not None:
            setattr(self._drawn, PREFIX + field.item.name, field.raw)
            self._drawn.problems = self.problems
            self._drawn.title = self._headline
            self._drawn.is_open = self._drawn.is_open or bool(self.problems)

    @property
    def _headline(self) -> str:
        if not self._title:
            return ""
        changed, wrong = self.n_changed, len(self.problems)
        facts = [f"{changed} changed"] * bool(changed) + [f"{wrong} cannot be used"] * bool(wrong)
        return self._title + (f" ({', '.join(facts)})" if facts else "")
