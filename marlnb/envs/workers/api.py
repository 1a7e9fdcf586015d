"""What PettingZoo's parallel API asks `reset` and `step` to return, and where an environment has broken it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Real
from typing import Any

from marlnb.errors import EnvError

StepResult = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]

_PARTS = ("observations", "rewards", "terminations", "truncations", "infos")
STEP = f"PettingZoo's API asks step for ({', '.join(_PARTS)}), each a dict by agent"
RESET = "PettingZoo's API asks reset(seed=None, options=None) for (observations, infos), each a dict by agent"


def check_reset(returned: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `reset` returned, taken apart.

    Raises:
        EnvError: it is not what the API asks for.
    """
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise EnvError(f"reset returned {_told(returned)}; {RESET}")
    observations, infos = returned
    for name, part in (("observations", observations), ("infos", {} if infos is None else infos)):
        if not isinstance(part, Mapping):
            raise EnvError(f"reset returned {_told(part)} as {name}; {RESET}")
    return observations, infos or {}  # type: ignore[return-value]


def check_step(returned: Any) -> StepResult:
    """What `step` returned, if it has five parts; `breach` looks into them when something went wrong.

    Raises:
        EnvError: it has not.
    """
    if not isinstance(returned, (tuple, list)) or len(returned) != 5:
        raise EnvError(f"step returned {_told(returned)}; {STEP}")
    return returned  # type: ignore[return-value]


def find_violation(returned: StepResult, lived: Collection[str], possible: Collection[str]) -> str | None:
    """How a step broke the API: in words, None where it did not.

    Args:
        lived: who was there before the step, and so is given a reward.
        possible: all the agents that there can be.
    """
    for name, part in zip(_PARTS, returned):
        if not isinstance(part, Mapping):
            return f"step returned {_told(part)} as {name}; {STEP}"
        if stranger := [agent for agent in part if name in ("observations", "rewards") and agent not in possible]:
            return f"{name} are given to {stranger[0]!r}, which is not among possible_agents {sorted(possible)}"
    rewards = returned[1]
    for agent in lived:
        if agent not in rewards:
            return f"rewards lack agent {agent!r}: got those of {list(rewards)}. {STEP}: every agent that acted"
        if not _is_number(rewards[agent]):
            return f"the reward of agent {agent!r} is {rewards[agent]!r}; a number is needed"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or getattr(value, "shape", None) == ()


def _told(value: Any) -> str:
    """A value in few words: `4 values (dict, dict, dict, dict)`, `a dict of ['a_0']`, `None`."""
    if isinstance(value, tuple | list):
        return f"{len(value)} values ({', '.join(type(item).__name__ for item in value)})"
    if isinstance(value, Mapping):
        return f"a dict of {list(value)[:10]}"
    return "None" if value is None else f"a {type(value).__name__}"
