"""Features of an observation in groups that mean something: one's own motion, landmarks, other agents, messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import numpy as np

from marlnb.errors import AnalysisError, unknown
from marlnb.specs import GroupSpec

Features = Literal["each", "auto"] | Mapping[str, str | Sequence[str]]
REST = "other features"


def feature_names(group: GroupSpec) -> tuple[str, ...]:
    """One name for each flattened feature: the environment's, or its position in the observation."""
    spec = group.observation
    if spec.names:
        return spec.names
    return tuple("observation[" + ",".join(map(str, index)) + "]" for index in np.ndindex(*spec.shape))


def matching(names: Sequence[str], patterns: str | Sequence[str]) -> list[int]:
    """Places of the names that match any of the globs; `[` stands for itself."""
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    escaped = [pattern.replace("[", "[[]") for pattern in wanted]
    return [k for k, name in enumerate(names) if any(fnmatchcase(name, pattern) for pattern in escaped)]


def group_features(names: Sequence[str], features: Features, *, strict: bool = True) -> dict[str, list[int]]:
    """Name of each group -> places of its features; all that no group names are in one of their own, `REST`.

    Args:
        features: each (no groups: every feature by itself), auto (by what the environment's names tell), or globs over
            feature names by the group's name, as `{"landmarks": ["landmark_*"]}`.
        strict: whether a glob that matches nothing is an error.
    Raises:
        AnalysisError: a glob that matches nothing, a feature in two groups, or names that tell nothing.
    """
    if features == "each":
        return {name: [k] for k, name in enumerate(names)}
    if isinstance(features, str):
        if features != "auto":
            raise AnalysisError(unknown("way to group features", features, ("each", "auto")) + ", or named globs")
        return _automatic(names)
    found: dict[str, list[int]] = {}
    taken: dict[int, str] = {}
    for group, patterns in features.items():
        places = matching(names, patterns)
        if not places and strict:
            raise AnalysisError(f"group {group!r}: {unknown('feature', str(patterns), names)}")
        for place in places:
            if place in taken:
                raise AnalysisError(f"feature {names[place]!r} is in two groups: {taken[place]!r} and {group!r}")
            taken[place] = group
        if places:
            found[group] = places
    rest = [k for k in range(len(names)) if k not in taken]
    return {**found, **({REST: rest} if rest else {})}


def _automatic(names: Sequence[str]) -> dict[str, list[int]]:
    """By the words in names as MPE's; rows of an observation with several axes."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(_kind(name), []).append(place)
    if set(found) <= {REST} or (list(found) == ["observation"] and len(names) > 1):
        raise AnalysisError(
            f"the names of these features tell of no groups ({', '.join(names[:4])}, ...); name them: "
            "features={'group': ['glob', ...]}"
        )
    return found


def _kind(name: str) -> str:
    if name.startswith("observation["):
        return f"{name.split(',')[0]},:]" if "," in name else "observation"
    if "message_" in name:
        return "communication"
    for start, kind in _KINDS.items():
        if name.startswith(start):
            return kind
    return "other agents" if name.rsplit("_", 1)[-1] in ("dx", "dy", "x", "y") else REST


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


def numbers(groups: Mapping[str, Sequence[int]], n_features: int) -> np.ndarray:
    """`[feature]`: the number of the group that each feature is in."""
    found = np.zeros(n_features, np.int64)
    for number, places in enumerate(groups.values()):
        found[list(places)] = number
    return found
