"""Forms: a configuration dataclass as fields, and a part of an experiment chosen by name with its options."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import ipywidgets as w

from marlnb.errors import ConfigError, MarlnbError
from marlnb.registry import Registry
from marlnb.widgets.controls import Accordion, Dropdown, Select, Text
from marlnb.widgets.field import OptionField
from marlnb.widgets.style import note_html, problem_html
from marlnb.widgets.turns import in_turn
from marlnb.wording import summary, write_override

ALL_FAMILIES = "(all)"


class ConfigForm:
    """The options of one dataclass.

    Attributes:
        box: the widget to show.
        fields: by option.
    """

    def __init__(
        self, kind: type[Any], *, only: Sequence[str] | None = None, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.kind = kind
        chosen = [item for item in fields(kind) if item.init and (only is None or item.name in only)]
        self.fields = {item.name: OptionField(kind, item, on_change) for item in chosen}
        self.box = w.VBox([field.box for field in self.fields.values()])

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
        for name, field in self.fields.items():
            if isinstance(config, Mapping):
                if name in config:
                    field.set(config[name])
            else:
                field.set(getattr(config, name))


class PartForm:
    """A part of an experiment (environment, algorithm, model): its name, searched for, and its options.

    Attributes:
        box: the widget to show.
        refused: by name, why it cannot be chosen here; such names are listed below with the reason.
    """

    def __init__(
        self,
        registry: Registry[Any],
        name: str,
        *,
        searched: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.registry = registry
        self.refused: dict[str, str] = {}
        self._on_change = on_change
        self._quiet = False
        self._forms: dict[str, ConfigForm] = {}
        names = registry.names()
        families = sorted({found.split("/")[0] for found in names})
        self._search = Text(placeholder="search", description="search", continuous_update=True)
        self._family = Dropdown(options=[ALL_FAMILIES, *families], description="family")
        self._name = (Select if searched else Dropdown)(options=names, value=name, description=registry.kind)
        for control in (self._search, self._family, self._name):
            control.style.description_width = "11em"
            control.layout.width = "34em" if searched else "26em"
        if searched:
            self._name.rows = 7
        self._about, self._refusals = w.HTML(), w.HTML()
        self._options = Accordion(selected_index=None)
        finders = [self._search, self._family] if searched else []
        self.box = w.VBox([*finders, self._name, self._about, self._options, self._refusals])
        self._search.observe(self._narrow, "value")
        self._family.observe(self._narrow, "value")
        self._name.observe(self._chosen, "value")
        self._show()

    @property
    def name(self) -> str:
        """Raises ConfigError where nothing is chosen."""
        if self._name.value is None:
            raise ConfigError(f"no {self.registry.kind} is chosen")
        return str(self._name.value)

    @property
    def form(self) -> ConfigForm:
        """The options of the name that is chosen; what was entered for another name comes back when that is chosen."""
        if self.name not in self._forms:
            self._forms[self.name] = ConfigForm(self.registry.get(self.name), on_change=self._changed)
        return self._forms[self.name]

    @property
    def config(self) -> Any:
        """Raises ConfigError: nothing is chosen, it was refused, or an option cannot be used."""
        if self.name in self.refused:
            raise ConfigError(self.refused[self.name])
        return self.form.config

    @in_turn
    def set(self, config: Any) -> None:
        """Shows a part: its name and its options."""
        if config.name not in self._name.options:
            self._search.value, self._family.value = "", ALL_FAMILIES
            self._name.options = sorted({*self.registry.names(), config.name})
        self._name.value = config.name
        self.form.set(config)
        self._show()

    @in_turn
    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Takes names away that cannot be chosen, and says why below; the chosen one stays, with its reason."""
        self.refused = dict(reasons)
        self._offer([name for name in self.registry.names() if name not in reasons or name == self._name.value])
        told = sorted((html.escape(name), html.escape(reason)) for name, reason in reasons.items())
        shown = "".join(f"<li><b>{name}</b>: {reason}</li>" for name, reason in told)
        body = f"<details><summary>{len(reasons)} cannot be chosen here</summary><ul>{shown}</ul></details>"
        self._refusals.value = body if reasons else ""
        self._show()

    def _narrow(self, change: Any) -> None:
        wanted, family = self._search.value.strip().lower(), self._family.value
        found = [
            name
            for name in self.registry.names()
            if wanted in name.lower() and (family == ALL_FAMILIES or name.split("/")[0] == family)
        ]
        self._offer(found)
        if not found:
            self._about.value = problem_html(f"no {self.registry.kind} has {self._search.value!r} in its name")

    def _offer(self, names: list[str]) -> None:
        """Names to choose from; the chosen one stays chosen where it is among them, and is not chosen anew."""
        chosen = self._name.value
        if list(self._name.options) == names:
            return
        self._quiet = chosen in names
        try:
            self._name.options = names
            if chosen in names:
                self._name.value = chosen
        finally:
            self._quiet = False

    def _chosen(self, change: Any) -> None:
        if change["new"] is not None and not self._quiet:
            self._show()
            self._on_change()

    def _changed(self) -> None:
        self._show_title()
        self._on_change()

    def _show(self) -> None:
        try:
            form = self.form
        except MarlnbError as error:
            self._about.value = problem_html(str(error))
            self._options.children = ()
            return
        refused = self.refused.get(self.name)
        told = summary(form.kind)
        self._about.value = problem_html(refused) if refused else note_html(told)
        self._options.children = (form.box,)
        self._show_title()

    def _show_title(self) -> None:
        form = self.form
        changed, wrong = form.n_changed, len(form.problems)
        facts = [f"{changed} changed"] * bool(changed) + [f"{wrong} cannot be used"] * bool(wrong)
        self._options.set_title(0, f"options of {self.name}" + (f" ({', '.join(facts)})" if facts else ""))
        if wrong:
            self._options.selected_index = 0
