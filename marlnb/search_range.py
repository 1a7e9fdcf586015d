"""SearchRange: in which range and on which scale a number may be searched, stated where its option is declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scale = Literal["log", "one_minus", "logit", "divisors"]


@dataclass(frozen=True)
class SearchRange:
    """Where an option's value may move when it is mutated.

    Attributes:
        scale: what a factor multiplies: log: the value; one_minus: 1 - value, as of discounts; logit: the odds
            value / (1 - value); divisors: nothing, the value moves to the next divisor of `of`.
        min: smallest value.
        max: largest value.
        of: with divisors, the number of an Experiment that the value divides, as "iteration_frames".
    """

    scale: Scale
    min: float
    max: float
    of: str = ""
