"""Explaining: attributions of the episodes that are shown, and of the step that is shown where a whole takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from marlnb.analysis.attribution.methods import Method
from marlnb.errors import MarlnbError
from marlnb.models.policies.policy import Policy
from marlnb.widgets.core.worker import Newest
from marlnb.widgets.microscope.answers import START_S, Answers, Shown, Sides
from marlnb.widgets.microscope.explanation import Explanation, To, explain, mean_observations, refused
from marlnb.widgets.microscope.objects import Spoken, looker
from marlnb.widgets.microscope.sides import attribution_of

Asked = tuple[To, Method]  # one object a question: answers to an earlier one are dropped
FEW_NUMBERS = 100_000  # steps × agents × features: explained so soon that no single step comes first


@dataclass(frozen=True, eq=False)
class Known:
    """What every explanation of a side needs."""

    policies: Mapping[str, Policy]
    baseline: Mapping[str, np.ndarray]


class Explaining:
    """Attributes in threads: whole episodes, and meanwhile, or where they are too large, the step that is shown.

    Attributes:
        explanations: of each side's whole episode; None while it is not there.
    """

    def __init__(self, answers: Answers, on_explained: Callable[[], None]) -> None:
        self._answers, self._on_explained = answers, on_explained
        self._wholes, self._steps = Newest(wait_s=START_S), Newest(wait_s=0.0)
        self._asked: Asked = ("action", "integrated_gradients")
        self._knowing = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """Other sides are shown."""
        n = len(self._answers.sides)
        self._known: dict[Shown, Known] = {}
        self._spoken: list[Spoken | None] = [None] * n
        self._forget()

    @property
    def too_large(self) -> bool:
        """Whether something was refused for its size alone."""
        return any(one is not None and one.too_large for one in self.explanations)

    def ask(self, to: To, method: Method, most: int | None = None) -> None:
        """Attributes every side's actions or values, those of at most `most` numbers a group (see `explain`)."""
        sides, asked = self._answers.sides, (to, method)
        self._asked = asked
        self._forget()
        self._answers.ask(self._wholes, lambda: self._explain_all(sides, asked, most))
        self.ask_step()

    def ask_step(self) -> None:
        """Attributes the step that is shown, of sides whose whole episode is not there yet or will not be."""
        sides, asked, t = self._answers.sides, self._asked, self._answers.scope.t
        wanted = [number for number in range(len(sides)) if self._wants_step(number)]
        if wanted:
            self._answers.ask(self._steps, lambda: self._explain_step(sides, asked, wanted, t))

    def understand(self, number: int, spoken: Spoken) -> None:
        """Which features speak of what is known now: what was attributed is told again, with the objects."""
        self._spoken[number] = spoken
        scope = self._answers.scope
        scope.explained = scope.explained or looker(spoken)
        self._show(number)

    def _forget(self) -> None:
        n = len(self._answers.sides)
        self.explanations: list[Explanation | None] = [None] * n
        self._of_step: list[Explanation | None] = [None] * n

    def _wants_step(self, number: int) -> bool:
        whole, side = self.explanations[number], self._answers.sides[number]
        if whole is not None:
            return whole.too_large
        size = sum(len(side.view.t) * len(group.agents) * len(group.features) for group in side.view.groups)
        return size > FEW_NUMBERS and side.subject is not None and not side.edited

    def _explain_all(self, sides: Sides, asked: Asked, most: int | None) -> None:
        for number, side in enumerate(sides):
            found = self._explanation(side, asked, most=most, tell=partial(self._tell_working, sides, side.title))
            if not self._answers.tell(sides, partial(self._keep, asked, self.explanations, number, found)):
                return
        self._answers.tell(sides, self._explained)

    def _explain_step(self, sides: Sides, asked: Asked, wanted: list[int], t: int) -> None:
        for number in wanted:
            found = self._explanation(sides[number], asked, place=min(t, len(sides[number].view.t) - 1))
            self._answers.tell(sides, partial(self._keep, asked, self._of_step, number, found))

    def _explanation(
        self, side: Shown, asked: Asked, *, place: int | None = None, most: int | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> Explanation:  # fmt: skip
        to, method = asked
        if side.subject is None or side.edited:
            why = side.unknown if side.subject is None else "no attribution of networks that were edited"
            return refused(side.view, to, method, why)
        try:
            known = self._know(side)
        except MarlnbError as error:
            return refused(side.view, to, method, str(error))
        return explain(
            side.view, known.policies, to=to, method=method, baseline=known.baseline, place=place, most=most, tell=tell
        )

    def _know(self, side: Shown) -> Known:
        assert side.subject is not None
        with self._knowing:  # the whole recording is read, once
            known = self._known
            if side not in known:
                policies = side.subject.policies(side.view.checkpoint)
                known[side] = Known(policies, mean_observations(side.compared_with or side.view))
            return known[side]

    def _keep(self, asked: Asked, where: list[Explanation | None], number: int, found: Explanation) -> None:
        if asked is self._asked:
            where[number] = found
            self._show(number)

    def _show(self, number: int) -> None:
        """What is known of a side's whole episode, and else of a step of it."""
        whole, step = self.explanations[number], self._of_step[number]
        found = whole.filled_by(step) if whole is not None and step is not None else whole or step
        if found is not None:
            self._answers.scope.put("attributions", number, attribution_of(found, self._spoken[number]))

    def _tell_working(self, sides: Sides, title: str, text: str) -> None:
        self._answers.tell(sides, lambda: setattr(self._answers.scope, "working", f"explaining {title}: {text}"))

    def _explained(self) -> None:
        self._answers.scope.working = ""
        self._on_explained()
        if self.too_large:
            self.ask_step()
