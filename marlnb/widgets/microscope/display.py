"""Display: a microscope as a notebook shows it, and the still picture below it for pages without widgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as w
from matplotlib.figure import Figure

from marlnb.widgets.core.snapshot import Still, with_picture
from marlnb.widgets.core.ui_lock import TURN
from marlnb.widgets.core.worker import Newest
from marlnb.widgets.microscope.answers import Shown
from marlnb.widgets.microscope.filming import image_at
from marlnb.widgets.microscope.scope import Scope
from marlnb.widgets.microscope.still import still

STILL_S = 1.5  # without a step, after which the still picture follows


class Display:
    """The picture follows what is shown: after the cell that changed it, or soon after the last click.

    Args:
        sides: what is shown now. text: in words.
    """

    def __init__(
        self, widget: w.Box, scope: Scope, sides: Callable[[], Sequence[Shown]], text: Callable[[], str]
    ) -> None:
        self._widget, self._scope, self._sides, self._text = widget, scope, sides, text
        self._still = Still(widget, text, self.figure)
        self._waiting = Newest(wait_s=STILL_S)
        scope.observe(lambda _: self._changed(), ["t", "layer", "order", "agents", "films"])

    def show(self) -> None:
        self._still.display()

    def bundle(self) -> dict[str, Any]:
        """The widget and the picture, by mime type."""
        return with_picture(self._widget, self._text(), self.figure)

    def figure(self) -> Figure:
        """What is shown now."""
        with TURN:  # drawing takes long, and looks at what was shown when it began
            sides, scope = list(self._sides()), self._scope
            t, layer, order, agents = scope.t, scope.layer, scope.order, list(scope.agents)
            sent = [scope.images(number) for number in range(len(sides))]
        images = [image_at(side, t, there) for side, there in zip(sides, sent)]
        return still([side.view for side in sides], [side.title for side in sides], t, layer, order, agents, images)

    def _changed(self) -> None:
        self._still.outdate()
        self._waiting.ask(lambda: None, lambda _: self._still.renew_soon(now=True), lambda _: None)
