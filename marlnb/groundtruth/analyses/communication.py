"""communication: the code between a speaker and a listener, and whether the listener listens."""

from __future__ import annotations

from marlnb.analysis.communication.communication import communication
from marlnb.groundtruth.instance import Case, analysis
from marlnb.groundtruth.scoring.claims import Claim, Finding


@analysis("communication")
def code_of(case: Case) -> Finding:
    attempts = ("code", "influence", "agents")
    if len(case.question.groups) < 2:
        return case.finding("communication", ("code",), [])  # nobody speaks in this world
    speaker, listener = (case.members(group)[0] for group in case.question.groups)
    found = communication(
        case.recording,
        speaker=speaker,
        listener=listener,
        goal=case.question.concept,
        policies=case.policies,
        n_shuffles=40,
        n_bootstrap=40,
    )
    names = case.agents.spec.group(case.question.groups[0]).action.names
    words = [names.index(found.messages[row]) if found.messages[row] in names else row for row in found.code.argmax(0)]
    claims = [Claim("code", code=tuple(int(word) for word in words))]
    if found.speaks and found.listens:
        claims += [Claim("influence", pairs=((speaker, listener),)), Claim("agents", agents=(speaker, listener))]
    return case.finding("communication", attempts, claims)
