"""CircuitBuilder: builds one instance of a circuit. It holds the wiring of each group and writes the answer key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from marlnb.config import EnvConfig
from marlnb.groundtruth.answer_key import AnswerKey, NetworkName, Node, PublicTask
from marlnb.groundtruth.wiring import UNITS, Wiring
from marlnb.recording.capture.sources import LabelFn
from marlnb.specs import EnvSpec

MINOR_READOUT = 0.02
"""Logits for one unit of activation of a unit that is too small to be named; circuits' are 2 and more."""
MINOR_UNITS = 3


@dataclass
class CircuitBuilder:
    """An instance under construction.

    Attributes:
        name: name of the circuit.
        network: the instance's network.
        shared: whether agents share weights.
        seed: the instance's seed.
        env: the environment's configuration.
        spec: its spaces.
        rng: random generator of the instance.
        concept: as in PublicTask.
        kind: as in PublicTask.
        onset: as in PublicTask.
        users: agents that use the concept, in the order in which it passes through them.
        code: as in AnswerKey.
        influences: as in AnswerKey.
        wirings: weights by group.
        labels: labels of recordings besides the environment's.
        nodes: the circuit's nodes so far.
        decoys: the decoys so far.
        minor: the minor units so far.
        driven: by group, the outputs that the circuit drives.
    """

    name: str
    network: NetworkName
    shared: bool
    seed: int
    env: EnvConfig
    spec: EnvSpec
    rng: np.random.Generator
    concept: str = "concept"
    kind: Literal["classes", "quantity"] = "quantity"
    onset: str = ""
    users: tuple[str, ...] = ()
    code: tuple[int, ...] = ()
    influences: tuple[tuple[str, str], ...] = ()
    wirings: dict[str, Wiring] = field(default_factory=dict)
    labels: dict[str, LabelFn] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    decoys: list[Node] = field(default_factory=list)
    minor: list[Node] = field(default_factory=list)
    driven: dict[str, set[int]] = field(default_factory=dict)

    def wiring(self, group: str) -> Wiring:
        if group not in self.wirings:
            self.wirings[group] = Wiring(self.spec, group, self.network, self.shared, self.rng)
        return self.wirings[group]

    def drive(self, group: str, agent: int, units: Sequence[int], weights: Mapping[int, Sequence[float]]) -> None:
        """Connects second-layer units of an agent to logits; weights: output -> weight of each unit."""
        self.driven.setdefault(group, set()).update(weights)
        for output, by_unit in weights.items():
            self.wiring(group).drive(output, units, by_unit, agent)

    def add_node(
        self,
        group: str,
        agent: int,
        layer: int,
        units: Sequence[int],
        *,
        basis: np.ndarray | None = None,
        exact: bool = True,
        readout: Mapping[int, Sequence[float]] | None = None,
        written: np.ndarray | None = None,
        into: list[Node] | None = None,
    ) -> None:
        """Adds a node to the circuit, or to `into`.

        Args:
            basis: `[dimension, unit of units]`.
            readout: output -> weight of each unit.
            written: `[direction, unit of units]`.
        """
        node = Node(
            agent=self.spec.group(group).agents[agent],
            site=self.wiring(group).site(layer),
            units=tuple(units),
            basis=_wide(basis, units),
            exact=exact,
            readout=tuple((output, tuple(map(float, row))) for output, row in sorted((readout or {}).items())),
            written=_wide(written, units),
        )
        (self.nodes if into is None else into).append(node)

    def add_decoy(self, group: str, layer: int, units: Sequence[int], *, basis: np.ndarray | None = None) -> None:
        """Adds a decoy to the key: units of each agent, or a subspace of theirs, that drive nothing."""
        outputs = range(self.spec.group(group).action.n[0]) if layer == 2 else ()
        none = {output: [0.0] * len(units) for output in outputs}
        for agent in range(self.spec.group(group).n_agents):
            self.add_node(group, agent, layer, units, basis=basis, readout=none, into=self.decoys)

    def plant_decoys(
        self,
        group: str,
        weights: Mapping[str, Sequence[float]],
        matrix: np.ndarray,
        *,
        bias: float = 0.0,
        latch: np.ndarray | None = None,
    ) -> None:
        """Plants decoy units in both layers of every agent of a group; the arguments are those of `sense` and `relay`.

        Second-layer unit i follows first-layer unit i; the matrix is `[unit, unit]`. No logit reads them.
        """
        wiring, count = self.wiring(group), len(matrix)
        first, second = wiring.take(1, count), wiring.take(2, count)
        wiring.sense(first, weights, bias=bias)
        wiring.relay(second, first, matrix, latch=latch)
        self.add_decoy(group, 1, first)
        self.add_decoy(group, 2, second)

    def add_minor(self) -> None:
        """Gives a few random-feature units a small readout, in every agent."""
        for group, outputs in sorted(self.driven.items()):
            wiring, chosen = self.wiring(group), sorted(outputs)
            units = tuple(sorted(map(int, wiring.free[2][:MINOR_UNITS])))
            signs = self.rng.choice((-1.0, 1.0), MINOR_UNITS) * MINOR_READOUT
            for output in chosen:
                wiring.drive(output, units, list(signs))
            readout = {output: list(signs) for output in chosen}
            for agent in range(self.spec.group(group).n_agents):
                self.add_node(group, agent, 2, units, exact=False, readout=readout, into=self.minor)

    def key(self) -> AnswerKey:
        instance, onset = (self.name, self.network, self.shared, self.seed), self.onset if self.network == "gru" else ""
        nodes, decoys, minor = tuple(self.nodes), tuple(self.decoys), tuple(self.minor)
        return AnswerKey(
            *instance, self.env.name, self.users, nodes, decoys, minor, self.code, onset, influences=self.influences
        )

    def task(self, key: AnswerKey) -> PublicTask:
        instance, groups = (self.name, self.network, self.shared, self.seed), tuple(self.wirings)
        outputs = tuple((group, tuple(sorted(driven))) for group, driven in sorted(self.driven.items()))
        return PublicTask(
            *instance, groups, outputs, self.concept, self.kind, onset=self.onset, key_sha256=key.sha256()
        )


def _wide(directions: np.ndarray | None, units: Sequence[int]) -> tuple[tuple[float, ...], ...]:
    """`[direction][unit of the site]` of `[direction, unit of units]`; empty for None."""
    if directions is None:
        return ()
    wide = np.zeros((len(directions), UNITS))
    wide[:, list(units)] = directions
    return tuple(tuple(map(float, row)) for row in wide)
