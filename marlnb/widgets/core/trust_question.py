"""TrustQuestion: names the code that another person's run folder would run, with a button that allows it."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as w

from marlnb.experiment import Experiment
from marlnb.trust import code_text, trusted
from marlnb.widgets.core.controls import button_for
from marlnb.widgets.core.style import HTML, problem_html


class TrustQuestion:
    """Empty while there is nothing to ask.

    Attributes:
        widget: to display.
        button: allows the code.
    """

    def __init__(self, allow: Callable[[], None]) -> None:
        """
        Args:
            allow: called when the user allows the code.
        """
        self._allow = allow
        self._text = HTML()
        self.button = button_for(self._clicked, "Trust this code", "unlock", "it may run here", width="11em")
        self.button.button_style = "warning"
        hidden = w.Layout(display="none")
        self.widget = w.VBox([self._text, self.button], layout=hidden, _dom_classes=["marlnb-trust"])

    def show(self, experiment: Experiment) -> bool:
        """Asks about the code of an experiment, if the user does not trust it yet; returns whether it asks."""
        parts = {where: part for where, part in experiment.unloaded.items() if trusted(part) is None}
        if parts:
            origin = next(iter(parts.values())).origin
            text = f"{origin} was not trained by you here. Training, evaluating and recording it would run its code:"
            self._text.value = problem_html(f"{text}\n{code_text(parts)}")
        self.widget.layout.display = "" if parts else "none"
        return bool(parts)

    def _clicked(self) -> None:
        self._allow()
        self.widget.layout.display = "none"
