"""Defaults of an untuned experiment: they follow from what is known about the environment before it is built.

Where environments step in a batch (native ones, VMAS), stepping is nearly free and learning takes the time:
    n_envs = 256, fewer with many agents or long rollouts; rollout_steps = one short episode, of 16 steps or more,
    several shorter ones, or 64;
    four large minibatches and at most five epochs of a rollout; one off-policy update for 64 frames; larger learning
    rates.
Where they step in worker processes, a frame is expensive and is used more often:
    n_envs = 16, to share among the cores; rollout_steps = 128; minibatches, epochs and updates as the options say.
In both, the discount follows from the length of an episode T, if that is known: gamma = 1 - 2.5 / T in [0.9, 0.99].

Elsewhere, and for the options of a user's own algorithm class, the options' own defaults stay. Nothing depends on the
machine, so the same overrides give the same experiment everywhere.
"""

from __future__ import annotations

from typing import Any

from marlnb.config import AlgorithmConfig
from marlnb.specs import EnvFacts

MAX_ENVS, MIN_ENVS = 256, 16
WORKER_ENVS = 16
MAX_AGENT_STEPS = 2**16
"""Of all agents and environments between two updates: bounds the memory of a batched rollout."""
ASSUMED_AGENTS = 4
LONG_EPISODE = 128
"""Longer episodes are cut into rollouts."""
BATCHED_ROLLOUT, WORKER_ROLLOUT = 64, 128
MIN_ROLLOUT = 16
MIN_GAMMA, MAX_GAMMA = 0.9, 0.99
MIN_MINIBATCH_FRAMES = 400
BATCHED_EPOCHS = 5
FRAMES_PER_UPDATE = 64


def rollout_defaults(facts: EnvFacts) -> dict[str, int]:
    """n_envs and rollout_steps; empty where nothing is known about the environment's speed."""
    if facts.batched is None:
        return {}
    if not facts.batched:
        return {"n_envs": WORKER_ENVS, "rollout_steps": WORKER_ROLLOUT}
    steps = BATCHED_ROLLOUT
    if facts.max_steps is not None and facts.max_steps <= LONG_EPISODE:
        steps = facts.max_steps * -(-MIN_ROLLOUT // facts.max_steps)  # whole episodes
    n_envs = MAX_ENVS
    while n_envs > MIN_ENVS and n_envs * steps * (facts.n_agents or ASSUMED_AGENTS) > MAX_AGENT_STEPS:
        n_envs //= 2
    return {"n_envs": n_envs, "rollout_steps": steps}


def algorithm_defaults(kind: type[AlgorithmConfig], facts: EnvFacts, iteration_frames: int) -> dict[str, Any]:
    """Options of an algorithm; only those that marlnb's classes declare, so that a user's own class keeps its defaults.

    Args:
        kind: the algorithm.
        facts: about the environment.
        iteration_frames: frames of all environments between two updates.
    """
    defaults: dict[str, Any] = {}
    if facts.max_steps is not None and facts.batched is not None:
        defaults["gamma"] = round(min(MAX_GAMMA, max(MIN_GAMMA, 1 - 2.5 / facts.max_steps)), 3)
    if facts.batched and kind.on_policy:
        minibatch_frames = max(MIN_MINIBATCH_FRAMES, iteration_frames // 4)
        defaults |= {"lr": 1e-3, "minibatch_frames": minibatch_frames}
        if getattr(kind, "epochs", 1) > BATCHED_EPOCHS:  # A2C and torchrl's losses make one pass
            defaults["epochs"] = BATCHED_EPOCHS
    elif facts.batched:
        defaults |= {"lr": 1e-3, "tau": 0.02, "updates": max(1, iteration_frames // FRAMES_PER_UPDATE)}
    return {name: value for name, value in defaults.items() if kind.learns and _declared_by_marlnb(kind, name)}


def _declared_by_marlnb(kind: type[AlgorithmConfig], option: str) -> bool:
    """Whether the class that states the option's default is one of marlnb's."""
    owner = next((base for base in kind.__mro__ if option in vars(base)), None)  # a dataclass keeps defaults there
    return owner is not None and owner.__module__.partition(".")[0] == "marlnb"
