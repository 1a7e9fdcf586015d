"""Where the things that agents observe are in a picture, and which observed features speak of which of them.

MPE alone tells where its bodies are, and its features are named for them. Of other environments nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marlnb.envs.mpe.env import MPE
from marlnb.envs.mpe.scenario import MPEConfig
from marlnb.envs.vector import VectorEnv
from marlnb.recording.reader import Recording
from marlnb.widgets.microscope.episode_view import EpisodeView

Places = dict[str, tuple[float, float]]
"""By object's name, its centre as shares of the picture's width and height, from the top left."""
MARGIN = 0.45  # mpe2 puts the farthest body at this share of the width from the middle
OWN = ("velocity_x", "velocity_y", "position_x", "position_y")


def places_in(env: VectorEnv) -> Places | None:
    """Of copy 0 as it would be drawn now; None where the environment does not tell."""
    if not isinstance(env, MPE):
        return None
    positions = env.world.position[:, :, 0].double().cpu().numpy()  # [axis, entity]
    widest = float(np.abs(positions).max()) or 1.0
    x, y = 0.5 + MARGIN * positions[0] / widest, 0.5 - MARGIN * positions[1] / widest
    return {name: (float(a), float(b)) for name, a, b in zip(_bodies(env), x, y)}


def told_of(recording: Recording, agent: str, features: Sequence[str]) -> list[str | None]:
    """For each of an agent's features the object that it speaks of; None where that is no object of the picture."""
    experiment = recording.experiment
    if experiment is None or not isinstance(experiment.env, MPEConfig):
        return [None] * len(features)
    scenario = experiment.env.scenario()
    names = [body.name for body in scenario.agents]
    if agent not in names:  # regrouped under other names
        return [None] * len(features)
    me = names.index(agent)
    by_stem = {shown: names[other] for other, shown in scenario.others(me)}
    by_stem |= {body.name: body.name for body in scenario.landmarks}
    heard = [names[speaker] for speaker in scenario.speakers if speaker != me]
    return [_object(feature, agent, by_stem, heard) for feature in features]


def looker(view: EpisodeView) -> str:
    """The agent whose features speak of most things in the picture: whose attribution is drawn there at first."""
    counts = {
        agent: len({one for one in told_of(view.recording, agent, group.features) if one is not None})
        for group in view.groups
        for agent in group.agents
    }
    return max(counts, key=lambda agent: counts[agent])


def _object(feature: str, agent: str, by_stem: dict[str, str], heard: list[str]) -> str | None:
    if feature in OWN:
        return agent
    if feature.startswith("message_") and len(heard) == 1:
        return heard[0]
    stems = [stem for stem in by_stem if feature.startswith(f"{stem}_")]
    return by_stem[max(stems, key=len)] if stems else None


def _bodies(env: MPE) -> list[str]:
    return [body.name for body in (*env.scenario.agents, *env.scenario.landmarks)]
