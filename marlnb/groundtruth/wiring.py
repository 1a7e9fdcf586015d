"""Wiring: one group's actor with hand-set weights. Circuit units lie among random-feature units.

The actor has two hidden layers and a linear head: relu and relu (`mlp`), or relu and a gated recurrent layer (`gru`).
A recurrent unit either follows its input (its update gate ignores the past) or latches it (keeps its value until the
next cue). Agents that share weights also observe their own index, which gates the units of one agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from marlnb.groundtruth.answer_key import NetworkName
from marlnb.models.networks.agent_id import AgentId
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.networks.layers import HiddenLayer
from marlnb.models.networks.mlp import MLP
from marlnb.models.networks.recurrent import GRU
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.specs import EnvSpec

UNITS = 32
GATE = 100.0
"""Magnitude of the negative weight on other agents' indices; exceeds any sum of features, so the relu stays at 0."""
GATE_LOGIT = 16.0
"""Logit at which an update gate is open or closed up to 1e-7."""
TANH_GAIN = 0.25
"""Scale of a gated unit's input; keeps tanh away from saturation."""


class Wiring:
    """The weights of one group's actor, under construction.

    Attributes:
        gain: pre-activation of a second-layer unit for an input of 1 (1 for mlp, TANH_GAIN for gru).
        second: name of the second hidden layer.
        free: by layer, the unused units in random order.
    """

    def __init__(self, env: EnvSpec, group: str, network: NetworkName, shared: bool, rng: np.random.Generator) -> None:
        self.env, self.group, self.network, self.shared = env, env.group(group), network, shared
        self.features = list(self.group.observation.names)
        n, f, o = self.group.n_agents, len(self.features), self.group.action.n[0]
        self.reads_id = shared and n > 1
        self.blocks = 1 if shared else n
        self.gain, self.second = (1.0, "hidden_2") if network == "mlp" else (TANH_GAIN, "gru")
        ids = n if self.reads_id else 0
        self.w1 = rng.normal(0, 1 / np.sqrt(f), (self.blocks, UNITS, f + ids))
        self.b1 = rng.normal(0, 0.3, (self.blocks, UNITS))
        self.w2 = rng.normal(0, 1 / np.sqrt(UNITS), (self.blocks, UNITS, UNITS))
        self.b2 = rng.normal(0, 0.1, (self.blocks, UNITS))
        self.update_w = np.zeros_like(self.w2)
        self.update_b = np.zeros_like(self.b2)
        self.head_w = np.zeros((self.blocks, o, UNITS))
        self.head_b = np.zeros((self.blocks, o))
        self.free = {layer: list(rng.permutation(UNITS)) for layer in (1, 2)}

    def site(self, layer: int) -> str:
        return f"{self.group.name}/actor/{'hidden_1' if layer == 1 else self.second}"

    def take(self, layer: int, count: int) -> tuple[int, ...]:
        """Reserves `count` random unused units of a layer (1 or 2), in increasing order."""
        return tuple(sorted(int(self.free[layer].pop()) for _ in range(count)))

    def sense(
        self, units: Sequence[int], weights: Mapping[str, Sequence[float]], bias: float = 0.0, agent: int | None = None
    ) -> None:
        """Sets first-layer unit i to relu(sum of weights[feature][i] * feature + bias), in one agent or all (None)."""
        for block in self._blocks_of(agent):
            for position, unit in enumerate(units):
                row = np.zeros(self.w1.shape[-1])
                for feature, by_unit in weights.items():
                    row[self.features.index(feature)] = by_unit[position]
                if agent is not None and self.reads_id:
                    others = [k for k in range(self.group.n_agents) if k != agent]
                    row[[len(self.features) + k for k in others]] = -GATE
                self.w1[block, unit], self.b1[block, unit] = row, bias

    def relay(
        self,
        units: Sequence[int],
        sources: Sequence[int],
        matrix: np.ndarray,
        agent: int | None = None,
        *,
        latch: np.ndarray | None = None,
    ) -> None:
        """Connects first-layer sources to second-layer units. Pre-activation: matrix @ sources.

        Args:
            matrix: `[unit, source]`.
            latch: `[source]`; the weighted sum of the sources is 1 at a cue and 0 otherwise. A gated unit takes its
                input at a cue and keeps its value otherwise. None: it always follows its input, as relu units do.
        """
        for block in self._blocks_of(agent):
            for position, unit in enumerate(units):
                self.w2[block, unit] = 0.0
                self.w2[block, unit, list(sources)] = matrix[position]
                self.b2[block, unit] = 0.0
                self.update_w[block, unit] = 0.0
                self.update_b[block, unit] = -GATE_LOGIT if latch is None else GATE_LOGIT
                if latch is not None:
                    self.update_w[block, unit, list(sources)] = -2 * GATE_LOGIT * latch

    def add(self, units: Sequence[int], sources: Sequence[int], matrix: np.ndarray, agent: int | None = None) -> None:
        """Adds sources to second-layer units that `relay` has connected: `matrix` `[unit, source]`."""
        for block in self._blocks_of(agent):
            self.w2[np.ix_([block], units, sources)] += matrix

    def shift(self, units: Sequence[int], bias: np.ndarray) -> None:
        """Adds a bias `[unit]` to second-layer units of every agent."""
        self.b2[:, list(units)] += bias

    def drive(
        self, output: int, units: Sequence[int], weights: Sequence[float] | np.ndarray, agent: int | None = None
    ) -> None:
        """Adds a weighted sum of second-layer units to a logit."""
        for block in self._blocks_of(agent):
            self.head_w[block, output, list(units)] += np.asarray(weights)

    def prefer(self, output: int, logits: float, agent: int | None = None) -> None:
        """Adds a constant to a logit."""
        for block in self._blocks_of(agent):
            self.head_b[block, output] += logits

    def build(self) -> ActorCritic:
        """Builds the policy. Random-feature units read no circuit unit."""
        policy = ActorCritic(self.group, self.env, self._config(), MLPConfig(hidden=(4,)))
        network = policy.actor.network
        inner = cast("MLP | GRU", network.inner if isinstance(network, AgentId) else network)
        free = sorted(map(int, self.free[2]))
        used = [unit for unit in range(UNITS) if unit not in self.free[1]]
        self.w2[np.ix_(range(self.blocks), free, used)] = 0.0
        first = cast(HiddenLayer, inner.hidden[0]).linear
        with torch.no_grad():
            _put(first, self.w1, self.b1)
            if isinstance(inner, MLP):
                _put(cast(HiddenLayer, inner.hidden[1]).linear, self.w2, self.b2)
            else:
                self._put_gru(inner, free)
            _put(inner.head, self.head_w, self.head_b)
        return policy.eval()

    def _config(self) -> MLPConfig | GRUConfig:
        config: MLPConfig | GRUConfig = MLPConfig(hidden=(UNITS, UNITS))
        if self.network == "gru":
            config = GRUConfig(hidden=(UNITS,), recurrent_size=UNITS)
        return replace(config, activation="relu", share_parameters=self.shared, agent_id=self.reads_id)

    def _put_gru(self, network: GRU, free: list[int]) -> None:
        """Sets the recurrent weights. Reset gates are 1/2. The state of free units affects only their candidates."""
        zero_w, zero_b = np.zeros_like(self.w2), np.zeros_like(self.b2)
        weight, bias = (zero_w, self.update_w, self.w2), (zero_b, self.update_b, self.b2)
        _put(network.gru.input, np.concatenate(weight, 1), np.concatenate(bias, 1))
        mixing = np.zeros_like(self.w2)
        state_weights = np.random.default_rng(free).normal(0, 0.5 / np.sqrt(UNITS), (len(free), len(free)))
        mixing[np.ix_(range(self.blocks), free, free)] = state_weights
        state = np.concatenate((zero_w, zero_w, mixing), 1)
        _put(network.gru.state, state, np.zeros((self.blocks, 3 * UNITS)))

    def _blocks_of(self, agent: int | None) -> range:
        return range(self.blocks) if agent is None or self.shared else range(agent, agent + 1)


def _put(layer: torch.nn.Module, weight: np.ndarray, bias: np.ndarray) -> None:
    for parameter, values in ((layer.weight, weight), (layer.bias, bias)):
        cast(torch.Tensor, parameter).copy_(torch.from_numpy(values).reshape(cast(torch.Tensor, parameter).shape))
