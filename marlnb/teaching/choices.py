"""Multiple-choice answers, stored as salted hashes, so that no one reads the solution by accident."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from string import ascii_lowercase
from typing import Any

from marlnb.teaching.checking import WrongAnswer, exercise

DIGITS = 10


def sealed(name: str, answer: str) -> str:
    """The hash under which an answer of an exercise is stored."""
    return hashlib.sha256(f"marlnb exercise {name}: {answer}".encode()).hexdigest()[:DIGITS]


def option_of(answer: Any, options: str) -> str:
    """The option that an answer names, such as "a" of "(A)".

    Raises:
        WrongAnswer: it names none.
    """
    option = str(answer).strip().strip("()").lower()
    if option not in tuple(options):
        raise WrongAnswer(f"The answer is one of {', '.join(map(repr, options))}; you gave {answer!r}.")
    return option


def choice(name: str, explanations: Mapping[str, str]) -> None:
    """Registers a multiple-choice exercise with the options a, b, c, ...

    Args:
        explanations: by the hash of each option (`sealed`); that of the right one comes first.
    """
    options, right = ascii_lowercase[: len(explanations)], next(iter(explanations))

    @exercise(name, f"one of {', '.join(options)}")
    def judge(answer: Any) -> str:
        key = sealed(name, option_of(answer, options))
        if key != right:
            raise WrongAnswer(explanations[key])
        return explanations[key]
