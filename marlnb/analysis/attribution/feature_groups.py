"""Groups of an observation's features with a meaning: own motion, landmarks, other agents, messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import numpy as np

from marlnb.errors import AnalysisError, unknown
from marlnb.specs import GroupSpec

Features = Literal["each", "auto"] | Mapping[str, str | tuple[str, ...]]
OTHER_FEATURES = "other features"


def feature_names(group: GroupSpec) -> tuple[str, ...]:
    """One name for each flattened feature: the environment's, or its position in the observation."""
    spec = group.observation
    if spec.names:
        return spec.names
    return tuple("observation[" + ",".join(map(str, index)) + "]" for index in np.ndindex(*spec.shape))


def matching(names: Sequence[str], patterns: str | Sequence[str]) -> list[int]:
    """Indices of the names that match any of the globs; `[` matches itself."""
    globs = [patterns] if isinstance(patterns, str) else list(patterns)
    escaped = [pattern.replace("[", "[[]") for pattern in globs]
    return [k for k, name in enumerate(names) if any(fnmatchcase(name, pattern) for pattern in escaped)]


def group_features(names: Sequence[str], features: Features) -> dict[str, list[int]]:
    """By group, the indices of its features; features of no group form the group `OTHER_FEATURES`.

    Args:
        features: each (every feature by itself), auto (groups that the environment's names tell), or globs over
            feature names by group, such as `{"landmarks": ["landmark_*"]}`.
    Raises:
        AnalysisError: a feature in two groups, or names that tell no groups.
    """
    if features == "each":
        return {name: [k] for k, name in enumerate(names)}
    if isinstance(features, str):
        if features != "auto":
            raise AnalysisError(unknown("way to group features", features, ("each", "auto")) + ", or named globs")
        return _automatic(names)
    groups: dict[str, list[int]] = {}
    group_of: dict[int, str] = {}
    for group, patterns in features.items():
        indices = matching(names, patterns)
        for index in indices:
            if index in group_of:
                raise AnalysisError(f"feature {names[index]!r} is in two groups: {group_of[index]!r} and {group!r}")
            group_of[index] = group
        if indices:
            groups[group] = indices
    others = [k for k in range(len(names)) if k not in group_of]
    return {**groups, **({OTHER_FEATURES: others} if others else {})}


def _automatic(names: Sequence[str]) -> dict[str, list[int]]:
    """Groups by the words in names such as MPE's; by rows for an observation with several axes."""
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        groups.setdefault(_kind(name), []).append(index)
    if set(groups) <= {OTHER_FEATURES} or (list(groups) == ["observation"] and len(names) > 1):
        raise AnalysisError(
            f"features='auto' finds no groups in these names: {', '.join(names[:4])}, ...; name the groups, "
            "features={'group': ['glob', ...]}"
        )
    return groups


def _kind(name: str) -> str:
    if name.startswith("observation["):
        return f"{name.split(',')[0]},:]" if "," in name else "observation"
    if "message_" in name:
        return "message"
    for start, kind in _KINDS.items():
        if name.startswith(start):
            return kind
    return "other agents" if name.rsplit("_", 1)[-1] in ("dx", "dy", "x", "y") else OTHER_FEATURES


_KINDS = {
    "velocity_": "own velocity",
    "position_": "own position",
    "landmark_": "landmarks",
    "food_": "food",
    "forest_": "forests",
    "in_forest_": "forests",
    "goal_": "goal",
    "partner_goal_": "goal",
    "key_": "key",
}


def group_numbers(groups: Mapping[str, Sequence[int]], n_features: int) -> np.ndarray:
    """`[feature]`: the number of each feature's group."""
    numbers = np.zeros(n_features, np.int64)
    for number, indices in enumerate(groups.values()):
        numbers[list(indices)] = number
    return numbers
