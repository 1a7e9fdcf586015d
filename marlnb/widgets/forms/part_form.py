"""PartForm: a part of an experiment (environment, algorithm, model), chosen by name, with its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as w
from markupsafe import Markup

from marlnb.composition.option_help import summary
from marlnb.display.notebook_html import joined
from marlnb.errors import ConfigError, MarlnbError
from marlnb.plugins.registry import Registry
from marlnb.widgets.core.controls import Dropdown, Select, Text
from marlnb.widgets.core.style import HTML, LABEL, note_html, problem_html
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.form import ConfigForm

ALL_FAMILIES = "(all)"


class PartForm:
    """The name of a part of an experiment, with a search, and the options of that part.

    Attributes:
        box: the widget to display.
        name: of the chosen part; it stays chosen while a search shows others.
        unavailable: by name, why a part cannot be chosen here; these parts are listed below with the reason.
    """

    def __init__(
        self,
        registry: Registry[Any],
        part: Any,
        *,
        label: str = "",
        has_search: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            part: the chosen one: a name, or a config with its options.
            label: of the list of names; empty: the registry's kind.
            has_search: whether names can be filtered by family and by text.
            on_change: called under UI_LOCK after the user has chosen another name, or changed an option.
        """
        self.registry = registry
        self.name = part if isinstance(part, str) else str(part.name)
        self.unavailable: dict[str, str] = {}
        self._on_change = on_change
        self._is_updating = False
        self._forms: dict[str, ConfigForm] = {}
        names = self._names_with(self.name)
        style: dict[str, Any] = {"style": LABEL, "layout": {"width": "34em" if has_search else "26em"}}
        choices = {"options": names, "value": self.name, "description": label or registry.kind, **style}
        self._filters: list[Any] = []
        if has_search:
            families = sorted({name.split("/")[0] for name in names})
            self._search = Text(placeholder="search", description="search", **style)
            self._family = Dropdown(options=[ALL_FAMILIES, *families], description="family", **style)
            self._filters = [self._search, self._family]
            self._name: Any = Select(rows=7, **choices)
        else:
            self._name = Dropdown(**choices)
        if not isinstance(part, str):
            self.form.set(part)
        description, below = self._describe()
        self._description = HTML(description)
        self.box = w.VBox([*self._filters, self._name, self._description, *below])
        for control in self._filters:
            control.observe(self._filter, "value")
        self._name.observe(self._chosen, "value")

    @property
    def form(self) -> ConfigForm:
        """The options of the chosen part. Values entered for another part reappear when that part is chosen again."""
        if self.name not in self._forms:
            kind, title = self.registry.get(self.name), f"options of {self.name}"
            self._forms[self.name] = ConfigForm(kind, title=title, on_change=self._on_change)
        return self._forms[self.name]

    @property
    def config(self) -> Any:
        """Raises ConfigError: the part is not available here, or an option is not valid."""
        if self.name in self.unavailable:
            raise ConfigError(self.unavailable[self.name])
        return self.form.config

    @with_ui_lock
    def set(self, config: Any) -> None:
        """Shows a part: its name and its options."""
        if config.name not in self._name.options:
            for control, no_filter in zip(self._filters, ("", ALL_FAMILIES)):
                control.value = no_filter
            self._name.options = self._names_with(config.name)
        self._name.value = self.name = config.name
        self.form.set(config)
        self._show()

    @with_ui_lock
    def set_unavailable(self, reasons: Mapping[str, str]) -> None:
        """Removes these parts from the choice and lists the reasons; the chosen part stays, with its reason."""
        self.unavailable = dict(reasons)
        self._offer([name for name in self.registry.names() if name not in reasons or name == self.name])
        self._show()

    def _names_with(self, name: str) -> list[str]:
        return sorted({*self.registry.names(), name})

    def _filter(self, change: Any) -> None:
        text, family = self._search.value.strip().lower(), self._family.value
        names = [name for name in self.registry.names() if family in (ALL_FAMILIES, name.split("/")[0])]
        matches = [name for name in names if text in name.lower()]
        self._offer(matches)
        if not matches:
            problem = problem_html(f"no {self.registry.kind} has {self._search.value!r} in its name")
            self._description.value = problem + note_html(f"{self.name} is still chosen")
        elif self.name not in matches:
            text = f"{self.name} is still chosen; choose one of these {len(matches)} instead"
            self._description.value = note_html(text)
        else:
            self._description.value, _ = self._describe()

    def _offer(self, names: list[str]) -> None:
        """Replaces the names to choose from, without choosing another one."""
        if list(self._name.options) == names:
            return
        self._is_updating = True
        try:
            self._name.options = names
            self._name.value = self.name if self.name in names else None
        finally:
            self._is_updating = False

    def _chosen(self, change: Any) -> None:
        if change["new"] is not None and not self._is_updating:
            self.name = str(change["new"])
            self._show()
            self._on_change()

    def _show(self) -> None:
        self._description.value, below = self._describe()
        self.box.children = (*self._filters, self._name, self._description, *below)

    def _describe(self) -> tuple[str, list[w.Widget]]:
        """The text below the names, and the widgets of the options."""
        try:
            form = self.form
        except MarlnbError as error:
            return problem_html(str(error)), []
        reason = self.unavailable.get(self.name)
        text = problem_html(reason) if reason else note_html(summary(form.kind))
        return text + _unavailable_html(self.unavailable), [*form.boxes]


def _unavailable_html(reasons: Mapping[str, str]) -> Markup:
    if not reasons:
        return Markup("")
    items = joined(Markup("<li><b>{}</b>: {}</li>").format(name, reason) for name, reason in sorted(reasons.items()))
    summary = f"{len(reasons)} not available here"
    return Markup("<details><summary>{}</summary><ul>{}</ul></details>").format(summary, items)
