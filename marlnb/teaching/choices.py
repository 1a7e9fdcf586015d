"""Multiple-choice answers, stored as salted hashes, so that no one reads the solution by accident."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from marlnb.teaching.checking import Judge, WrongAnswer

DIGITS = 10


def sealed(name: str, answer: str) -> str:
    """The hash under which an answer of an exercise is stored."""
    return hashlib.sha256(f"marlnb exercise {name}: {answer}".encode()).hexdigest()[:DIGITS]


def one_of(name: str, options: Sequence[str], right: Mapping[str, str], wrong: Mapping[str, str]) -> Judge:
    """A judge for a choice.

    Args:
        right: by the hash of an option (`sealed`), the explanation.
        wrong: the same, for wrong options.
    """

    def judge(answer: Any) -> str:
        option = str(answer).strip().strip("()").lower()
        if option not in options:
            raise WrongAnswer(f"The answer is one of {', '.join(map(repr, options))}; you gave {answer!r}.")
        key = sealed(name, option)
        if key in right:
            return right[key]
        raise WrongAnswer(wrong[key])

    return judge
