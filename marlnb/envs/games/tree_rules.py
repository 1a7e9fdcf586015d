"""The rules of games whose states are listed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from marlnb.config import EnvConfig
from marlnb.envs.games.game import Game, Outcome
from marlnb.envs.games.tree_tables import CHANCE, TERMINAL, GameTree
from marlnb.errors import EnvError
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec


class TreeGame(Game):
    """B envs of a `GameTree`: each step looks up the next state.

    Memory: `state` `[env]`; `drawn` `[env, draw]`, uniform numbers for the outcomes of chance in this episode.
    """

    def __init__(self, config: EnvConfig, tree: GameTree, n_envs: int, device: str = "cpu") -> None:
        self._max_chance = int(_chance_nodes_before(tree).max()) + 1
        self.n_draws = self._max_chance
        width = tree.observations.shape[-1]
        group = GroupSpec(
            "player",
            tree.agents,
            ObservationSpec((width,)),
            ActionSpec("discrete", (tree.n_actions,)),
            has_action_mask=True,
        )
        self.tree = tree

        def on_device(values: np.ndarray, dtype: torch.dtype) -> Tensor:
            return torch.as_tensor(values, device=device).to(dtype)

        self._player = on_device(tree.player, torch.int64)
        self._children = on_device(tree.children, torch.int64)
        self._cumulative = on_device(tree.chances.cumsum(1), torch.float64)
        self._returns = on_device(tree.returns, torch.float32)
        self._observations = on_device(tree.observations, torch.float32)
        self._allowed = on_device(tree.allowed, torch.bool)
        max_steps = int(tree.depth.max())
        spec = EnvSpec(config.name, (group,), max_steps=max_steps, simultaneous=False)
        super().__init__(config, spec, n_envs, device)

    def initial_memory(self) -> dict[str, Tensor]:
        n_envs = self.n_envs
        return {
            "state": torch.zeros(n_envs, dtype=torch.int64, device=self.device),
            "drawn": torch.zeros(n_envs, self.n_draws, device=self.device),
            "n_drawn": torch.zeros(n_envs, dtype=torch.int64, device=self.device),
        }

    def begin(self, starting: Tensor, drawn: Tensor) -> None:
        memory = self.memory
        memory["state"].masked_fill_(starting, 0)
        memory["n_drawn"].masked_fill_(starting, 0)
        memory["drawn"].copy_(torch.where(starting[:, None], drawn.mT, memory["drawn"]))
        self._play_chance()

    def play(self, action: Tensor) -> Outcome:
        state = self.memory["state"]
        chosen = action.gather(1, self._player[state].clamp(min=0)[:, None])
        following = self._children[state].gather(1, chosen)[:, 0]
        if bool((following < 0).any()):
            raise EnvError(f"{self.spec.name}: an action that the action mask does not allow")
        state.copy_(following)
        self._play_chance()
        ended = (self._player[state] == TERMINAL)[:, None].expand_as(self.alive)
        return Outcome(self._returns[state], ended, torch.zeros_like(ended))

    def observe(self) -> Tensor:
        return self._observations[self.memory["state"]]

    def asked_to_act(self) -> Tensor:
        whose = self._player[self.memory["state"]]
        return whose[:, None] == torch.arange(self.group.n_agents, device=self.device)

    def allowed(self) -> Tensor:
        """Players who wait may choose anything."""
        return self._allowed[self.memory["state"]][:, None] | ~self.asked_to_act()[..., None]

    def _play_chance(self) -> None:
        """Outcomes of chance, until it is a player's turn or the game has ended."""
        state, drawn, n_drawn = (self.memory[name] for name in ("state", "drawn", "n_drawn"))
        for _ in range(self._max_chance):
            is_chance = self._player[state] == CHANCE
            if not bool(is_chance.any()):
                return
            number = drawn.gather(1, n_drawn.clamp(max=self.n_draws - 1)[:, None])
            outcome = (number >= self._cumulative[state]).sum(1)
            outcome = torch.minimum(outcome, (self._children[state] >= 0).sum(1) - 1).clamp(min=0)
            following = self._children[state].gather(1, outcome[:, None])[:, 0]
            state.copy_(torch.where(is_chance, following, state))
            n_drawn += is_chance


def _chance_nodes_before(tree: GameTree) -> np.ndarray:
    """`[state]`, the largest number of outcomes of chance on a way to it."""
    counts = np.zeros(len(tree.player), dtype=np.int64)
    for state, following in enumerate(tree.children):
        children = following[following >= 0]
        counts[children] = np.maximum(counts[children], counts[state] + (tree.player[state] == CHANCE))
    return counts
