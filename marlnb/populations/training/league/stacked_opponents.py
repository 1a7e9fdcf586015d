"""StackedOpponents: the policies of other players act where the home player does not, in one batched product.

The weights of all opponents in play that have one architecture are stacked along a leading axis, and environments are
sorted by opponent:

    logits[slot, row] = actor(weights[slot], observation[env of (slot, row)])

Memory depends on the opponents in play, not on the size of the league: there are at most as many slots as environments
(more only where several opponents meet in one environment).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from marlnb.models.networks.layers import AgentLinear
from marlnb.models.networks.mlp import HiddenNetwork
from marlnb.models.networks.packing import pad, unpad, widest_shape
from marlnb.models.networks.stacking import StackedLinear
from marlnb.models.policies.actor import Actor, ActorPolicy
from marlnb.models.policies.policy import ActContext, Policy
from marlnb.specs import GroupSpec

HOME = ""  # in a table of cells: the home player acts here


@dataclass(frozen=True)
class Opponent:
    """Another player's policy for one group, with its weights at one time.

    Attributes:
        policy: a policy of its architecture, which other opponents share; its weights are not read.
        architecture: equal for opponents that can be stacked.
        weights: of its actor, by name; empty for a policy without network.
        is_final: whether these weights never change.
    """

    policy: Policy
    architecture: str
    weights: Mapping[str, Tensor]
    is_final: bool


class StackedOpponents:
    """Acts for the opponents in one group of agents.

    Opponents explore as they did in their training: they sample from their distribution. Policies of Q values take
    the largest one.

    Args:
        group: the agents.
        n_envs: B.
        load: the opponent of a name.
        device: of the policies.
    """

    def __init__(
        self, group: GroupSpec, n_envs: int, load: Callable[[str], Opponent], device: torch.device | str = "cpu"
    ) -> None:
        self._load, self._device = load, torch.device(device)
        self._stacks: dict[str, _Stack] = {}
        self._empty: dict[str, _Stack] = {}  # stacks of the last refresh, whose actors can be used again
        self._final: set[str] = set()
        self._names = np.full((n_envs, group.n_agents), HOME, dtype=object)
        self.home = torch.ones(n_envs, group.n_agents, dtype=torch.bool, device=self._device)
        self.recurrent: Tensor | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The opponents in play, sorted."""
        return tuple(sorted(set(self._names.flat) - {HOME}))

    @property
    def size_bytes(self) -> int:
        """Memory of the stacked weights."""
        return sum(
            tensor.numel() * tensor.element_size()
            for stack in self._stacks.values()
            for tensor in stack.weights.values()
        )

    def seat(self, names: np.ndarray, started: Iterable[int] = ()) -> None:
        """Sets who acts where.

        Args:
            names: `[env, agent]` of str; HOME where the home player acts.
            started: environments that start an episode: their opponents' recurrent states become zero.
        """
        self._names = names.copy()
        in_play = set(names.flat) - {HOME}
        for name in sorted(in_play - {name for stack in self._stacks.values() for name in stack.slots}):
            self._enter(name, self._load(name), in_play)
        for stack in self._stacks.values():
            stack.forget_idle(in_play)
        self._arrange()
        if self.recurrent is not None:
            self.recurrent[list(started)] = 0

    def refresh(self) -> None:
        """Loads the weights of players that have learned since, and forgets opponents that are not in play.

        Slots are in the order of names afterwards, so that a resumed training run has the same as one that was not
        stopped.
        """
        kept = {
            name: Opponent(stack.policy, architecture, stack.weights_of(slot), True)
            for architecture, stack in self._stacks.items()
            for slot, name in enumerate(stack.slots)
            if name in self._final
        }
        self._empty = {architecture: stack.emptied() for architecture, stack in self._stacks.items()}
        self._stacks, self._final = {}, set()
        names = self.names
        for name in names:
            self._enter(name, kept.get(name) or self._load(name), set(names))
        self._arrange()

    @torch.no_grad()
    def act(self, observation: Tensor, action: Tensor, context: ActContext, acting: Tensor | None = None) -> Tensor:
        """The actions of a step: `action` where the home player acts, and its opponents' elsewhere.

        Args:
            observation: `[env, agent, *shape]`.
            action: `[env, agent(, component)]`, the home player's, of every cell.
            context: as of the home player's policy; its recurrent state is not read.
            acting: `[env, agent]`, in turn-based games who acts: the recurrent states of others do not change.
        """
        for stack in self._stacks.values():
            if not stack.slots:
                continue
            state = None if self.recurrent is None else stack.own_state(self.recurrent)
            chosen, after = stack.act(observation, state, context)
            cells = stack.cells.reshape(*stack.cells.shape, *(1,) * (action.ndim - 2))
            action = torch.where(cells, chosen, action)
            if after is not None:
                assert self.recurrent is not None
                changed = stack.cells if acting is None else stack.cells & acting
                after = pad(after, (self.recurrent.shape[-2], self.recurrent.shape[-1]))
                self.recurrent = torch.where(changed[..., None, None], after, self.recurrent)
        return action

    def state_dict(self) -> dict[str, Any]:
        return {"recurrent": None if self.recurrent is None else self.recurrent.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """After `seat`: the opponents' recurrent states."""
        saved = state["recurrent"]
        self.recurrent = None if saved is None else saved.to(self._device).clone()

    def _enter(self, name: str, opponent: Opponent, in_play: set[str]) -> None:
        stack = self._stacks.get(opponent.architecture)
        if stack is None:
            stack = self._empty.pop(opponent.architecture, None) or _stack_of(opponent.policy)
            self._stacks[opponent.architecture] = stack
        stack.enter(name, opponent.weights, in_play)
        if opponent.is_final:
            self._final.add(name)
        self._widen(opponent.policy.recurrent_shape)

    def _widen(self, shape: tuple[int, int] | None) -> None:
        """Makes place for recurrent states of this shape."""
        before = None if self.recurrent is None else (self.recurrent.shape[-2], self.recurrent.shape[-1])
        needed = widest_shape([before, shape])
        if needed is None or needed == before:
            return
        if self.recurrent is None:
            self.recurrent = torch.zeros(*self.home.shape, *needed, device=self._device)
        else:
            self.recurrent = pad(self.recurrent, needed)

    def _arrange(self) -> None:
        self.home = torch.from_numpy(self._names == HOME).to(self._device)
        for stack in self._stacks.values():
            stack.arrange(self._names, self._device)


class _Stack:
    """Opponents of one architecture, in slots.

    Attributes:
        slots: the opponents' names; all of them are in play.
        weights: by name, `[slot, ...]`; slots after the last name are not in use.
        cells: `[env, agent]` bool, where they act.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.slots: list[str] = []
        self.weights: dict[str, Tensor] = {}
        self.cells = torch.empty(0, dtype=torch.bool)

    def emptied(self) -> _Stack:
        """The same without opponents. This one keeps them."""
        stack = copy.copy(self)
        stack.slots, stack.weights = [], {}
        return stack

    def weights_of(self, slot: int) -> dict[str, Tensor]:
        return {name: tensor[slot] for name, tensor in self.weights.items()}

    def enter(self, name: str, weights: Mapping[str, Tensor], in_play: set[str]) -> None:
        """Puts an opponent in the slot of one that is no longer in play, or in a new one."""
        slot = next((k for k, present in enumerate(self.slots) if present not in in_play), len(self.slots))
        if slot < len(self.slots):
            self.slots[slot] = name
        else:
            self.slots.append(name)
            self._grow(weights)
        for key, tensor in weights.items():
            self.weights[key][slot].copy_(tensor)

    def forget_idle(self, in_play: set[str]) -> None:
        """The last opponents in play move to the slots of those that are not, so that no slot is evaluated in vain."""
        for slot in reversed([k for k, name in enumerate(self.slots) if name not in in_play]):
            last = len(self.slots) - 1
            if slot < last:
                self.slots[slot] = self.slots[last]
                for tensor in self.weights.values():
                    tensor[slot].copy_(tensor[last])
            self.slots.pop()

    def arrange(self, names: np.ndarray, device: torch.device) -> None:
        """Sorts environments by opponent, for `names` `[env, agent]`."""
        slot_of = {name: slot for slot, name in enumerate(self.slots)}
        slots = np.array([slot_of.get(name, -1) for name in names.flat], dtype=np.int64).reshape(names.shape)
        self.cells = torch.from_numpy(slots >= 0).to(device)
        if self.slots:
            self._index(slots, device)

    def own_state(self, recurrent: Tensor) -> Tensor | None:
        """Its part of the recurrent states of all architectures."""
        shape = self.policy.recurrent_shape
        return None if shape is None else unpad(recurrent, shape)

    def act(self, observation: Tensor, state: Tensor | None, context: ActContext) -> tuple[Tensor, Tensor | None]:
        """Actions `[env, agent(, component)]`, valid in its cells, and the recurrent states after the step."""
        output = self.policy.act(
            observation, recurrent=state, action_mask=context.action_mask, generator=context.generator
        )
        return output.action, output.recurrent

    def _index(self, slots: np.ndarray, device: torch.device) -> None:
        """Index tensors of the cells' slots `[env, agent]`, -1 where others act."""

    def _grow(self, weights: Mapping[str, Tensor]) -> None:
        """Doubles the memory when all slots are in use."""
        n_slots = len(self.slots)
        for key, tensor in weights.items():
            stacked = self.weights.get(key)
            if stacked is None or len(stacked) < n_slots:
                grown = tensor.new_zeros(1 if stacked is None else 2 * len(stacked), *tensor.shape)
                if stacked is not None:
                    grown[: len(stacked)] = stacked
                self.weights[key] = grown


class _ActorStack(_Stack):
    """Opponents whose actors are networks, evaluated together."""

    policy: ActorPolicy

    def __init__(self, policy: ActorPolicy) -> None:
        super().__init__(policy)
        self._actor = _StackedActor(policy.actor)
        network = policy.actor.network
        self._by_cell = self._actor.is_batched and isinstance(network, HiddenNetwork) and not network.cross_agent
        self._in_play: dict[str, Tensor] = {}
        self._rows = self._row_of = self._agents = torch.empty(0, dtype=torch.int64)

    def act(self, observation: Tensor, state: Tensor | None, context: ActContext) -> tuple[Tensor, Tensor | None]:
        parameters, after = self.logits(observation, state)
        distribution = self.policy.distribution
        parameters = distribution.mask(parameters, context.action_mask)
        sample = distribution.choose(parameters, context.generator, explore=not self.policy.greedy)
        return sample.action, after

    def logits(self, observation: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The actors' outputs `[env, agent, parameter]`, valid in their cells, and their states after the step.

        Args:
            observation: `[env, agent, *shape]`.
            state: `[env, agent, layer, unit]`; None for feed-forward actors.
        """
        shape = observation.shape[:2]
        if self._by_cell:  # where agents do not depend on each other, each cell is a row of one agent
            observation = observation.flatten(0, 1).unsqueeze(1)
            state = None if state is None else state.flatten(0, 1).unsqueeze(1)
        rows = observation[self._rows]  # [slot, row, agent, *shape]
        states = None if state is None else state[self._rows]
        parameters, after = (
            None if values is None else self._scatter(values).reshape(*shape, *values.shape[3:])
            for values in self._actor(self._in_play, rows, states)
        )
        assert parameters is not None
        return parameters, after

    def _index(self, slots: np.ndarray, device: torch.device) -> None:
        n_slots = len(self.slots)
        self._in_play = {name: tensor[:n_slots] for name, tensor in self.weights.items()}
        slots = slots.reshape(-1, 1) if self._by_cell else slots
        envs, agents = np.nonzero(slots >= 0)
        pairs, pair_of_cell = np.unique(slots[envs, agents] * len(slots) + envs, return_inverse=True)
        slot, env = pairs // len(slots), pairs % len(slots)  # sorted by slot, then by environment
        first = np.searchsorted(slot, np.arange(n_slots))
        row = np.arange(len(slot)) - first[slot]
        n_rows = int(row.max()) + 1
        rows = np.zeros((n_slots, n_rows), dtype=np.int64)
        rows[slot, row] = env
        row_of = np.zeros(slots.shape, dtype=np.int64)
        row_of[envs, agents] = (slot * n_rows + row)[pair_of_cell.reshape(-1)]
        self._rows, self._row_of = torch.from_numpy(rows).to(device), torch.from_numpy(row_of).to(device)
        self._agents = torch.arange(slots.shape[1], device=device)

    def _scatter(self, values: Tensor) -> Tensor:
        """`[slot, row, agent, ...]` -> `[env, agent, ...]`; cells of others hold something finite."""
        return values.flatten(0, 1)[self._row_of, self._agents]


class _StackedActor:
    """An actor that is evaluated with the weights of several players.

    Affine maps that agents share are one batched product for all players. An actor with other weights is evaluated by
    `torch.vmap`, which takes twice as long for a small network on a CPU.

    The weights are put in the place of those of a copy of the actor. `torch.func.functional_call` would restore the
    copy's own after each step, which takes longer than the step of a small network.
    """

    def __init__(self, actor: Actor) -> None:
        self._actor = copy.deepcopy(actor)
        self.is_batched = batch_affine_maps(self._actor)
        self._tables: dict[str, tuple[dict[str, Any], str]] = {}
        for path, module in self._actor.named_modules():
            for table in (module._parameters, module._buffers):
                self._tables |= {f"{path}.{name}" if path else name: (table, name) for name in table}

    def __call__(
        self, weights: Mapping[str, Tensor], observation: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The step of each slot: outputs `[slot, row, agent, parameter]`, and states after it.

        Args:
            weights: each `[slot, ...]`.
            observation: `[slot, row, agent, *shape]`.
            state: `[slot, row, agent, layer, unit]`; None for feed-forward actors.
        """
        if self.is_batched:
            return self._step(weights, observation, state)
        if state is None:
            return torch.vmap(lambda w, x: self._step(w, x, None)[0])(weights, observation), None
        return torch.vmap(self._step)(weights, observation, state)  # type: ignore[no-any-return]

    def _step(
        self, weights: Mapping[str, Tensor], observation: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        for path, tensor in weights.items():
            table, name = self._tables[path]
            table[name] = tensor
        return self._actor.step(observation, state)


def batch_affine_maps(actor: nn.Module) -> bool:
    """Replaces all affine maps that agents share, if an actor has no other weights; returns whether it did."""
    maps = {
        (module, name): child
        for module in actor.modules()
        for name, child in module.named_children()
        if isinstance(child, AgentLinear) and child.shared
    }
    if len(actor.state_dict()) != 2 * len(maps):
        return False
    for (module, name), child in maps.items():
        weight, bias = (nn.Parameter(values.detach()[None]) for values in (child.weight, child.bias))
        setattr(module, name, StackedLinear(weight, bias))  # of one player, until `_step` gives those of all
    return True


def _stack_of(policy: Policy) -> _Stack:
    return _ActorStack(policy) if isinstance(policy, ActorPolicy) else _Stack(policy)
