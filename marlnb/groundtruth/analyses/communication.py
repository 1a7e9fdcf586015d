"""communication: the code of a speaker, and whether the listener uses its messages."""

from __future__ import annotations

from marlnb.analysis.communication.communication import communication
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim, CodeClaim, InfluenceClaim
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.finding import Finding


@analysis("communication")
def code_of(instance: Instance) -> Finding:
    attempts = ("code", "influence", "agents")
    if len(instance.task.groups) < 2:
        return instance.finding("communication", ("code",), [])  # no communication in this environment
    speaker, listener = (instance.members(group)[0] for group in instance.task.groups)
    result = communication(
        instance.recording, speaker=speaker, listener=listener, goal=instance.task.concept, policies=instance.policies,
        n_shuffles=40, n_bootstrap=40,
    )  # fmt: skip
    names = instance.agents.spec.group(instance.task.groups[0]).action.names
    messages = [(row, result.messages[row]) for row in result.code.argmax(0)]
    words = [names.index(message) if message in names else row for row, message in messages]
    claims: list[Claim] = [CodeClaim(code=tuple(int(word) for word in words))]
    if result.speaks and result.listens:
        claims += [InfluenceClaim(pairs=((speaker, listener),)), AgentsClaim(agents=(speaker, listener))]
    return instance.finding("communication", attempts, claims)
