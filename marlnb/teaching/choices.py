"""Answers out of a few, kept as salted hashes: a check can judge them, and nobody reads them by accident."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from marlnb.teaching.checking import Judge, WrongAnswer

DIGITS = 10


def sealed(name: str, answer: str) -> str:
    """The hash under which an answer of an exercise is kept."""
    return hashlib.sha256(f"marlnb exercise {name}: {answer}".encode()).hexdigest()[:DIGITS]


def one_of(name: str, options: Sequence[str], right: Mapping[str, str], wrong: Mapping[str, str]) -> Judge:
    """A judge of one of some options.

    Args:
        right, wrong: by the hash of an option (`sealed`), what is said of it.
    """

    def judge(answer: Any) -> str:
        given = str(answer).strip().strip("()").lower()
        if given not in options:
            raise WrongAnswer(f"The answer is one of {', '.join(map(repr, options))}; you gave {answer!r}.")
        key = sealed(name, given)
        if key in right:
            return right[key]
        raise WrongAnswer(wrong[key])

    return judge
