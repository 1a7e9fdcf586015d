"""AnswerKey: where a circuit was planted, as frozen data; Question: what is told of it in public. JSON and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

NetworkName = Literal["mlp", "gru"]


@dataclass(frozen=True)
class Node:
    """A part of a circuit, or of a decoy: what one site of one agent holds.

    Attributes:
        agent: its name; site: as `agent/actor/hidden_1`; units: those that hold it, and no others do.
        basis: `[dimension][unit of the site]`, orthonormal, where it is a subspace that no single unit holds; else
            empty, and each unit is a direction by itself.
        exact: whether units and subspace are what every cause must pass, so that they are scored. What only relays
            (the moment's news on its way into a memory) is not.
        readout: by output, logits for one unit of activation of each unit of `units`; empty where the site does not
            feed the head directly. Zero throughout for a decoy.
        written: `[direction][unit of the site]`, length 1, one for each output of the readout: what the units grow
            along when what drives the output is there, where that is not what the readout looks along; else empty.
    """

    agent: str
    site: str
    units: tuple[int, ...]
    basis: tuple[tuple[float, ...], ...] = ()
    exact: bool = True
    readout: tuple[tuple[int, tuple[float, ...]], ...] = ()
    written: tuple[tuple[float, ...], ...] = ()


SMALLEST = 0.03


@dataclass(frozen=True)
class Question:
    """What a tool is told: the concept, whose use is to be found, and the outputs that it may drive.

    Attributes:
        name: the circuit's; network, shared, seed: of the instance.
        groups: whose agents may hold it; outputs: by group, indices of the logits to look at.
        concept: the recording's label that holds it; kind: classes or a quantity.
        onset: the label from whose first positive step of an episode the agent may know; empty: from the start.
        smallest: share of the largest effect below which a unit need not be named.
        key_sha256: of the key, so that who keeps it back can show later that it was this one.
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
    smallest: float = SMALLEST
    key_sha256: str = ""


@dataclass(frozen=True)
class AnswerKey:
    """Where one instance of a circuit lies and what it does.

    Attributes:
        agents: those that use the concept, in the order in which it passes through them.
        nodes: the circuit; decoys: what holds the concept, or one that correlates with it, and drives nothing.
        minor: units with a readout a hundredth of the circuit's: too small to be named, and not a decoy.
        code: for a message, the word for each goal; empty otherwise.
        onset: the label from whose first positive step the circuit's memory holds the concept; empty: no memory.
        influences: pairs (cause, effect) of agents: what the first says, or where it is, drives the second's logits.
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
        """The fields, of nodes without `written` where there is none: keys that were published stay what they are."""
        found = asdict(self)
        for node in (*found["nodes"], *found["decoys"], *found["minor"]):
            if not node["written"]:
                del node["written"]
        return found

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> AnswerKey:
        given = {name: _tuples(value) for name, value in data.items()}
        for name in ("nodes", "decoys", "minor"):
            given[name] = tuple(Node(**{key: _tuples(x) for key, x in node.items()}) for node in data[name])
        return AnswerKey(**given)

    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


def question_from_json(data: Mapping[str, Any]) -> Question:
    return Question(**{field.name: _tuples(data[field.name]) for field in fields(Question)})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value
