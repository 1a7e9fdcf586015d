"""check: judges one answer of an exercise, and explains why it is right or what may have been misunderstood."""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from marlnb.display.notebook_html import joined
from marlnb.errors import ConfigError, MarlnbError, unknown

if TYPE_CHECKING:
    import pandas as pd

Judge = Callable[..., str]
CHAPTERS = {"1": "seeing", "2": "curves", "3": "decoding", "4": "interfering"}  # by chapter, the module with its judges
COLOURS = {True: "#1b7f3b", False: "#b3261e", None: "#6b6b6b"}
WORDS = {True: "right", False: "not yet", None: "to do"}


class WrongAnswer(Exception):
    """Raised by a judge; the message explains the mistake."""


@dataclass(frozen=True)
class Exercise:
    """An exercise.

    Attributes:
        question: what to answer, as text.
        judge: takes an answer, returns why it is right, raises WrongAnswer otherwise.
    """

    question: str
    judge: Judge


@dataclass(frozen=True)
class Verdict:
    """The judgement of an answer; a notebook shows it in colour.

    Attributes:
        exercise: its name.
        right: None if there is no answer yet.
        message: the explanation.
    """

    exercise: str
    right: bool | None
    message: str

    def __repr__(self) -> str:
        return f"exercise {self.exercise}: {WORDS[self.right]}. {self.message}"

    def _repr_html_(self) -> str:
        colour = COLOURS[self.right]
        parts = re.split("`([^`]+)`", repr(self))  # every second part is code
        text = joined(Markup("<code>{}</code>" if index % 2 else "{}").format(part) for index, part in enumerate(parts))
        style = f"border-left:4px solid {colour};padding:2px 10px"
        return Markup('<div role="status" style="{}">{}</div>').format(style, text)


EXERCISES: dict[str, Exercise] = {}
_verdicts: dict[str, Verdict] = {}


def exercise(name: str, question: str) -> Callable[[Judge], Judge]:
    """Registers a judge: it takes an answer, returns why it is right, and raises WrongAnswer otherwise."""

    def register(judge: Judge) -> Judge:
        EXERCISES[name] = Exercise(question, judge)
        return judge

    return register


def check(name: str | float, answer: Any = ..., **context: Any) -> Verdict:
    """Judges an answer, and if it is wrong, explains what may have been misunderstood.

    Args:
        name: of the exercise, such as "1.2".
        answer: `...`, None and an empty function count as no answer yet.
        context: what the judge needs from the notebook, such as `run=`.
    Raises:
        ConfigError: there is no such exercise, or it needs something else from the notebook.
    """
    name = str(name)
    chapter = name.split(".")[0]
    if chapter in CHAPTERS:
        importlib.import_module(f"marlnb.teaching.{CHAPTERS[chapter]}")
    if name not in EXERCISES:
        raise ConfigError(unknown("exercise", name, EXERCISES))
    entry = EXERCISES[name]
    if answer is ... or answer is None or _is_empty(answer):
        verdict = Verdict(name, None, f"The question: {entry.question}.")
    else:
        _check_context(name, entry, context)
        try:
            verdict = Verdict(name, True, entry.judge(answer, **context))
        except WrongAnswer as wrong:
            verdict = Verdict(name, False, str(wrong))
    _verdicts[name] = verdict
    return verdict


def _check_context(name: str, entry: Exercise, context: Mapping[str, Any]) -> None:
    """Raises ConfigError: these are not the keywords that the judge takes."""
    needed = list(inspect.signature(entry.judge).parameters)[1:]
    if set(needed) != set(context):
        expected = ", ".join(["your answer", *(f"{key}=..." for key in needed)])
        raise ConfigError(
            f'exercise {name} takes check("{name}", {expected}); got {", ".join(context) or "no keywords"}'
        )


def _is_empty(answer: Any) -> bool:
    """Whether it is a function without a body."""
    code, empty = getattr(answer, "__code__", None), (lambda: None).__code__
    return code is not None and (code.co_code, code.co_consts) == (empty.co_code, (None,))


def marks(chapter: int | str) -> pd.DataFrame:
    """The verdict on each exercise of a chapter in this session; exercises without an answer are "to do"."""
    import pandas as pd

    number = str(chapter)
    if number not in CHAPTERS:
        raise ConfigError(unknown("chapter", number, CHAPTERS))
    importlib.import_module(f"marlnb.teaching.{CHAPTERS[number]}")
    names = sorted(name for name in EXERCISES if name.split(".")[0] == number)
    words = [WORDS[_verdicts[name].right if name in _verdicts else None] for name in names]
    return pd.DataFrame({"exercise": names, "answer": words}).set_index("exercise")


def number(answer: Any, what: str) -> float:
    """An answer as a number, from Python, numpy or torch.

    Raises:
        WrongAnswer: it is not a number, or not finite.
    """
    try:
        if isinstance(answer, str | bool):
            raise TypeError
        value = float(answer)
    except (TypeError, ValueError):
        raise WrongAnswer(f"{what} is one number; you gave {describe(answer)}.{_hint_for_number(answer)}") from None
    if not math.isfinite(value):
        raise WrongAnswer(f"{what} is one number; you gave {value}: something was divided by 0, or is missing.")
    return value


def _hint_for_number(answer: Any) -> str:
    """How to turn the answer into one number."""
    if isinstance(answer, str):
        return " Write it without quotes: Python computes 1 / 4 itself."
    if isinstance(answer, Sized) and getattr(answer, "shape", None) != () and len(answer) > 1:
        length = len(answer)
        return f" Which of these {length}? [0] takes the first of a list, .iloc[0] that of a column, .mean() its mean."
    return ""


def close(answer: float, to: float, tolerance: float) -> bool:
    return abs(answer - to) <= tolerance


def called(function: Any, *arguments: Any, by: str) -> Any:
    """What a student's function returns.

    Raises:
        WrongAnswer: it is not a function, it raises, or it returns nothing.
    """
    if not callable(function):
        given = describe(function)
        raise WrongAnswer(f"The answer is the function {by}; you gave {given}. Pass its name, without brackets.")
    try:
        result = function(*arguments)
    except MarlnbError as error:
        raise WrongAnswer(f"Your function was called as {by}, and marlnb reported: {error}") from error
    except Exception as error:
        power = " In Python, a power is written **." if "for ^" in str(error) else ""
        problem = f"{type(error).__name__}: {error}.{power}"
        raise WrongAnswer(f"Your function was called as {by}, and raised {problem}") from error
    if result is None or result is ...:
        raise WrongAnswer(f"{by} returns nothing yet. Does it end in `return`? (Printing is not returning.)")
    return result


def describe(answer: Any) -> str:
    """An answer and its type, in one line."""
    text = " ".join(repr(answer).split())
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(answer).__name__})"
