"""What an environment may offer so that attribution is drawn on the things in its picture: where they are, and which
observed features speak of which of them. MPE offers it; of an environment that does not, nothing is guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from marlnb.envs.mpe.env import MPE
from marlnb.envs.parallel import ParallelVectorEnv
from marlnb.envs.regroup import Regrouped
from marlnb.envs.vector import VectorEnv
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.mpe_objects import MPEObjects

Places = dict[str, tuple[float, float]]
"""By object's name, its centre as shares of the picture's width and height, from the top left."""
Spoken = Mapping[str, Mapping[str, str]]
"""By agent, the object of each feature that speaks of one, by the feature's name."""
BARS_ONLY = "attribution is shown as bars only"
NOT_TOLD = f"this environment does not say where things are in its pictures: {BARS_ONLY}"


@runtime_checkable
class TellsObjects(Protocol):
    """Two methods of a VectorEnv, which speaks of its copy 0, or of the user's own PettingZoo environment."""

    def object_places(self) -> Mapping[str, tuple[float, float]]:
        """Each object's centre in the picture as `render` would draw it now, as shares of its width and height, from
        the top left."""

    def object_of_features(self, agent: str) -> Sequence[str | None]:
        """For each of an agent's flattened features the object that it speaks of; None where that is none of them."""


class Objects:
    """The objects of a built environment.

    Attributes:
        problem: why they are not known, in words; empty where they are.
    """

    def __init__(self, env: VectorEnv) -> None:
        self._teller = teller_of(env)
        self.problem = "" if self._teller else NOT_TOLD

    def places(self) -> Places | None:
        """Where they are now; None where that is not known."""
        if self._teller is None:
            return None
        try:
            return {str(name): (float(x), float(y)) for name, (x, y) in self._teller.object_places().items()}
        except Exception as error:  # a method of the user's own may raise anything
            self._give_up("object_places()", error)
            return None

    def spoken_of(self, view: EpisodeView) -> Spoken | None:
        """Which features speak of which of them; None where that is not known."""
        if self._teller is None:
            return None
        found: dict[str, dict[str, str]] = {}
        for group in view.groups:
            for agent in group.agents:
                try:
                    told = list(self._teller.object_of_features(agent))
                    if len(told) != len(group.features):
                        raise ValueError(f"it names {len(told)} objects for {len(group.features)} features")
                except Exception as error:  # a method of the user's own may raise anything
                    self._give_up(f"object_of_features({agent!r})", error)
                    return None
                found[agent] = {feature: one for feature, one in zip(group.features, told) if one is not None}
        return found

    def _give_up(self, asked: str, error: Exception) -> None:
        self._teller = None
        self.problem = f"{asked} of this environment: {type(error).__name__}: {error}; {BARS_ONLY}"


def teller_of(env: VectorEnv) -> TellsObjects | None:
    """Whoever tells: the environment, or what it is made of."""
    while isinstance(env, Regrouped):
        env = env.env
    if isinstance(env, MPE):
        return MPEObjects(env)
    own: Any = env.environment(0) if isinstance(env, ParallelVectorEnv) else None
    for one in (env, own, getattr(own, "unwrapped", None), getattr(getattr(own, "env", None), "unwrapped", None)):
        if isinstance(one, TellsObjects):
            return one
    return None


def looker(spoken: Spoken) -> str:
    """The agent whose features speak of most things in the picture: whose attribution is drawn there at first."""
    return max(spoken, key=lambda agent: len(set(spoken[agent].values())), default="")
