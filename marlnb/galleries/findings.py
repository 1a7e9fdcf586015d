"""The analyses that a recipe may name, and how a result becomes a finding of a card."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from marlnb.errors import ConfigError, unknown
from marlnb.galleries.card import Finding, value_at
from marlnb.galleries.recipe import ANALYSED_SEED, Circuit, Question
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.policy_source import PolicySource


@dataclass(frozen=True)
class Subject:
    """What an analysis may look at.

    Attributes:
        agents: the entry's.
        recording: the one behind the findings.
        circuit: what was planted, if anything was.
    """

    agents: PolicySource
    recording: Recording
    circuit: Circuit | None = None


class Answer(NamedTuple):
    """What an analysis says: a sentence with its controls, reasons for distrust, and all numbers as JSON."""

    verdict: str
    warnings: Sequence[str]
    data: Any


def _decode(subject: Subject, **options: Any) -> Answer:
    from marlnb.analysis.decoding.decode import decode

    return _answer(decode(subject.recording, progress=False, **options))


def _communication(subject: Subject, **options: Any) -> Answer:
    from marlnb.analysis.communication.communication import communication

    return _answer(communication(subject.recording, policies=subject.agents.policies(), **options))


def _influence(subject: Subject, **options: Any) -> Answer:
    from marlnb.analysis.communication.influence import influence

    policies = subject.agents.policies()
    return _answer(influence(subject.recording, policies=policies, progress=False, **options))


def _intervene(subject: Subject, *, edits: Sequence[Mapping[str, Any]], **options: Any) -> Answer:
    """The edits as {edit: ablate, site: ..., ...}."""
    from marlnb.analysis.interventions.intervene import intervene
    from marlnb.models.hooks.edit import Edit

    chosen = [Edit.from_json(edit) for edit in edits]
    return _answer(intervene(subject.agents, chosen, progress=False, **{"seed": ANALYSED_SEED, **options}))


def _roles(subject: Subject, **options: Any) -> Answer:
    from marlnb.analysis.representations.roles import roles

    return _answer(roles(subject.recording, **options))


def _ratings(subject: Subject) -> Answer:
    """The Elo of the league's players, `{elo: {player: rating}, share: of the cycles, p_value: of the cycles}`."""
    ratings = cast(Any, subject.agents).league.ratings()
    elo = dict(zip(ratings.players, ratings.elo.tolist()))
    return Answer(ratings.verdict, (), {"elo": elo, "share": ratings.cycles.share, "p_value": ratings.cycles.p_value})


def _match(subject: Subject, *, a: str, b: str, **options: Any) -> Answer:
    """Two players of the league, by their ids; the recordings are deleted."""
    from marlnb.analysis.populations.match import MATCHES, match

    league = cast(Any, subject.agents).league
    first = league[a]
    result = match(first, league[b], progress=False, **{"seed": ANALYSED_SEED, **options})
    for recording in result.recordings.values():
        recording.close()
    shutil.rmtree(first.path / MATCHES)
    return _answer(result)


def _groundtruth(subject: Subject, *, analysis: str) -> Answer:
    """An analysis of the planted circuit, scored by the answer key, `{recovered, false_discovery_rate, by_kind}`."""
    from marlnb.galleries.circuits import scored

    assert subject.circuit is not None
    score = scored(subject.circuit, subject.recording, analysis)
    kinds = ", ".join(f"{kind} {share:.0%}" for kind, share in score.by_kind().items())
    verdict = (
        f"{analysis} recovers {score.recovered:.0%} of what the answer key has ({kinds}), and claims "
        f"{score.decoys_claimed} of {score.decoys} decoys."
    )
    return Answer(verdict, (), {"recovered": score.recovered, "decoys_claimed": score.decoys_claimed})


ANALYSES: Mapping[str, Callable[..., Answer]] = {
    "communication": _communication,
    "decode": _decode,
    "groundtruth": _groundtruth,
    "influence": _influence,
    "intervene": _intervene,
    "match": _match,
    "ratings": _ratings,
    "roles": _roles,
}
"""By name as in a recipe: a function of the subject and the recipe's options."""


def answer(question: Question, subject: Subject) -> Finding:
    """The finding of one question.

    Raises:
        ConfigError: there is no such analysis, it has no such option, or its result has no such number.
        AnalysisError: it cannot be computed.
    """
    check_analysis(question)
    try:
        result = ANALYSES[question.analysis](subject, **question.options)
    except TypeError as error:
        raise ConfigError(f"{call_text(question)}: {error}") from error
    values = {position: value_at(result.data, position) for position in question.expected}
    return Finding(question.claim, call_text(question), result.verdict, tuple(result.warnings), values)


def check_analysis(question: Question) -> None:
    """Raises ConfigError: there is no such analysis."""
    if question.analysis not in ANALYSES:
        raise ConfigError(unknown("analysis of a recipe", question.analysis, tuple(ANALYSES)))


def call_text(question: Question) -> str:
    """The analysis as a call, such as "decode(label='goal')"."""
    options = ", ".join(f"{name}={value!r}" for name, value in question.options.items())
    return f"{question.analysis}({options})"


def _answer(result: Any) -> Answer:
    return Answer(result.verdict, result.warnings, result.to_json())
