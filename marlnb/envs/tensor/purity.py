"""Whether the functions of a game leave their arguments as they are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from marlnb.envs.steps import random_actions
from marlnb.envs.tensor.philox import Draws
from marlnb.envs.tensor.rules import TIME
from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv
from marlnb.errors import EnvError


@torch.no_grad()
def check_purity(env: TensorVectorEnv, *, seed: int = 0) -> None:
    """Raises EnvError if `observe`, `terminated` or `step` write to the state or the actions that they get."""
    step = env.reset(seed)
    actions = random_actions(env, step, torch.Generator().manual_seed(seed))
    state = {name: value.clone() for name, value in env.state.items()}
    draw = Draws(step.episode_seed, state[TIME] + 1)
    calls = {
        "observe": lambda: env.rules.observe(state),
        "terminated": lambda: env.rules.terminated(state),
        "step": lambda: env.rules.step(state, actions, draw),
    }
    for function, call in calls.items():
        before = _cloned({**state, **{f"action of {name}": value for name, value in actions.items()}})
        call()
        after = {**state, **{f"action of {name}": value for name, value in actions.items()}}
        for name, value in before.items():
            if name not in after or not torch.equal(after[name], value):
                raise EnvError(
                    f"{env.spec.name}: {function} writes to its argument {name!r}; return a new tensor, as x + y "
                    "instead of x += y or x.add_(y)"
                )


def _cloned(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in values.items()}
