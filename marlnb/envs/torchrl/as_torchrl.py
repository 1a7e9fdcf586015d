"""Any VectorEnv as a torchrl EnvBase, so that torchrl's collectors, transforms and losses work on it.

A VectorEnv starts the next episode by itself, torchrl asks for it: here the end of an episode is told with what was
seen last in `next`, and the next one's beginning, made already, is handed over at the reset that follows.
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

    Closing it closes `env`. Copies cannot be reset while their episodes go on, except all at once.
    """
    return AsTorchrl(env)


class AsTorchrl(EnvBase):  # type: ignore[misc]
    """A VectorEnv as torchrl sees it; see as_torchrl."""

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(device=env.device, batch_size=torch.Size((env.n_envs,)))
        self.vector_env = env
        self.group_map = {group.name: list(group.agents) for group in env.spec.groups}
        self.agent_names = list(env.spec.agents)
        self.observation_spec, self.action_spec, self.reward_spec, self.done_spec = _specs(
            env.spec, env.n_envs, env.device
        )
        self._now: Step | None = None
        self._begun = torch.zeros(env.n_envs, dtype=torch.bool, device=env.device)  # anew, and not yet handed over
        self._gone = {g.name: torch.zeros(env.n_envs, g.n_agents, 1, dtype=torch.bool) for g in env.spec.groups}
        self._gone = {name: flags.to(env.device) for name, flags in self._gone.items()}
        self._seed, self._rounds = 0, torch.zeros(env.n_envs, dtype=torch.int64, device=env.device)
        self.set_seed(int(torch.randint(SEED_SPAN, ())))

    def _set_seed(self, seed: int | None) -> None:
        if seed is not None:
            self._seed, self._now = int(seed) % SEED_SPAN, None
            self._rounds.zero_()

    def _reset(self, tensordict: TensorDictBase | None = None, **options: Any) -> TensorDictBase:
        """The beginnings of the copies flagged in `_reset` `[env, 1]`, or of all.

        Raises:
            EnvError: some of these are in the middle of their episodes, and others are not to be reset.
        """
        asked = None if tensordict is None else tensordict.get("_reset", None)
        copies = torch.ones_like(self._begun) if asked is None else asked.reshape(-1)
        if self._now is None or (copies.all() and not self._begun.all()):
            self._restart()
        elif (copies & ~self._begun).any():
            running = (copies & ~self._begun).nonzero().flatten().tolist()
            raise EnvError(
                f"{self.vector_env.spec.name}: copies {running} are in the middle of their episodes; those that have "
                f"ended can be reset, or all {self.vector_env.n_envs} at once"
            )
        self._begun &= ~copies
        for flags in self._gone.values():
            flags.masked_fill_(copies[:, None, None], False)
        assert self._now is not None
        return self._moment(self._now, None)

    def _restart(self) -> None:
        """All copies anew: under the seed set last, or under seeds that no episode has had since."""
        self._seed = (self._seed + int(self._rounds.max()) * self.vector_env.n_envs) % SEED_SPAN
        self._now = self.vector_env.reset(self._seed)
        self._rounds.fill_(1)
        self._begun.fill_(True)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self._begun.any() or self._now is None:
            copies = self._begun.nonzero().flatten().tolist()
            raise EnvError(f"{self.vector_env.spec.name}: reset copies {copies} first: their episodes have ended")
        name = self.vector_env.spec.name
        if tensordict.get("_step", None) is not None:
            raise EnvError(f"{name}: all copies are stepped at once; use break_when_any_done or neither")
        step = self.vector_env.step({group: tensordict.get((group, "action")) for group in self.group_map})
        self._now = step
        self._begun |= step.done
        self._rounds += step.done
        out = self._moment(step, step.done)
        for group, rows in step.groups.items():
            out.set((group, "reward"), rows.reward[..., None].clone())
        return out

    def _moment(self, step: Step, ended: Tensor | None) -> TensorDictBase:
        """What is seen now; of the copies flagged `[env]` what was seen when their episodes ended."""
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
        rows, gone = step.groups[group.name], self._gone[group.name]
        found = {"observation": rows.observation.clone(), "alive": rows.alive.clone(), "acting": rows.acting.clone()}
        if rows.action_mask is not None:
            found["action_mask"] = rows.action_mask.clone()
        terminated, truncated = gone.clone(), torch.zeros_like(gone)
        if ended is not None:
            over = rows.terminated | rows.truncated
            found["observation"][ended] = 0
            found["observation"][over] = rows.final_observation[over]
            found["alive"][ended] = found["acting"][ended] = False
            if rows.action_mask is not None:
                found["action_mask"][ended] = True
            terminated, truncated = gone | rows.terminated[..., None], rows.truncated[..., None].clone()
            gone |= over[..., None]
        if rows.action_mask is not None:
            self.full_action_spec[group.name, "action"].update_mask(found["action_mask"])
        flags = {"done": terminated | truncated, "terminated": terminated, "truncated": truncated}
        return TensorDict({**found, **flags}, batch_size=(*self.batch_size, group.n_agents), device=self.device)

    def close(self, *, raise_if_closed: bool = True) -> None:
        if not self.is_closed:
            self.vector_env.close()
            super().close(raise_if_closed=raise_if_closed)


def _specs(spec: EnvSpec, n_envs: int, device: torch.device) -> tuple[Composite, Composite, Composite, Composite]:
    """Specs of observations, actions, rewards and dones, each nested by group."""
    seen: dict[str, Any] = {}
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
        seen[group.name] = nested(parts)
        actions[group.name] = nested({"action": _action(group, rows, device)})
        rewards[group.name] = nested({"reward": Unbounded((*rows, 1), device=device)})
        dones[group.name] = nested({name: _flag((*rows, 1), device) for name in FLAGS})
    if spec.state_shape is not None:
        seen["state"] = Unbounded((n_envs, *spec.state_shape), device=device)
    return tuple(Composite(part, shape=(n_envs,), device=device) for part in (seen, actions, rewards, dones))  # type: ignore[return-value]


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
