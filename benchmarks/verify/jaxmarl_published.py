"""One training run of JaxMARL's IPPO on simple_spread with its published settings, for some CPU-seconds, then scored.

    .peers/jaxmarl/bin/python -m benchmarks.verify.jaxmarl_published simple_spread ippo SEED FILE --seconds S

`at_equal_time` runs it, from the repository's root. The settings are those of JaxMARL's
baselines/IPPO/config/ippo_ff_mpe.yaml: 16 environments of 128 steps, learning rate 2.5e-4 that falls to 0 over 10 M
frames, where the training ends even if there is time left. Compiling does not count. FILE gets the score of random
actions, the score without exploration and the frames.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from benchmarks.drivers.jaxmarl import training
from benchmarks.drivers.pace import cpu_seconds
from benchmarks.drivers.settings import Native

PUBLISHED = Native(n_envs=16, rollout_steps=128, minibatch_frames=512)
ANNEAL_FRAMES = 10_000_000
EVERY = 5  # iterations of a call
EPISODE_STEPS = 25


def mean_return(train_state: Any, episodes: int) -> float:
    """Of one agent over some episodes, without exploration; train_state None: of random actions."""
    import jax
    import jax.numpy as jnp
    import jaxmarl

    env = jaxmarl.make("MPE_simple_spread_v3")
    obs, state = jax.vmap(env.reset)(jax.random.split(jax.random.PRNGKey(500_000), episodes))

    def step(carry: Any, key: Any) -> Any:
        obs, state = carry
        stacked = jnp.stack([obs[agent] for agent in env.agents])
        if train_state is None:
            action = jax.random.randint(key, stacked.shape[:2], 0, env.action_space(env.agents[0]).n)
        else:
            action = train_state.apply_fn(train_state.params, stacked)[0].argmax(-1)
        actions = {agent: action[i] for i, agent in enumerate(env.agents)}
        obs, state, reward, _, _ = jax.vmap(env.step)(jax.random.split(key, episodes), state, actions)
        return (obs, state), jnp.stack([reward[agent] for agent in env.agents])

    _, rewards = jax.lax.scan(step, (obs, state), jax.random.split(jax.random.PRNGKey(1), EPISODE_STEPS))
    return float(rewards.sum(0).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["simple_spread"])
    parser.add_argument("algorithm", choices=["ippo"])
    parser.add_argument("seed", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--episodes", type=int, default=100)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # XLA has a thread for every core
    import jax

    state, iterations = training(PUBLISHED, EVERY, seed=arguments.seed, anneal_frames=ANNEAL_FRAMES)
    state, _ = iterations(state)  # compiles
    frames, start_s = EVERY * PUBLISHED.frames, cpu_seconds()
    while cpu_seconds() - start_s < arguments.seconds and frames < ANNEAL_FRAMES:  # the rate would be negative later
        state, metrics = iterations(state)
        jax.block_until_ready((state, metrics))
        frames += EVERY * PUBLISHED.frames
    row = {"random": mean_return(None, arguments.episodes), "score": mean_return(state[0], arguments.episodes)}
    arguments.file.write_text(json.dumps({**row, "frames": frames}) + "\n")


if __name__ == "__main__":
    main()
