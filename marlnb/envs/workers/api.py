"""Checks that `reset` and `step` return what PettingZoo's parallel API requires."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Real
from typing import Any

from marlnb.errors import EnvError

StepResult = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]

_PARTS = ("observations", "rewards", "terminations", "truncations", "infos")
STEP = f"PettingZoo's API requires step to return ({', '.join(_PARTS)}), each a dict by agent"
RESET = "PettingZoo's API requires reset(seed=None, options=None) to return (observations, infos), each a dict by agent"


def check_reset(returned: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(observations, infos) that `reset` returned.

    Raises:
        EnvError: it returned something else.
    """
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise EnvError(f"reset returned {_summary(returned)}; {RESET}")
    observations, infos = returned
    for name, part in (("observations", observations), ("infos", {} if infos is None else infos)):
        if not isinstance(part, Mapping):
            raise EnvError(f"reset returned {_summary(part)} as {name}; {RESET}")
    return observations, infos or {}  # type: ignore[return-value]


def check_step(returned: Any) -> StepResult:
    """The five values that `step` returned; `find_violation` looks into them if something fails.

    Raises:
        EnvError: it did not return five values.
    """
    if not isinstance(returned, (tuple, list)) or len(returned) != 5:
        raise EnvError(f"step returned {_summary(returned)}; {STEP}")
    return returned  # type: ignore[return-value]


def find_violation(
    returned: StepResult, living: Collection[str], possible: Collection[str], *, needs_flags: bool = True
) -> str | None:
    """A message about how a step violates the API; None if it does not.

    Args:
        returned: what `step` returned.
        living: the agents that were alive before the step, each of which must get a reward.
        possible: all possible agents.
        needs_flags: each of the living must also get both flags.
    """
    for name, part in zip(_PARTS, returned):
        if not isinstance(part, Mapping):
            return f"step returned {_summary(part)} as {name}; {STEP}"
        if unknown := [agent for agent in part if name in ("observations", "rewards") and agent not in possible]:
            return f"{name} contain agent {unknown[0]!r}, which is not among possible_agents {sorted(possible)}"
    required = _PARTS[1 : 4 if needs_flags else 2]
    for agent in living:
        for name, part in zip(required, returned[1:]):
            if agent not in part:
                if name != "rewards" and agent not in returned[0]:
                    return no_observation(agent)
                hint = "; '__all__' is RLlib's, and not read" if "__all__" in part else ""
                return f"{name} lack agent {agent!r}; got {list(part)}{hint}. {STEP}, with every agent that acted"
        if not _is_number(returned[1][agent]):
            return f"the reward of agent {agent!r} is {returned[1][agent]!r}; expected a number"
    return None


def no_observation(agent: str) -> str:
    return (
        f"agent {agent!r} is in env.agents but has no observation; if agents act at different rates, "
        "set agents_wait=True, and missing agents wait"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or getattr(value, "shape", None) == ()


def _summary(value: Any) -> str:
    """A short description of a value: `4 values (dict, dict, dict, dict)`, `a dict of ['a_0']`, `None`."""
    if isinstance(value, tuple | list):
        return f"{len(value)} values ({', '.join(type(item).__name__ for item in value)})"
    if isinstance(value, Mapping):
        return f"a dict of {list(value)[:10]}"
    return "None" if value is None else f"a {type(value).__name__}"
