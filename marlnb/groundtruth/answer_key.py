"""AnswerKey: where a circuit was planted, as frozen data; PublicTask: what analyses may know of it. Both are JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from marlnb.display.array_summary import FieldsSummary

NetworkName = Literal["mlp", "gru"]
MIN_EFFECT_SHARE = 0.03
"""Share of the largest effect below which a unit need not be named."""


@dataclass(frozen=True, repr=False)
class Node(FieldsSummary):
    """A part of a circuit, or of a decoy: what one site of one agent represents.

    Attributes:
        agent: agent name.
        site: site name, such as `agent/actor/hidden_1`.
        units: the units that represent it; no other unit does.
        basis: `[dimension][unit of the site]`, orthonormal, if it is a subspace that no single unit represents; else
            empty, and each unit is a direction.
        exact: whether every cause passes through these units and this subspace, so that they are scored. Relays, which
            pass one step's cue into a memory, are not exact.
        readout: by output, logits for one unit of activation of each unit of `units`; empty if the site does not feed
            the head directly. All zeros for a decoy.
        written: `[direction][unit of the site]`, length 1, one for each output of the readout: the direction in which
            the units change when the cause of the output is present, if it differs from the readout; else empty.
    """

    agent: str
    site: str
    units: tuple[int, ...]
    basis: tuple[tuple[float, ...], ...] = ()
    exact: bool = True
    readout: tuple[tuple[int, tuple[float, ...]], ...] = ()
    written: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class PublicTask:
    """What a tool may know: the concept whose use is to be found, and the outputs that it may drive.

    Attributes:
        name: name of the circuit.
        network: the instance's network.
        shared: whether agents share weights.
        seed: the instance's seed.
        groups: groups whose agents may represent the concept.
        outputs: by group, indices of the logits that it may drive.
        concept: the recording's label of the concept.
        kind: classes or a quantity.
        onset: the label whose first positive step of an episode is when the agent may know; empty: from the start.
        min_effect_share: share of the largest effect below which a unit need not be named.
        key_sha256: hash of the key, which proves later that this key was meant.
    """

    name: str
    network: NetworkName
    shared: bool
    seed: int
    groups: tuple[str, ...]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]
    concept: str
    kind: Literal["classes", "quantity"]
    onset: str = ""
    min_effect_share: float = MIN_EFFECT_SHARE
    key_sha256: str = ""

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PublicTask:
        return PublicTask(**{field.name: as_tuples(data[field.name]) for field in fields(PublicTask)})


@dataclass(frozen=True)
class AnswerKey:
    """Where one instance of a circuit is and what it does.

    Attributes:
        name: name of the circuit.
        network: the instance's network.
        shared: whether agents share weights.
        seed: the instance's seed.
        env: name of the environment.
        agents: the agents that use the concept, in the order in which it passes through them.
        nodes: the circuit.
        decoys: nodes that represent the concept, or a correlated one, and drive nothing.
        minor: units with a readout of a hundredth of the circuit's: too small to be named, and not decoys.
        code: for a message, the word for each goal; empty otherwise.
        onset: the label whose first positive step is when the circuit's memory holds the concept; empty: no memory.
        influences: (cause, effect) pairs of agents: the first one's message or position drives the second one's logits.
    """

    name: str
    network: NetworkName
    shared: bool
    seed: int
    env: str
    agents: tuple[str, ...]
    nodes: tuple[Node, ...]
    decoys: tuple[Node, ...]
    minor: tuple[Node, ...] = ()
    code: tuple[int, ...] = ()
    onset: str = ""
    influences: tuple[tuple[str, str], ...] = ()

    @property
    def carriers(self) -> frozenset[tuple[str, str]]:
        """The (agent, site) of every node."""
        return frozenset((node.agent, node.site) for node in self.nodes)

    def to_json(self) -> dict[str, Any]:
        """The fields; nodes without `written` omit it, so that hashes of older keys stay valid."""
        data = asdict(self)
        for node in (*data["nodes"], *data["decoys"], *data["minor"]):
            if not node["written"]:
                del node["written"]
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> AnswerKey:
        options = {name: as_tuples(value) for name, value in data.items()}
        for name in ("nodes", "decoys", "minor"):
            options[name] = tuple(Node(**{key: as_tuples(x) for key, x in node.items()}) for node in data[name])
        return AnswerKey(**options)

    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


def as_tuples(value: Any) -> Any:
    """JSON lists as tuples, at every depth."""
    return tuple(as_tuples(item) for item in value) if isinstance(value, list | tuple) else value
