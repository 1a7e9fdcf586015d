"""Which settings the experiment in a form starts from; another environment, algorithm or network brings its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as w

from marlnb.composition.experiment_text import shortened_tuned_text
from marlnb.composition.override_writing import write_override
from marlnb.composition.overrides import overrides_of
from marlnb.experiment import Experiment
from marlnb.widgets.core.controls import Checkbox
from marlnb.widgets.core.style import Message

OFF = "tuned=false"
Names = dict[str, str | None]
GroupOf = Callable[[str], str]


class TunedSettings:
    """A checkbox for tuned settings, and the text that says which were applied.

    Attributes:
        box: the widget to display.
    """

    def __init__(self, *, on_change: Callable[[], None]) -> None:
        """
        Args:
            on_change: called under UI_LOCK after the user has switched tuned settings on or off.
        """
        self._entered: dict[tuple[str, str | None], list[str]] = {}  # by part and its name, overrides of its options
        self._choice = Checkbox(value=True, description="start from tuned settings", indent=False)
        self._text = Message()
        self._on_change, self._is_updating = on_change, False
        self._choice.observe(self._chosen, "value")
        self.box = w.HBox([self._choice, self._text])

    def show(self, experiment: Experiment) -> None:
        self._is_updating = True
        try:
            self._choice.value = experiment.tuned is not None
        finally:
            self._is_updating = False
        self._text.show_note(shortened_tuned_text(experiment))

    def forget(self) -> None:
        """Forgets the options that were set for other parts: an experiment is loaded."""
        self._entered.clear()

    def recompose(self, shown: Experiment, chosen: Experiment, group_of: GroupOf) -> Experiment:
        """An experiment with the names of `chosen`. What was set in `shown` stays, and what was set earlier for a part
        that is chosen again returns; everything else follows from the names.

        Args:
            shown: before other names, or tuned settings, were chosen.
            chosen: after that, with values that belong to the names in `shown`.
            group_of: the group of an agent.
        Raises:
            ConfigError: the options do not fit.
        """
        before, names = _names(shown), _names(chosen)
        changed = changed_parts(shown, chosen, group_of) | {"env"}
        words = [word for word in overrides_of(shown) if word != OFF]
        for part, name in before.items():
            self._entered[part, name] = [word for word in words if _part_of(word) == part and not _is_name(word)]
        removed, added = before.keys() - names.keys(), names.keys() - before.keys() - changed
        env = [word for word in overrides_of(chosen) if _part_of(word) in {"env", *added}]
        others = []
        for part in sorted((changed - {"env"}) & names.keys()):
            others += [write_override(part, names[part]), *self._entered.get((part, names[part]), ())]
        kept = [word for word in words if _part_of(word) not in changed | removed]
        return Experiment.compose(*env, *others, *kept, *([] if self._choice.value else [OFF]))

    def _chosen(self, change: object) -> None:
        if not self._is_updating:
            self._on_change()


def changed_parts(shown: Experiment, chosen: Experiment, group_of: GroupOf) -> set[str]:
    """The parts, such as "env" and "algorithms.prey", whose names differ, whatever their options are.

    Args:
        group_of: the group of an agent. A part without a name has the name that it inherits, an agent's from its group.
    """
    before, names = _names(shown), _names(chosen)
    return {part for part in {*before, *names} if _name_of(part, before, group_of) != _name_of(part, names, group_of)}


def _name_of(part: str, names: Names, group_of: GroupOf) -> str | None:
    """The name of a part, or else of the agent's group's, or else of the common one."""
    family, _, agent = part.partition("s.")
    parts = (part, f"{family}s.{group_of(agent)}", family)
    return next((names[present] for present in parts if present in names), None)


def _names(experiment: Experiment) -> Names:
    """The names of the environment, the algorithms and the networks, by part. No critic of its own: None."""
    parts: dict[str, Any] = {part: getattr(experiment, part) for part in ("env", "algorithm", "model", "critic")}
    for several in ("algorithms", "models", "critics"):
        parts |= {f"{several}.{name}": config for name, config in getattr(experiment, several).items()}
    return {part: None if config is None else config.name for part, config in parts.items()}


def _is_name(word: str) -> bool:
    """Whether an override chooses a part."""
    return word.partition("=")[0] == _part_of(word)


def _part_of(word: str) -> str:
    """The part that an override belongs to, such as "algorithms.prey"; an option of the experiment: the option."""
    key = word.partition("=")[0].split(".")
    return ".".join(key[:2]) if key[0] in ("algorithms", "models", "critics") else key[0]
