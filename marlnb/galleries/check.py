"""check: makes an entry again and compares its numbers with the ranges of the recipe and with the card."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marlnb.errors import ConfigError
from marlnb.galleries.card import Card
from marlnb.galleries.entry import Entry
from marlnb.galleries.make import make
from marlnb.galleries.recipe import Recipe


@dataclass(frozen=True)
class Comparison:
    """One number of an entry and of its rerun.

    Attributes:
        what: the score or the position in a finding's result.
        card: the number on the card; None if it has none.
        rerun: the number of the rerun.
        expected: the range of the recipe.
    """

    what: str
    card: float | None
    rerun: float
    expected: tuple[float, float]

    @property
    def holds(self) -> bool:
        return self.expected[0] <= self.rerun <= self.expected[1]

    def __str__(self) -> str:
        low, high = self.expected
        word = "holds" if self.holds else "DOES NOT HOLD"
        card = "-" if self.card is None else f"{self.card:.4g}"
        return f"{self.what}: card {card}, rerun {self.rerun:.4g}, expected {low:g} to {high:g}: {word}"


def check(entry: Entry, folder: str | os.PathLike[str]) -> list[Comparison]:
    """Makes an entry again in a new folder and compares each number for which its recipe has a range.

    Raises:
        ConfigError: another library makes it, or its recipe expects a number that it does not have.
    """
    entry.recipe.check_expected([score.name for score in entry.card.final_scores])
    remade = make(entry.path, Path(folder))
    return compare(entry.recipe, entry.card, remade.card)


def compare(recipe: Recipe, card: Card, remade: Card) -> list[Comparison]:
    """The numbers of two cards for which a recipe has a range."""
    before, after = _numbers(card), _numbers(remade)
    expected = {f"return of {name}": values for name, values in recipe.expected.items()}
    for question in recipe.findings:
        expected |= {f"{question.claim} {position}": values for position, values in question.expected.items()}
    if missing := [what for what in expected if what not in after]:
        raise ConfigError(f"the recipe expects {missing[0]!r}; the rerun has: {', '.join(after) or 'none'}")
    return [Comparison(what, before.get(what), after[what], values) for what, values in expected.items()]


def _numbers(card: Card) -> Mapping[str, float]:
    numbers = {f"return of {score.name}": score.mean for score in card.final_scores}
    for finding in card.findings:
        numbers |= {f"{finding.claim} {position}": value for position, value in finding.values.items()}
    return numbers
