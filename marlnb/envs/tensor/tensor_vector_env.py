"""TensorVectorEnv: rules as a VectorEnv. Buffers, seeds, clocks, ends and restarts; nothing here knows a game."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import numpy as np
import torch
from torch import Tensor

from marlnb.envs.device import check_device
from marlnb.envs.picture import checked_picture
from marlnb.envs.tensor.memory import bytes_per_env, check_memory
from marlnb.envs.tensor.philox import Draws
from marlnb.envs.tensor.rules import TIME, ByGroup, Rules, State
from marlnb.envs.tensor.shapes import (
    check_actions,
    check_flags,
    check_masks,
    check_rows,
    check_saved_state,
    check_state,
    check_terminated,
)
from marlnb.envs.vector import Step, VectorEnv, allocate_step, check_n_envs, episode_seeds, seed_bases
from marlnb.errors import EnvError


class TensorVectorEnv(VectorEnv):
    """B envs of one game. An episode is a function of its seed and the actions alone, for any B and on any device.

    Attributes:
        rules: of the game.
        state: of all envs now: name -> `[env, ...]`.
        restarts_by_mask: whether each step computes initial states for all envs, and selects with `torch.where` those
            that start; so a GPU never waits, and a step can be captured as a CUDA graph. Without it, which is the
            default on a CPU, a step in which no episode ends saves that work.
    """

    resets_each = True
    state_axis = 0

    def __init__(self, rules: Rules, n_envs: int, device: str = "cpu") -> None:
        self.rules, self.spec, self.n_envs = rules, rules.spec, n_envs
        check_n_envs(self.spec.name, n_envs)
        self.device = check_device(device)
        check_memory(self.spec.name, bytes_per_env(rules, self.device), n_envs, self.device)
        self.restarts_by_mask = self.device.type != "cpu"
        self.state: dict[str, Tensor] = {}
        self._step = allocate_step(self.spec, n_envs, self.device)
        self._seed: int | Tensor = 0
        self._episode = torch.zeros(n_envs, dtype=torch.int64, device=self.device)
        self._idle: set[str] = set()  # groups in which some agents may not act
        self._mask_shapes = {
            group.name: (n_envs, group.n_agents, group.action.n_logits)
            for group in self.spec.groups
            if group.has_action_mask
        }
        self._never = torch.zeros_like(self._step.done)
        self._has_ends = True  # whether a flag of the last step's ends may be set
        self._steps_left: float = 0  # until the first env reaches the time limit; unused where restarts are by mask
        groups = self.spec.groups
        self._row_shapes = {group.name: (n_envs, group.n_agents) for group in groups}
        self._action_shapes = {group.name: (n_envs, group.n_agents, *group.action.shape) for group in groups}
        self._observation_shapes = {g.name: (n_envs, g.n_agents, *g.observation.shape) for g in groups}
        self._fixed_start: dict[str, Tensor] | None = None
        self._flat = {
            name: (rows.observation.flatten(1), rows.final_observation.flatten(1))
            for name, rows in self._step.groups.items()
        }

    def reset(self, seed: int) -> Step:
        return self._reset(int(seed))

    def reset_each(self, seeds: Tensor) -> Step:
        return self._reset(seed_bases(seeds, self.n_envs, self.device))

    @torch.no_grad()
    def _reset(self, seed: int | Tensor) -> Step:
        self._seed = seed
        self._episode.zero_()
        self._step.episode_seed.copy_(episode_seeds(seed, self._episode, self.episode_stride))
        self._keep(self._initial_state())
        return self._show_first()

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        """As `VectorEnv.step`.

        Raises:
            EnvError: not reset yet, the actions have other shapes, or the rules return tensors of other shapes.
        """
        if torch.is_grad_enabled():  # in fewer calls than torch.no_grad()
            torch.set_grad_enabled(False)
            try:
                return self.step(actions)
            finally:
                torch.set_grad_enabled(True)
        if not self.state:
            raise EnvError(f"{self.spec.name} was stepped before its first reset(seed)")
        check_actions(self.spec, self._action_shapes, actions)
        before, time = self.state, self.state[TIME] + 1
        after, reward = self.rules.step(before, self._effective(actions), Draws(self._step.episode_seed, time))
        state = {**after, TIME: time}
        if after is not before:
            check_state(self.spec, "step", state, before)
        check_rows(self.spec, self._row_shapes, "step's rewards", reward)
        alive, observation = self._alive(state), self._observe(state)
        if self._end(state, reward, alive):
            self._write_observations(observation, alive, is_end=True)  # of agents alive before it
            if self._end_pictures is not None:
                self._end_pictures |= {k: self._picture(state, k) for k in self._step.done.nonzero().flatten().tolist()}
            if self.restarts_by_mask or bool(self._step.done.any()):
                if self._mask_shapes:
                    self._write_final_masks(state)
                state = self._restart(state)
                alive, observation = self._alive(state), self._observe(state)
            self._count_steps_left(state)
        self._keep(state)
        self._write(observation, alive)
        return self._step

    def state_dict(self) -> dict[str, Tensor]:
        """Every env's state, episode number and seed; copied tensors."""
        state = {f"state_{name}": value for name, value in self.state.items()}
        state |= {"episode": self._episode, "seed": torch.as_tensor(self._seed)}
        return {name: value.clone() for name, value in state.items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        if state["episode"].shape != self._episode.shape:
            raise EnvError(
                f"{self.spec.name}: the saved state has {len(state['episode'])} envs; there are {self.n_envs} here"
            )
        prefix = "state_"
        saved = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        if not self.state:
            self._keep(self._initial_state())
        check_saved_state(self.spec, saved, self.state)
        self._seed = state["seed"].to(self.device).clone() if state["seed"].ndim else int(state["seed"])
        self._episode.copy_(state["episode"])
        self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode, self.episode_stride))
        # in the order in memory that the rules chose
        self._keep({name: torch.empty_like(value).copy_(saved[name]) for name, value in self.state.items()})
        return self._show_first()

    def labels(self) -> dict[str, Tensor]:
        return dict(self.rules.labels(self.state))

    def label_state(self) -> Tensor | None:
        return self.rules.label_state(self.state)

    def labels_of(self, states: Tensor) -> dict[str, Tensor]:
        return dict(self.rules.labels_of(states))

    def render(self, index: int = 0) -> np.ndarray:
        self._check_index(index)
        return self._picture(self.state, index)

    def _picture(self, state: State, index: int) -> np.ndarray:
        picture = self.rules.draw_picture({name: value[index : index + 1].cpu() for name, value in state.items()})
        return checked_picture(self.spec.name, "draw_picture", picture)

    def _initial_state(self) -> dict[str, Tensor]:
        if self._fixed_start is not None:
            # by mask, `_keep` copies them; else they become the state itself, which must not be the fixed start
            return {k: value if self.restarts_by_mask else value.clone() for k, value in self._fixed_start.items()}
        draw = Draws(self._step.episode_seed)
        start = self.rules.start(draw)
        if TIME in start:
            raise EnvError(
                f"{self.spec.name}: start returned state[{TIME!r}], which is the number of steps of the episode and "
                "counted by marlnb; choose another name"
            )
        state = {**start, TIME: torch.zeros_like(self._episode)}
        check_state(self.spec, "start", state, self.state or state, self.n_envs)
        if self.rules.fixed_start:
            self._fixed_start = {name: value.clone() for name, value in state.items()}
        return state

    def _show_first(self) -> Step:
        """Writes the current time step, without a transition before it."""
        self._step.clear_transition()
        for group in self._step.groups.values():
            group.final_observation.zero_()
        if self._step.final_state is not None:
            self._step.final_state.zero_()
        self._count_steps_left(self.state)
        self._write(self._observe(self.state), self._alive(self.state))
        return self._step

    def _count_steps_left(self, state: State) -> None:
        limit = self.spec.max_steps
        if not self.restarts_by_mask:
            self._steps_left = inf if limit is None else limit - int(state[TIME].max())

    def _observe(self, state: State) -> ByGroup:
        observation = self.rules.observe(state)
        check_rows(self.spec, self._observation_shapes, "observe", observation)
        return observation

    def _alive(self, state: State) -> ByGroup:
        alive = self.rules.alive(state)
        check_flags(self.spec, self._row_shapes, "alive", alive)
        return alive

    def _acting(self, state: State) -> ByGroup:
        acting = self.rules.acting(state)
        check_flags(self.spec, self._row_shapes, "acting", acting)
        return acting

    def _effective(self, actions: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The actions; 0 for agents that do not act, so that what the caller passes for them has no effect."""
        if not self._idle:
            return actions
        return {
            name: actions[name].masked_fill(~_like(rows.acting, actions[name]), 0)
            if name in self._idle
            else actions[name]
            for name, rows in self._step.groups.items()
        }

    def _end(self, state: State, reward: ByGroup, alive: ByGroup) -> bool:
        """Rewards, and who ends: by death, by the rules, by time; the env is done when no agent is left.

        Returns:
            whether an agent's episode may have ended; only on a CPU, where asking costs little, it is ever False.
        """
        over, self._steps_left = self.rules.terminated(state), self._steps_left - 1
        check_terminated(self.spec, self.n_envs, over)
        for name, rows in self._step.groups.items():
            if name in alive:
                torch.mul(reward[name], rows.alive, out=rows.reward)
            else:
                rows.reward.copy_(reward[name])
        if not (self.restarts_by_mask or alive) and self._steps_left > 0 and (over is None or not bool(over.any())):
            if self._has_ends:
                self._step.clear_ends()
            self._has_ends = False
            return False
        over = self._never if over is None else over
        late = self._never if self.spec.max_steps is None else state[TIME] >= self.spec.max_steps
        self._has_ends = True
        left = self._never
        for name, rows in self._step.groups.items():
            was, ends = rows.alive, over[:, None]
            if name in alive:
                ends = ends | ~alive[name]
            torch.logical_and(was, ends, out=rows.terminated)
            torch.logical_and(was & ~rows.terminated, late[:, None], out=rows.truncated)
            left = left | (was & ~rows.terminated & ~rows.truncated).any(1)
        torch.logical_not(left, out=self._step.done)
        return True

    def _restart(self, state: State) -> dict[str, Tensor]:
        """Envs whose episode has ended start their next one."""
        done = self._step.done
        self._episode += done
        self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode, self.episode_stride))
        start = self._initial_state()
        if not self.restarts_by_mask and bool(done.all()):
            return start
        starts = ((name, _like(done, value), start[name], value) for name, value in state.items())
        if self.rules.writes_state:  # in its own memory, which the rules know
            return {name: torch.where(mask, first, value, out=value) for name, mask, first, value in starts}
        return {name: torch.where(mask, first, value) for name, mask, first, value in starts}

    def _keep(self, state: State) -> None:
        """Makes `state` the current one; for a captured step, in the buffers that it reads."""
        if not self.restarts_by_mask:
            self.state = dict(state)
        elif not self.state:
            # tensors of a fixed start are not written to
            self.state = {name: value if self.rules.writes_state else value.clone() for name, value in state.items()}
        else:
            for name, value in state.items():
                if value is not self.state[name]:
                    self.state[name].copy_(value)

    def _write(self, observation: ByGroup, alive: ByGroup) -> None:
        """Writes what describes the current time step."""
        acting, mask = self._acting(self.state), self.rules.action_mask(self.state)
        check_masks(self.spec, self._mask_shapes, mask)
        self._idle = {*alive, *acting}
        for name, rows in self._step.groups.items():
            if name in alive:
                rows.alive.copy_(alive[name])
            if name in alive or name in acting:
                rows.acting.copy_(rows.alive & acting[name] if name in acting else rows.alive)
            if rows.action_mask is not None:
                rows.action_mask.copy_(mask[name])
        self._write_observations(observation, alive)

    def _write_final_masks(self, state: State) -> None:
        """Writes what the agents could choose at the end. Agents that would wait may choose anything."""
        acting, mask = self._acting(state), self.rules.action_mask(state)
        for name, rows in self._step.groups.items():
            if rows.final_action_mask is not None:
                rows.final_action_mask.copy_(mask[name] | ~acting[name][..., None] if name in acting else mask[name])

    def _write_observations(self, observation: ByGroup, alive: ByGroup, *, is_end: bool = False) -> None:
        for name, rows in self._step.groups.items():
            # torch transposes faster in two dimensions
            self._flat[name][is_end].copy_(observation[name].flatten(1))
            if name in alive:
                target = rows.final_observation if is_end else rows.observation
                target.masked_fill_(~_like(rows.alive, target), 0)
        state = self._step.final_state if is_end else self._step.state
        if state is not None:
            rows_of = self._step.groups.values()
            parts = [rows.final_observation if is_end else rows.observation for rows in rows_of]
            state.copy_(torch.cat([part.flatten(1) for part in parts], 1))


def _like(flags: Tensor, value: Tensor) -> Tensor:
    """Flags `[env]` or `[env, agent]` with further axes of length 1, to broadcast with `value`."""
    return flags.view(*flags.shape, *[1] * (value.ndim - flags.ndim))
