"""check: judges one answer of an exercise, and says why it is right or what may have been misunderstood."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Sized
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from marlnb.errors import ConfigError, MarlnbError, unknown

if TYPE_CHECKING:
    import pandas as pd

Judge = Callable[..., str]
CHAPTERS = {"1": "seeing", "2": "curves", "3": "decoding", "4": "interfering"}  # by number, the module of its judges
COLOURS = {True: "#1b7f3b", False: "#b3261e", None: "#6b6b6b"}


class WrongAnswer(Exception):
    """Raised by a judge: what is wrong with an answer, and why."""


@dataclass(frozen=True)
class Exercise:
    """What is asked, in words, and who judges an answer."""

    asks: str
    judge: Judge


@dataclass(frozen=True)
class Verdict:
    """What is said of an answer; a notebook shows it in colour.

    Attributes:
        right: None where nothing has been answered yet.
    """

    exercise: str
    right: bool | None
    message: str

    def __repr__(self) -> str:
        word = {True: "right", False: "not yet", None: "to do"}[self.right]
        return f"exercise {self.exercise}: {word}. {self.message}"

    def _repr_html_(self) -> str:
        colour = COLOURS[self.right]
        text = re.sub("`([^`]+)`", r"<code>\1</code>", escape(repr(self)))
        return f'<div role="status" style="border-left:4px solid {colour};padding:2px 10px">{text}</div>'


EXERCISES: dict[str, Exercise] = {}
_given: dict[str, Verdict] = {}


def exercise(name: str, asks: str) -> Callable[[Judge], Judge]:
    """Enrols a judge: it takes an answer, returns why it is right, and raises WrongAnswer otherwise."""

    def enrol(judge: Judge) -> Judge:
        EXERCISES[name] = Exercise(asks, judge)
        return judge

    return enrol


def check(name: str, answer: Any = ..., **given: Any) -> Verdict:
    """Says whether an answer is right, and if it is not, what may have been misunderstood.

    Args:
        name: of the exercise, as "1.2". answer: `...`, None and a function with nothing in it are none yet.
        given: what the notebook hands over to judge it with, as `run=`.
    Raises:
        ConfigError: there is no such exercise.
    """
    chapter = name.split(".")[0]
    if chapter in CHAPTERS:
        importlib.import_module(f"marlnb.teaching.{CHAPTERS[chapter]}")
    if name not in EXERCISES:
        raise ConfigError(unknown("exercise", name, EXERCISES))
    asked = EXERCISES[name]
    if answer is ... or answer is None or _is_empty(answer):
        verdict = Verdict(name, None, f"What is asked: {asked.asks}.")
    else:
        try:
            verdict = Verdict(name, True, asked.judge(answer, **given))
        except WrongAnswer as wrong:
            verdict = Verdict(name, False, str(wrong))
    _given[name] = verdict
    return verdict


def _is_empty(answer: Any) -> bool:
    """Whether it is a function of which only the first line has been written, or given."""
    code = getattr(answer, "__code__", None)
    return code is not None and (code.co_code, code.co_consts) == (_nothing.__code__.co_code, (None,))


def _nothing() -> None:
    pass


def marks(chapter: int | str) -> pd.DataFrame:
    """What has been said of each exercise of a chapter in this session; those not looked at yet are to do."""
    import pandas as pd

    number = str(chapter)
    if number not in CHAPTERS:
        raise ConfigError(unknown("chapter", number, CHAPTERS))
    importlib.import_module(f"marlnb.teaching.{CHAPTERS[number]}")
    names = sorted(name for name in EXERCISES if name.split(".")[0] == number)
    right = {name: _given[name].right if name in _given else None for name in names}
    words = {True: "right", False: "not yet", None: "to do"}
    table = pd.DataFrame({"exercise": names, "answer": [words[right[name]] for name in names]})
    return table.set_index("exercise")


def number(answer: Any, what: str) -> float:
    """An answer as a number: of Python, numpy or torch.

    Raises:
        WrongAnswer: it is none, or not finite.
    """
    try:
        if isinstance(answer, str | bool):
            raise TypeError
        given = float(answer)
    except (TypeError, ValueError):
        raise WrongAnswer(f"{what} is one number; you gave {shown(answer)}.{_way_to_one(answer)}") from None
    if not math.isfinite(given):
        raise WrongAnswer(f"{what} is one number; you gave {given}: something was divided by 0, or is missing.")
    return given


def _way_to_one(answer: Any) -> str:
    """How what was given becomes one number."""
    if isinstance(answer, str):
        return " Write it without quotes: Python works out 1 / 4 by itself."
    if isinstance(answer, Sized) and len(answer) > 1:
        length = len(answer)
        return (
            f" Of these {length}, which one? [0] takes the first of a list, .iloc[0] of a column, .mean() their mean."
        )
    return ""


def close(answer: float, to: float, tolerance: float) -> bool:
    return abs(answer - to) <= tolerance


def called(function: Any, *arguments: Any, by: str) -> Any:
    """What a student's function answers.

    Raises:
        WrongAnswer: it is no function, it raises, or it returns nothing.
    """
    if not callable(function):
        raise WrongAnswer(f"{by} is asked for; you gave {shown(function)}. Hand over its name, without brackets.")
    try:
        found = function(*arguments)
    except MarlnbError as error:
        raise WrongAnswer(f"Your function was called as {by}, and marlnb refused: {error}") from error
    except Exception as error:
        power = " In Python a power is written **." if "for ^" in str(error) else ""
        raise WrongAnswer(
            f"Your function was called as {by}, and raised {type(error).__name__}: {error}.{power}"
        ) from error
    if found is None or found is ...:
        raise WrongAnswer(f"{by} returns nothing yet. Does it end in `return`? (To print is not to return.)")
    return found


def shown(answer: Any) -> str:
    """An answer as it is told back, in a line, with its kind."""
    text = " ".join(repr(answer).split())
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(answer).__name__})"
