"""Checks that what an environment gives is finite, and says who got a number that is not, when and in which episode.

The test is one sum of a whole tensor. Which number it is, is searched for only after that has failed.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from marlnb.algorithms.rollout import Rollout
from marlnb.errors import EnvError
from marlnb.specs import SEED_SPAN, EnvSpec

NOTHING_LEARNED = "Nothing was learned from it: the last checkpoint is complete"


def is_finite(values: Tensor) -> bool:
    """Whether all values are; of large ones the sum may be infinite, so that each is looked at."""
    if not values.is_floating_point() or math.isfinite(float(values.sum())):
        return True
    return bool(values.isfinite().all())


def check_step(spec: EnvSpec, group: str, what: str, values: Tensor, steps: Tensor, seeds: Tensor) -> None:
    """Checks one group's rewards or observations `[env, agent, ...]` of one step.

    Args:
        what: "reward" or "observation".
        steps: `[env]`, steps taken in each environment's episode.
        seeds: `[env]`, of these episodes.
    Raises:
        EnvError: names the agent, the number, the step and the seed.
    """
    if not is_finite(values):
        env_index, agent = (~values.isfinite()).nonzero()[0, :2].tolist()
        name, value = spec.group(group).agents[agent], _first_number(values[env_index, agent])
        raise _error(spec, f"{name!r} got {what}", value, env_index, int(steps[env_index]), int(seeds[env_index]))


def check_rollout(
    spec: EnvSpec, rollout: Rollout, read: Collection[str], steps_before: np.ndarray, seeds: Tensor
) -> None:
    """Checks the rewards of a rollout `[env, time]`, and the observations and the state that its networks read.

    Args:
        read: groups whose observations a network reads.
        steps_before: `[env]`, steps taken before the rollout in the episodes with which it begins.
        seeds: `[env]`, of the episodes with which it ends.
    Raises:
        EnvError: names the agent, the number, the step and the seed.
    """
    fields: list[tuple[str, ...]] = [("next", group, "reward") for group in spec.group_names]
    fields += [field for group in read for field in ((group, "observation"), ("next", group, "observation"))]
    fields += [("state",), ("next", "state")] if spec.state_shape is not None else []
    for field in fields:
        values: Tensor = rollout[field]
        if is_finite(values):
            continue
        env_index, t = (~values.isfinite()).nonzero()[0, :2].tolist()
        of_step = values[env_index, t]
        subject = f"the {field[-1]}"
        if field[-1] != "state":
            agent = int((~of_step.isfinite()).nonzero()[0, 0])
            of_step, subject = of_step[agent], f"{spec.group(field[-2]).agents[agent]!r} got {field[-1]}"
        done = rollout["next", "done"][env_index, :, 0].cpu().numpy()
        ends = np.flatnonzero(done[:t])
        taken = t - ends[-1] - 1 if len(ends) else t + steps_before[env_index]
        seed = int(seeds[env_index]) - int(done[t:].sum()) * len(steps_before)
        step = int(taken) + (field[0] == "next")
        error = _error(spec, subject, _first_number(of_step), env_index, step, seed % SEED_SPAN)
        raise EnvError(f"{error}. {NOTHING_LEARNED}")


def _error(spec: EnvSpec, subject: str, value: float, env_index: int, step: int, seed: int) -> EnvError:
    when = f"after step {step}" if step else "after the reset"
    return EnvError(
        f"{spec.name}: {subject} {value} in env {env_index} {when} of the episode with seed {seed}; "
        "expected a finite number"
    )


def _first_number(values: Tensor) -> float:
    """The first that is not finite."""
    return float(torch.masked_select(values, ~values.isfinite())[0])
