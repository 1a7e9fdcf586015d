"""MPE's bodies: where its picture has them, and the features that are named for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marlnb.envs.mpe.env import MPE
from marlnb.envs.mpe.scenario import Scenario

MARGIN = 0.45  # mpe2 puts the farthest body at this share of the width from the middle
OWN = ("velocity_x", "velocity_y", "position_x", "position_y")


class MPEObjects:
    """Tells of copy 0, as `objects.TellsObjects` says."""

    def __init__(self, env: MPE) -> None:
        self._env = env
        self._names = [body.name for body in (*env.scenario.agents, *env.scenario.landmarks)]

    def object_places(self) -> dict[str, tuple[float, float]]:
        positions = self._env.world.position[:, :, 0].double().cpu().numpy()  # [axis, entity]
        widest = float(np.abs(positions).max()) or 1.0
        x, y = 0.5 + MARGIN * positions[0] / widest, 0.5 - MARGIN * positions[1] / widest
        return {name: (float(a), float(b)) for name, a, b in zip(self._names, x, y)}

    def object_of_features(self, agent: str) -> list[str | None]:
        group = next(group for group in self._env.spec.groups if agent in group.agents)
        return bodies_of(self._env.scenario, agent, group.observation.names)


def bodies_of(scenario: Scenario, agent: str, features: Sequence[str]) -> list[str | None]:
    """For each of an agent's features the body that it is named for."""
    names = [body.name for body in scenario.agents]
    me = names.index(agent)
    by_stem = {shown: names[other] for other, shown in scenario.others(me)}
    by_stem |= {body.name: body.name for body in scenario.landmarks}
    heard = [names[speaker] for speaker in scenario.speakers if speaker != me]
    return [_body(feature, agent, by_stem, heard) for feature in features]


def _body(feature: str, agent: str, by_stem: dict[str, str], heard: list[str]) -> str | None:
    if feature in OWN:
        return agent
    if feature.startswith("message_") and len(heard) == 1:
        return heard[0]
    stems = [stem for stem in by_stem if feature.startswith(f"{stem}_")]
    return by_stem[max(stems, key=len)] if stems else None
