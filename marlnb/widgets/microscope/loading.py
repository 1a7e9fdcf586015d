"""Loading: what takes longer than drawing is fetched in threads, side by side, and shown when it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from marlnb.analysis.attribution.methods import Method
from marlnb.widgets.core.ui_lock import in_turn
from marlnb.widgets.microscope.answers import Answers, Shown
from marlnb.widgets.microscope.explaining import Explaining
from marlnb.widgets.microscope.explanation import To
from marlnb.widgets.microscope.filming import Filming
from marlnb.widgets.microscope.scope import Scope


class Loading:
    """Pictures and attributions of the sides that are shown now; answers about earlier ones are dropped."""

    def __init__(self, scope: Scope, on_explained: Callable[[], None]) -> None:
        self._answers = Answers(scope)
        self._explaining = Explaining(self._answers, on_explained)
        self._filming = Filming(self._answers, self._explaining.understand)

    @property
    def too_large(self) -> bool:
        """Whether something was not explained for its size alone."""
        return self._explaining.too_large

    @in_turn
    def begin(self, sides: Sequence[Shown]) -> None:
        """Fetches everything for other sides."""
        self._answers.sides = tuple(sides)
        self._explaining.begin()
        self._filming.begin()

    @in_turn
    def explain(self, to: To, method: Method, most: int | None = None) -> None:
        """Attributes every side's actions or values, those of at most `most` numbers a group."""
        self._explaining.ask(to, method, most)

    @in_turn
    def explain_step(self) -> None:
        """Attributes the step that is shown, where its whole episode is not explained."""
        self._explaining.ask_step()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until everything is there; False where that takes longer."""
        return self._answers.wait(timeout_s)
