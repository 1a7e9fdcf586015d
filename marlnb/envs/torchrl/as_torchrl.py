"""Any VectorEnv as a torchrl EnvBase, so that torchrl's collectors, transforms and losses work on it.

A VectorEnv resets itself; torchrl expects a call of `reset`. So `next` at an episode's end contains the final
observations, and the first observations of the next episode, already available, are returned by the following `reset`.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite, MultiCategorical, Unbounded
from torchrl.envs import EnvBase

from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import EnvError
from marlnb.specs import SEED_SPAN, EnvSpec, GroupSpec

FLAGS = ("done", "terminated", "truncated")


def as_torchrl(env: VectorEnv) -> AsTorchrl:
    """The environment as a torchrl EnvBase of batch size `[n_envs]`, on its device.

    For each group g of n agents: `(g, "observation")` `[env, agent, *shape]`, `(g, "action")`, `(g, "reward")`
    `[env, agent, 1]`, `(g, "alive")` and `(g, "acting")` `[env, agent]`, `(g, "action_mask")` `[env, agent, choice]` if
    there is one, `(g, "done" | "terminated" | "truncated")` `[env, agent, 1]`, True from an agent's end on.
    At the root: `done`, `terminated`, `truncated` `[env, 1]`, and `state` if there is one.

    Closing it closes `env`. Single envs cannot be reset in the middle of their episodes; all together can.
    """
    return AsTorchrl(env)


class AsTorchrl(EnvBase):  # type: ignore[misc]
    """A VectorEnv with torchrl's interface; see as_torchrl.

    Attributes:
        simultaneous: whether every living agent acts at every step, as in EnvSpec.
    """

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(device=env.device, batch_size=torch.Size((env.n_envs,)))
        self.vector_env = env
        self.simultaneous = env.spec.simultaneous
        self.group_map = {group.name: list(group.agents) for group in env.spec.groups}
        self.agent_names = list(env.spec.agents)
        self.observation_spec, self.action_spec, self.reward_spec, self.done_spec = _specs(
            env.spec, env.n_envs, env.device
        )
        self._current: Step | None = None
        self._started = torch.zeros(env.n_envs, dtype=torch.bool, device=env.device)  # and not yet returned by reset
        self._ended = {g.name: torch.zeros(env.n_envs, g.n_agents, 1, dtype=torch.bool) for g in env.spec.groups}
        self._ended = {name: flags.to(env.device) for name, flags in self._ended.items()}
        self._seed, self._n_episodes = 0, torch.zeros(env.n_envs, dtype=torch.int64, device=env.device)
        self.set_seed(int(torch.randint(SEED_SPAN, ())))

    def _set_seed(self, seed: int | None) -> None:
        if seed is not None:
            self._seed, self._current = int(seed) % SEED_SPAN, None
            self._n_episodes.zero_()

    def _reset(self, tensordict: TensorDictBase | None = None, **options: Any) -> TensorDictBase:
        """The first observations of the envs flagged in `_reset` `[env, 1]`, or of all.

        Raises:
            EnvError: some of these envs are in the middle of their episodes, and not all envs are reset.
        """
        flags = None if tensordict is None else tensordict.get("_reset", None)
        selected = torch.ones_like(self._started) if flags is None else flags.reshape(-1)
        if self._current is None or (selected.all() and not self._started.all()):
            self._restart()
        elif (selected & ~self._started).any():
            running = (selected & ~self._started).nonzero().flatten().tolist()
            raise EnvError(
                f"{self.vector_env.spec.name}: envs {running} are in the middle of their episodes; reset those "
                f"that have ended, or all {self.vector_env.n_envs} at once"
            )
        self._started &= ~selected
        for ended in self._ended.values():
            ended.masked_fill_(selected[:, None, None], False)
        assert self._current is not None
        return self._tensordict(self._current, None)

    def _restart(self) -> None:
        """Restarts all envs: with the seed set last, or with seeds that no episode since has had."""
        self._seed = (self._seed + int(self._n_episodes.max()) * self.vector_env.n_envs) % SEED_SPAN
        self._current = self.vector_env.reset(self._seed)
        self._n_episodes.fill_(1)
        self._started.fill_(True)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self._started.any() or self._current is None:
            envs = self._started.nonzero().flatten().tolist()
            raise EnvError(f"{self.vector_env.spec.name}: reset envs {envs} first: their episodes have ended")
        name = self.vector_env.spec.name
        if tensordict.get("_step", None) is not None:
            raise EnvError(
                f"{name}: all envs are stepped together; without `_step`: use break_when_any_done or neither"
            )
        step = self.vector_env.step({group: tensordict.get((group, "action")) for group in self.group_map})
        self._current = step
        self._started |= step.done
        self._n_episodes += step.done
        out = self._tensordict(step, step.done)
        for group, rows in step.groups.items():
            out.set((group, "reward"), rows.reward[..., None].clone())
        return out

    def _tensordict(self, step: Step, ended: Tensor | None) -> TensorDictBase:
        """The current observations; for the envs flagged in `ended` `[env]`, the final ones of their episodes."""
        tree: dict[str, Any] = {}
        flags = {name: torch.zeros_like(step.done) for name in FLAGS}
        for group in self.vector_env.spec.groups:
            tree[group.name] = self._group(group, step, ended)
        if ended is not None:
            truncated = torch.cat([rows.truncated for rows in step.groups.values()], 1).any(1) & ended
            flags = {"done": ended.clone(), "terminated": ended & ~truncated, "truncated": truncated}
        tree |= {name: value[:, None] for name, value in flags.items()}
        if step.state is not None:
            tree["state"] = step.state.clone()
            if ended is not None:
                assert step.final_state is not None
                tree["state"][ended] = step.final_state[ended]
        return TensorDict(tree, batch_size=self.batch_size, device=self.device)

    def _group(self, group: GroupSpec, step: Step, ended: Tensor | None) -> TensorDict:
        rows, was_ended = step.groups[group.name], self._ended[group.name]
        entries = {"observation": rows.observation.clone(), "alive": rows.alive.clone(), "acting": rows.acting.clone()}
        if rows.action_mask is not None:
            entries["action_mask"] = rows.action_mask.clone()
        terminated, truncated = was_ended.clone(), torch.zeros_like(was_ended)
        if ended is not None:
            over = rows.terminated | rows.truncated
            entries["observation"][ended] = 0
            entries["observation"][over] = rows.final_observation[over]
            entries["alive"][ended] = entries["acting"][ended] = False
            if rows.action_mask is not None:
                assert rows.final_action_mask is not None
                entries["action_mask"][ended] = True
                entries["action_mask"][rows.truncated] = rows.final_action_mask[rows.truncated]
            terminated, truncated = was_ended | rows.terminated[..., None], rows.truncated[..., None].clone()
            was_ended |= over[..., None]
        if rows.action_mask is not None:
            self.full_action_spec[group.name, "action"].update_mask(entries["action_mask"])
        flags = {"done": terminated | truncated, "terminated": terminated, "truncated": truncated}
        return TensorDict({**entries, **flags}, batch_size=(*self.batch_size, group.n_agents), device=self.device)

    def close(self, *, raise_if_closed: bool = True) -> None:
        if not self.is_closed:
            self.vector_env.close()
            super().close(raise_if_closed=raise_if_closed)


def _specs(spec: EnvSpec, n_envs: int, device: torch.device) -> tuple[Composite, Composite, Composite, Composite]:
    """Specs of observations, actions, rewards and dones, each nested by group."""
    observations: dict[str, Any] = {}
    actions: dict[str, Any] = {}
    rewards: dict[str, Any] = {}
    dones: dict[str, Any] = {name: _flag((n_envs, 1), device) for name in FLAGS}
    for group in spec.groups:
        rows = (n_envs, group.n_agents)

        def nested(parts: dict[str, Any], rows: tuple[int, int] = rows) -> Composite:
            return Composite(parts, shape=rows, device=device)

        dtype = getattr(torch, group.observation.dtype)
        parts = {name: _flag(rows, device) for name in ("alive", "acting")}
        parts["observation"] = Unbounded((*rows, *group.observation.shape), device=device, dtype=dtype)
        if group.has_action_mask:
            parts["action_mask"] = _flag((*rows, group.action.n_logits), device)
        observations[group.name] = nested(parts)
        actions[group.name] = nested({"action": _action(group, rows, device)})
        rewards[group.name] = nested({"reward": Unbounded((*rows, 1), device=device)})
        dones[group.name] = nested({name: _flag((*rows, 1), device) for name in FLAGS})
    if spec.state_shape is not None:
        observations["state"] = Unbounded((n_envs, *spec.state_shape), device=device)
    return tuple(Composite(part, shape=(n_envs,), device=device) for part in (observations, actions, rewards, dones))  # type: ignore[return-value]


def _flag(shape: tuple[int, ...], device: torch.device) -> Categorical:
    return Categorical(2, shape=torch.Size(shape), dtype=torch.bool, device=device)


def _action(group: GroupSpec, rows: tuple[int, int], device: torch.device) -> Any:
    action, shape = group.action, torch.Size((*rows, *group.action.shape))
    if action.kind == "continuous":
        bounds = [torch.tensor(bound, device=device).expand(shape) for bound in (action.low, action.high)]
        return Bounded(*bounds, shape=shape, dtype=torch.float32, device=device)
    if action.kind == "discrete":
        return Categorical(action.n[0], shape=shape, dtype=torch.int64, device=device)
    return MultiCategorical(list(action.n), shape=shape, dtype=torch.int64, device=device)
