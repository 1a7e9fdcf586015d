"""Reference policies for MPE and their returns, to compare learning curves with.

A policy here maps observations by group `[env, agent, feature]` to actions by group. `python -m
marlnb.envs.mpe.scripted` recomputes the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations

import torch
from torch import Tensor

from marlnb.envs.mpe.config import MPEConfig
from marlnb.envs.mpe.simple_speaker_listener import SimpleSpeakerListenerConfig
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.envs.vector import VectorEnv
from marlnb.specs import EnvSpec

ScriptedPolicy = Callable[[Mapping[str, Tensor], EnvSpec], dict[str, Tensor]]

LOOK_AHEAD_S = 0.2  # steer by the position that the current velocity reaches in this time; tuned by hand, as the next
FULL_FORCE_DISTANCE = 0.1  # full force beyond this distance from the goal

# mean return of one agent in one episode, over 20,000 episodes; standard errors are below 0.3
REFERENCE_RETURNS: dict[str, dict[str, float]] = {
    "simple_speaker_listener": {"random": -39.77, "no communication": -15.37, "scripted oracle": -7.46},
    "simple_speaker_listener continuous": {"random": -36.3, "no communication": -14.43, "scripted oracle": -5.86},
    "simple_spread": {"random": -26.4, "no-op": -24.14, "scripted oracle": -7.67},
    "simple_spread continuous": {"random": -25.16, "no-op": -24.14, "scripted oracle": -5.84},
    "simple_spread local_ratio=0": {"random": -51.97, "no-op": -48.11, "scripted oracle": -14.24},
    "simple_spread 100 steps": {"random": -135.03, "no-op": -96.63, "scripted oracle": -15.04},
}


def random_policy(generator: torch.Generator) -> ScriptedPolicy:
    """Uniform actions, drawn from `generator`."""

    def act(observation: Mapping[str, Tensor], spec: EnvSpec) -> dict[str, Tensor]:
        actions = {}
        for group in spec.groups:
            shape = (*observation[group.name].shape[:2], *group.action.shape)
            if group.action.kind == "continuous":
                actions[group.name] = torch.rand(shape, generator=generator)
            else:
                actions[group.name] = torch.randint(group.action.n[0], shape, generator=generator)
        return actions

    return act


def stay(observation: Mapping[str, Tensor], spec: EnvSpec) -> dict[str, Tensor]:
    """No force, and the first word."""
    actions = {}
    for group in spec.groups:
        dtype = torch.float32 if group.action.kind == "continuous" else torch.int64
        actions[group.name] = torch.zeros(*observation[group.name].shape[:2], *group.action.shape, dtype=dtype)
    return actions


def speaker_listener_oracle(observation: Mapping[str, Tensor], spec: EnvSpec) -> dict[str, Tensor]:
    """The speaker names the goal's colour; the listener goes to that landmark, and before any word to the middle."""
    listener = observation["listener"]
    landmarks, message = _landmarks(listener, spec, "listener"), listener[..., -3:]
    known = message.sum(-1, keepdim=True) > 0
    goal = torch.where(known, (landmarks * message[..., None]).sum(-2), landmarks.mean(-2))
    goal_color = observation["speaker"].argmax(-1)
    return {"speaker": _say(goal_color, spec, "speaker"), "listener": _go(listener, goal, spec, "listener")}


def speaker_listener_silent(observation: Mapping[str, Tensor], spec: EnvSpec) -> dict[str, Tensor]:
    """No communication: the listener goes to the middle of the three landmarks, its best choice without the goal."""
    listener = observation["listener"]
    middle = _landmarks(listener, spec, "listener").mean(-2)
    return {"speaker": stay(observation, spec)["speaker"], "listener": _go(listener, middle, spec, "listener")}


def spread_oracle(observation: Mapping[str, Tensor], spec: EnvSpec) -> dict[str, Tensor]:
    """Each agent goes to its own landmark, by the assignment with the smallest sum of distances."""
    agents = observation["agent"]
    landmarks = _landmarks(agents, spec, "agent")
    n = agents.shape[1]
    distance = landmarks.norm(dim=-1)
    choices = torch.tensor(list(permutations(range(n))))
    cost = distance[:, torch.arange(n), choices].sum(-1)
    assigned = choices[cost.argmin(1)]
    goal = landmarks.gather(2, assigned[:, :, None, None].expand(-1, -1, 1, 2))[:, :, 0]
    return {"agent": _go(agents, goal, spec, "agent")}


@torch.no_grad()
def returns(env: VectorEnv, policy: ScriptedPolicy, seed: int) -> dict[str, Tensor]:
    """One episode of every env: each group's return, the mean over its agents, `[env]` float64."""
    step = env.reset(seed)
    total = {name: torch.zeros(env.n_envs, dtype=torch.float64) for name in env.spec.group_names}
    for _ in range(env.spec.max_steps or 0):
        step = env.step(policy({name: group.observation for name, group in step.groups.items()}, env.spec))
        for name, group in step.groups.items():
            total[name] += group.reward.double().mean(1)
    return total


def references() -> dict[str, tuple[MPEConfig, dict[str, ScriptedPolicy]]]:
    """The rows of the table: name -> (environment, its reference policies)."""
    listener = {"no communication": speaker_listener_silent, "scripted oracle": speaker_listener_oracle}
    spread = {"no-op": stay, "scripted oracle": spread_oracle}

    def with_random(policies: Mapping[str, ScriptedPolicy]) -> dict[str, ScriptedPolicy]:
        return {"random": random_policy(torch.Generator().manual_seed(0)), **policies}

    return {
        "simple_speaker_listener": (SimpleSpeakerListenerConfig(), with_random(listener)),
        "simple_speaker_listener continuous": (
            SimpleSpeakerListenerConfig(continuous_actions=True),
            with_random(listener),
        ),
        "simple_spread": (SimpleSpreadConfig(), with_random(spread)),
        "simple_spread continuous": (SimpleSpreadConfig(continuous_actions=True), with_random(spread)),
        "simple_spread local_ratio=0": (SimpleSpreadConfig(local_ratio=0.0), with_random(spread)),
        "simple_spread 100 steps": (SimpleSpreadConfig(max_cycles=100), with_random(spread)),
    }


def _landmarks(observation: Tensor, spec: EnvSpec, group: str) -> Tensor:
    """Relative positions, `[env, agent, landmark, axis]`."""
    names = spec.group(group).observation.names
    columns = [i for i, name in enumerate(names) if name.startswith("landmark_")]
    return observation[..., columns].unflatten(-1, (-1, 2))


def _go(observation: Tensor, goal: Tensor, spec: EnvSpec, group: str) -> Tensor:
    """Moves towards `goal` `[env, agent, axis]`, which is relative to each agent, and brakes in time."""
    miss = goal - LOOK_AHEAD_S * observation[..., :2]
    if spec.group(group).action.kind == "continuous":
        push = (miss / FULL_FORCE_DISTANCE).clamp(-1, 1)
        none = torch.zeros_like(push[..., 0])
        x, y = push.unbind(-1)
        return torch.stack([none, (-x).clamp(0), x.clamp(0), (-y).clamp(0), y.clamp(0)], -1).float()
    axis = miss.abs().argmax(-1)
    along = miss.gather(-1, axis[..., None])[..., 0]
    return torch.where(along.abs() > FULL_FORCE_DISTANCE / 2, 1 + 2 * axis + (along > 0), torch.zeros_like(axis))


def _say(word: Tensor, spec: EnvSpec, group: str) -> Tensor:
    action = spec.group(group).action
    if action.kind == "continuous":
        return torch.nn.functional.one_hot(word, action.n_components).float()
    return word


def main(n_envs: int = 20_000, seed: int = 0) -> None:
    """Prints the table, each line with its standard error over `n_envs` episodes."""
    for name, (config, policies) in references().items():
        env = config.build(n_envs)
        for policy_name, policy in policies.items():
            total = torch.stack(list(returns(env, policy, seed).values())).mean(0)
            error = total.std() / n_envs**0.5
            print(f"{name:36s} {policy_name:18s} {total.mean():9.3f} ± {error:.3f}")


if __name__ == "__main__":
    main()
