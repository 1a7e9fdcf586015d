"""The analyses that a recipe may name, and how an answer becomes a finding of a card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from marlnb.analysis.results import Result
from marlnb.errors import ConfigError, unknown
from marlnb.galleries.card import Finding, value_at
from marlnb.galleries.recipe import Question
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.policy_source import PolicySource

Answer = Callable[..., Result]


@dataclass(frozen=True)
class Subject:
    """What an analysis may look at: the agents and the recording behind the findings."""

    agents: PolicySource
    recording: Recording


def _decode(subject: Subject, **options: Any) -> Result:
    from marlnb.analysis.decoding.decode import decode

    return decode(subject.recording, progress=False, **options)


def _communication(subject: Subject, **options: Any) -> Result:
    from marlnb.analysis.communication.communication import communication

    return communication(subject.recording, policies=subject.agents.policies(), **options)


ANALYSES: Mapping[str, Answer] = {"communication": _communication, "decode": _decode}
"""By name as in a recipe: a function of the subject and the recipe's options."""


def answer(question: Question, subject: Subject) -> Finding:
    """The finding of one question.

    Raises:
        ConfigError: there is no such analysis, it has no such option, or its result has no such number.
        AnalysisError: it cannot be computed.
    """
    if question.analysis not in ANALYSES:
        raise ConfigError(unknown("analysis of a recipe", question.analysis, tuple(ANALYSES)))
    try:
        result = ANALYSES[question.analysis](subject, **question.options)
    except TypeError as error:
        raise ConfigError(f"{call_text(question)}: {error}") from error
    data = result.to_json()
    values = {position: value_at(data, position) for position in question.expected}
    return Finding(question.claim, call_text(question), result.verdict, tuple(result.warnings), values)


def call_text(question: Question) -> str:
    """The analysis as a call, as "decode(label='goal')"."""
    options = ", ".join(f"{name}={value!r}" for name, value in question.options.items())
    return f"{question.analysis}({options})"
