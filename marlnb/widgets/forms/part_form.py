"""PartForm: a part of an experiment chosen by name, with its options."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as w

from marlnb.errors import ConfigError, MarlnbError
from marlnb.registry import Registry
from marlnb.widgets.core.controls import Dropdown, Select, Text
from marlnb.widgets.core.style import LABEL, note_html, problem_html
from marlnb.widgets.core.ui_lock import in_turn
from marlnb.widgets.forms.form import ConfigForm
from marlnb.wording import summary

ALL_FAMILIES = "(all)"


class PartForm:
    """A part of an experiment (environment, algorithm, model): its name, searched for, and its options.

    Attributes:
        box: the widget to show.
        name: of what is chosen, also while a search shows others.
        refused: by name, why it cannot be chosen here; such names are listed below with the reason.
    """

    def __init__(
        self,
        registry: Registry[Any],
        shown: Any,
        *,
        label: str = "",
        searched: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            shown: a name, or a part with its options.
            label: of the names; empty: the registry's kind.
            searched: by family and by what is in the name.
            on_change: called in turn after somebody chose another name, or changed an option.
        """
        self.registry = registry
        self.name = shown if isinstance(shown, str) else str(shown.name)
        self.refused: dict[str, str] = {}
        self._on_change = on_change
        self._quiet = False
        self._forms: dict[str, ConfigForm] = {}
        names = self._names_with(self.name)
        look: dict[str, Any] = {"style": LABEL, "layout": {"width": "34em" if searched else "26em"}}
        listed = {"options": names, "value": self.name, "description": label or registry.kind, **look}
        self._finders: list[Any] = []
        if searched:
            families = sorted({found.split("/")[0] for found in names})
            self._search = Text(placeholder="search", description="search", **look)
            self._family = Dropdown(options=[ALL_FAMILIES, *families], description="family", **look)
            self._finders = [self._search, self._family]
            self._name: Any = Select(rows=7, **listed)
        else:
            self._name = Dropdown(**listed)
        if not isinstance(shown, str):
            self.form.set(shown)
        about, below = self._known()
        self._about = w.HTML(about)
        self.box = w.VBox([*self._finders, self._name, self._about, *below])
        for finder in self._finders:
            finder.observe(self._narrow, "value")
        self._name.observe(self._chosen, "value")

    @property
    def form(self) -> ConfigForm:
        """The options of the name that is chosen; what was entered for another name comes back when that is chosen."""
        if self.name not in self._forms:
            self._forms[self.name] = ConfigForm(
                self.registry.get(self.name), title=f"options of {self.name}", on_change=self._on_change
            )
        return self._forms[self.name]

    @property
    def config(self) -> Any:
        """Raises ConfigError: it was refused, or an option cannot be used."""
        if self.name in self.refused:
            raise ConfigError(self.refused[self.name])
        return self.form.config

    @in_turn
    def set(self, config: Any) -> None:
        """Shows a part: its name and its options."""
        if config.name not in self._name.options:
            for finder, anything in zip(self._finders, ("", ALL_FAMILIES)):
                finder.value = anything
            self._name.options = self._names_with(config.name)
        self._name.value = self.name = config.name
        self.form.set(config)
        self._show()

    @in_turn
    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Takes names away that cannot be chosen, and says why below; the chosen one stays, with its reason."""
        self.refused = dict(reasons)
        self._offer([name for name in self.registry.names() if name not in reasons or name == self.name])
        self._show()

    def _names_with(self, name: str) -> list[str]:
        return sorted({*self.registry.names(), name})

    def _narrow(self, change: Any) -> None:
        wanted, family = self._search.value.strip().lower(), self._family.value
        found = [
            name
            for name in self.registry.names()
            if wanted in name.lower() and (family == ALL_FAMILIES or name.split("/")[0] == family)
        ]
        self._offer(found)
        if not found:
            told = problem_html(f"no {self.registry.kind} has {self._search.value!r} in its name")
            self._about.value = told + note_html(f"{self.name} is still chosen")
        elif self.name not in found:
            self._about.value = note_html(f"{self.name} is still chosen; choose one of these {len(found)} instead")
        else:
            self._about.value, _ = self._known()

    def _offer(self, names: list[str]) -> None:
        """Names to choose from; the chosen one stays chosen, and is not chosen anew."""
        if list(self._name.options) == names:
            return
        self._quiet = True
        try:
            self._name.options = names
            self._name.value = self.name if self.name in names else None
        finally:
            self._quiet = False

    def _chosen(self, change: Any) -> None:
        if change["new"] is not None and not self._quiet:
            self.name = str(change["new"])
            self._show()
            self._on_change()

    def _show(self) -> None:
        self._about.value, below = self._known()
        self.box.children = (*self._finders, self._name, self._about, *below)

    def _known(self) -> tuple[str, list[w.Widget]]:
        """What is said of the name that is chosen and of those that cannot be, and the options to show."""
        try:
            form = self.form
        except MarlnbError as error:
            return problem_html(str(error)), []
        refused = self.refused.get(self.name)
        told = problem_html(refused) if refused else note_html(summary(form.kind))
        return told + _refusals_html(self.refused), [form.box]


def _refusals_html(reasons: Mapping[str, str]) -> str:
    if not reasons:
        return ""
    told = sorted((html.escape(name), html.escape(reason)) for name, reason in reasons.items())
    shown = "".join(f"<li><b>{name}</b>: {reason}</li>" for name, reason in told)
    return f"<details><summary>{len(reasons)} cannot be chosen here</summary><ul>{shown}</ul></details>"
