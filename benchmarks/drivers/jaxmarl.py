"""JaxMARL's IPPO on simple_spread, several iterations per request; run by the Python of `make bench-peers-setup`.

The update is that of JaxMARL's baselines/IPPO/ippo_ff_mpe.py (Apache-2.0), line by line, with hidden layers of any
size and without distrax. One compiled call does the iterations of a request, as JaxMARL compiles a whole training run.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.drivers.on_gpu import ON_GPU
from benchmarks.drivers.pace import Pace
from benchmarks.drivers.settings import NATIVE, Native


class Transition(NamedTuple):
    """One step of every actor (an agent of an environment)."""

    done: Any
    action: Any
    value: Any
    reward: Any
    log_prob: Any
    obs: Any


def training(
    settings: Native, every: int, *, seed: int = 0, anneal_frames: int = 0
) -> tuple[Any, Callable[[Any], Any]]:
    """The initial state, and the compiled function that does `every` iterations.

    Args:
        settings: sizes and options.
        every: iterations of a call.
        seed: of weights, environments and actions.
        anneal_frames: over which the learning rate falls to 0; 0: it is constant.
    """
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import jaxmarl
    import numpy as np
    import optax
    from flax.linen.initializers import constant, orthogonal
    from flax.training.train_state import TrainState

    jax.config.update("jax_default_matmul_precision", "highest")  # float32 as torch's; by default a GPU takes TF32

    class ActorCritic(nn.Module):  # type: ignore[misc]
        n_actions: int

        @nn.compact
        def __call__(self, x: Any) -> Any:
            def head(units: int, scale: float) -> Any:
                y = x
                for width in settings.hidden:
                    y = nn.tanh(nn.Dense(width, kernel_init=orthogonal(np.sqrt(2)), bias_init=constant(0.0))(y))
                return nn.Dense(units, kernel_init=orthogonal(scale), bias_init=constant(0.0))(y)

            return jax.nn.log_softmax(head(self.n_actions, 0.01)), jnp.squeeze(head(1, 1.0), axis=-1)

    env = jaxmarl.make("MPE_simple_spread_v3")
    n_actors = env.num_agents * settings.n_envs
    network = ActorCritic(env.action_space(env.agents[0]).n)
    rng, init_rng, reset_rng = jax.random.split(jax.random.PRNGKey(seed), 3)
    params = network.init(init_rng, jnp.zeros(env.observation_space(env.agents[0]).shape))

    def annealed(count: Any) -> Any:
        update, n_updates = count // (settings.n_minibatches * settings.epochs), anneal_frames // settings.frames
        return settings.lr * (1.0 - update / n_updates)

    lr = annealed if anneal_frames else settings.lr
    tx = optax.chain(optax.clip_by_global_norm(settings.max_grad_norm), optax.adam(lr, eps=settings.adam_eps))
    train_state = TrainState.create(apply_fn=network.apply, params=params, tx=tx)
    obs, env_state = jax.vmap(env.reset)(jax.random.split(reset_rng, settings.n_envs))

    def log_prob_of(log_probs: Any, action: Any) -> Any:
        return jnp.take_along_axis(log_probs, action[:, None], axis=-1)[:, 0]

    def batchify(x: dict[str, Any]) -> Any:
        return jnp.stack([x[agent] for agent in env.agents]).reshape((n_actors, -1))

    def env_step(state: Any, _: Any) -> Any:
        train_state, env_state, last_obs, rng = state
        obs_batch = batchify(last_obs)
        rng, action_rng, step_rng = jax.random.split(rng, 3)
        log_probs, value = network.apply(train_state.params, obs_batch)
        action = jax.random.categorical(action_rng, log_probs)
        log_prob = log_prob_of(log_probs, action)
        by_agent = action.reshape((env.num_agents, settings.n_envs))
        env_act = {agent: by_agent[i] for i, agent in enumerate(env.agents)}
        step_rngs = jax.random.split(step_rng, settings.n_envs)
        obs, env_state, reward, done, _ = jax.vmap(env.step)(step_rngs, env_state, env_act)
        transition = Transition(
            batchify(done).squeeze(), action, value, batchify(reward).squeeze(), log_prob, obs_batch
        )
        return (train_state, env_state, obs, rng), transition

    def advantages(traj_batch: Transition, last_val: Any) -> Any:
        def step(carry: Any, transition: Transition) -> Any:
            gae, next_value = carry
            delta = transition.reward + settings.gamma * next_value * (1 - transition.done) - transition.value
            gae = delta + settings.gamma * settings.lmbda * (1 - transition.done) * gae
            return (gae, transition.value), gae

        _, values = jax.lax.scan(step, (jnp.zeros_like(last_val), last_val), traj_batch, reverse=True, unroll=8)
        return values, values + traj_batch.value

    def loss_fn(params: Any, traj_batch: Transition, gae: Any, targets: Any) -> Any:
        log_probs, value = network.apply(params, traj_batch.obs)
        log_prob = log_prob_of(log_probs, traj_batch.action)
        clip = settings.clip
        value_pred_clipped = traj_batch.value + (value - traj_batch.value).clip(-clip, clip)
        value_losses = jnp.maximum(jnp.square(value - targets), jnp.square(value_pred_clipped - targets))
        value_loss = 0.5 * value_losses.mean()
        ratio = jnp.exp(log_prob - traj_batch.log_prob)
        gae = (gae - gae.mean()) / (gae.std() + 1e-8)
        loss_actor = -jnp.minimum(ratio * gae, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * gae).mean()
        entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
        total = loss_actor + settings.critic_coefficient * value_loss - settings.entropy * entropy
        return total, (value_loss, loss_actor, entropy)

    def update_minibatch(train_state: Any, batch: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_fn, has_aux=True)(train_state.params, *batch)
        return train_state.apply_gradients(grads=grads), loss

    def update_epoch(state: Any, _: Any) -> Any:
        train_state, batch, rng = state
        rng, shuffle_rng = jax.random.split(rng)
        n_rows = settings.rollout_steps * n_actors
        permutation = jax.random.permutation(shuffle_rng, n_rows)
        flat = jax.tree.map(lambda x: x.reshape((n_rows,) + x.shape[2:]), batch)
        shuffled = jax.tree.map(lambda x: jnp.take(x, permutation, axis=0), flat)
        minibatches = jax.tree.map(lambda x: x.reshape((settings.n_minibatches, -1, *x.shape[1:])), shuffled)
        train_state, loss = jax.lax.scan(update_minibatch, train_state, minibatches)
        return (train_state, batch, rng), loss

    def update_step(state: Any, _: Any) -> Any:
        state, traj_batch = jax.lax.scan(env_step, state, None, settings.rollout_steps)
        train_state, env_state, last_obs, rng = state
        _, last_val = network.apply(train_state.params, batchify(last_obs))
        batch = (traj_batch, *advantages(traj_batch, last_val))
        state = (train_state, batch, rng)
        (train_state, _, rng), loss = jax.lax.scan(update_epoch, state, None, settings.epochs)
        return (train_state, env_state, last_obs, rng), (jax.tree.map(jnp.mean, loss), traj_batch.reward.mean())

    def iterations(state: Any) -> Any:
        return jax.lax.scan(update_step, state, None, every)

    return (train_state, env_state, obs, rng), jax.jit(iterations, donate_argnums=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=sorted({**NATIVE, **ON_GPU}))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="unused: XLA has a thread for every core it may use")
    parser.add_argument("--every", type=int, default=1, help="iterations of a request")
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", arguments.device)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or it takes three quarters of a GPU's memory
    settings = {**NATIVE, **ON_GPU}[arguments.task]
    pace = Pace(settings.frames * arguments.every, warmup=2)  # before any import that prints
    import jax

    state, iterations = training(settings, arguments.every)

    while True:
        state, metrics = iterations(state)
        jax.block_until_ready((state, metrics))
        pace.iteration_done()


if __name__ == "__main__":
    main()
