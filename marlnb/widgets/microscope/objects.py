"""Objects in an environment's pictures: their positions, and the observed features that describe each of them.

With them, attribution can be drawn onto the picture. MPE supplies them, and any environment can. Of an environment that
does not, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from marlnb.envs.mpe.rules import MPERules
from marlnb.envs.mpe.scenario import Scenario
from marlnb.envs.parallel import ParallelVectorEnv
from marlnb.envs.regroup import Regrouped
from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv
from marlnb.envs.vector import VectorEnv
from marlnb.widgets.microscope.episode_view import EpisodeView

Positions = dict[str, tuple[float, float]]
"""By name, the centre of an object as shares of the picture's width and height, from the top left."""
FeatureObjects = Mapping[str, Mapping[str, str]]
"""By agent and name of a feature, the object that the feature describes."""
BARS_ONLY = "attribution is shown as bars only"
NOT_SUPPLIED = f"this environment does not supply the positions of objects in its pictures: {BARS_ONLY}"
MPE_MARGIN = 0.45  # mpe2 draws the farthest body at this share of the width from the middle
MPE_SELF_FEATURES = ("velocity_x", "velocity_y", "position_x", "position_y")


@runtime_checkable
class ObjectAware(Protocol):
    """Two methods of a VectorEnv, about its env 0, or of a PettingZoo environment of the user."""

    def object_positions(self) -> Mapping[str, tuple[float, float]]:
        """The centre of each object in the picture that `render` would draw now.

        Returns:
            By name, shares of the picture's width and height, from the top left.
        """

    def feature_objects(self, agent: str) -> Sequence[str | None]:
        """For each flattened feature of an agent, the object that it describes; None if it describes none."""


class ObjectFinder:
    """The objects of a built environment.

    Attributes:
        problem: why they are not known; empty if they are.
    """

    def __init__(self, env: VectorEnv) -> None:
        self._supplier = object_supplier(env)
        self.problem = "" if self._supplier else NOT_SUPPLIED

    def positions(self) -> Positions | None:
        """The current positions; None if they are not known."""
        if self._supplier is None:
            return None
        try:
            return {str(name): (float(x), float(y)) for name, (x, y) in self._supplier.object_positions().items()}
        except Exception as error:  # a method of the user may raise anything
            self._give_up("object_positions()", error)
            return None

    def feature_objects(self, view: EpisodeView) -> FeatureObjects | None:
        """The objects that features describe; None if they are not known."""
        if self._supplier is None:
            return None
        by_agent: dict[str, dict[str, str]] = {}
        for group in view.groups:
            for agent in group.agents:
                try:
                    names = list(self._supplier.feature_objects(agent))
                    if len(names) != len(group.features):
                        raise ValueError(f"got {len(names)} objects for {len(group.features)} features")
                except Exception as error:  # a method of the user may raise anything
                    self._give_up(f"feature_objects({agent!r})", error)
                    return None
                by_agent[agent] = {feature: name for feature, name in zip(group.features, names) if name is not None}
        return by_agent

    def _give_up(self, call: str, error: Exception) -> None:
        self._supplier = None
        self.problem = f"{call} of this environment: {type(error).__name__}: {error}; {BARS_ONLY}"


def object_supplier(env: VectorEnv) -> ObjectAware | None:
    """The environment, or the one that it wraps, if it has the methods of ObjectAware."""
    while isinstance(env, Regrouped):
        env = env.env
    if isinstance(env, TensorVectorEnv) and isinstance(env.rules, MPERules):
        return MPEObjects(env, env.rules)
    wrapped: Any = env.environment(0) if isinstance(env, ParallelVectorEnv) else None
    unwrapped = (getattr(wrapped, "unwrapped", None), getattr(getattr(wrapped, "env", None), "unwrapped", None))
    for candidate in (env, wrapped, *unwrapped):
        if isinstance(candidate, ObjectAware):
            return candidate
    return None


def main_observer(feature_objects: FeatureObjects) -> str:
    """The agent whose features describe most objects: its attribution is drawn onto the picture at first."""
    return max(feature_objects, key=lambda agent: len(set(feature_objects[agent].values())), default="")


class MPEObjects:
    """The bodies of MPE's env 0, as ObjectAware."""

    def __init__(self, env: TensorVectorEnv, rules: MPERules) -> None:
        self._env, self._rules = env, rules
        self._names = [body.name for body in (*rules.scenario.agents, *rules.scenario.landmarks)]

    def object_positions(self) -> dict[str, tuple[float, float]]:
        positions = self._rules.world(self._env.state).position[:, :, 0].double().cpu().numpy()  # [axis, entity]
        farthest = float(np.abs(positions).max()) or 1.0
        x, y = 0.5 + MPE_MARGIN * positions[0] / farthest, 0.5 - MPE_MARGIN * positions[1] / farthest
        return {name: (float(a), float(b)) for name, a, b in zip(self._names, x, y)}

    def feature_objects(self, agent: str) -> list[str | None]:
        group = self._env.spec.group_of(agent)
        return bodies_of(self._rules.scenario, agent, group.observation.names)


def bodies_of(scenario: Scenario, agent: str, features: Sequence[str]) -> list[str | None]:
    """For each of an agent's features, the body in its name."""
    names = [body.name for body in scenario.agents]
    index = names.index(agent)
    by_stem = {stem: names[other] for other, stem in scenario.others(index)}
    by_stem |= {body.name: body.name for body in scenario.landmarks}
    speakers = [names[speaker] for speaker in scenario.speakers if speaker != index]
    return [_body(feature, agent, by_stem, speakers) for feature in features]


def _body(feature: str, agent: str, by_stem: dict[str, str], speakers: list[str]) -> str | None:
    if feature in MPE_SELF_FEATURES:
        return agent
    if feature.startswith("message_") and len(speakers) == 1:
        return speakers[0]
    stems = [stem for stem in by_stem if feature.startswith(f"{stem}_")]
    return by_stem[max(stems, key=len)] if stems else None
