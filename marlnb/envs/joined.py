"""The states of several training runs' environments joined to those of one larger batch, and split again.

Part k of n environments has the rows k n to (k + 1) n - 1 of the batch. Its episodes are those that it would have by
itself: the seed of environment b's next episode is larger by n (`VectorEnv.episode_stride`), not by the batch's size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import EnvBuildError

SEED = "seed"  # in a state: of `VectorEnv.reset`, or one for each environment


def load_joined(env: VectorEnv, states: Sequence[Mapping[str, Tensor]], n_envs: int) -> Step:
    """Restores the states of several parts of `n_envs` environments in one batch.

    Args:
        env: of `len(states) * n_envs` environments.
        states: of `VectorEnv.state_dict`, one for each part.
        n_envs: environments of a part.
    Raises:
        EnvBuildError: states of this environment cannot be joined.
    """
    axis = check_joinable(env)
    env.episode_stride = n_envs
    joined = {name: torch.cat([state[name] for state in states], axis) for name in states[0] if name != SEED}
    # the batch adds the row's number to the seed, and part k starts at row k n
    seeds = [state[SEED].expand(n_envs) - part * n_envs for part, state in enumerate(states)]
    return env.load_state_dict({**joined, SEED: torch.cat(seeds)})


def split_state(env: VectorEnv, n_envs: int) -> list[dict[str, Tensor]]:
    """The states of the parts of a batch that `load_joined` restored, each as of its own `n_envs` environments."""
    axis, state = check_joinable(env), env.state_dict()
    assert state is not None
    parts: list[dict[str, Tensor]] = []
    for part in range(env.n_envs // n_envs):
        start = part * n_envs
        rows = {name: x.narrow(axis, start, n_envs).clone() for name, x in state.items() if name != SEED}
        seeds = state[SEED][start : start + n_envs] + start
        parts.append({**rows, SEED: seeds[0].clone() if bool((seeds == seeds[0]).all()) else seeds})
    return parts


def check_joinable(env: VectorEnv) -> int:
    """The axis of environments in its states. Raises EnvBuildError: its states cannot be joined."""
    if env.state_axis is None:
        raise EnvBuildError(
            f"environments of several runs are not joined to one batch for {env.spec.name}; they are for mpe/..., "
            "tag/..., games such as matrix/climbing, and your own TensorEnv"
        )
    return env.state_axis
