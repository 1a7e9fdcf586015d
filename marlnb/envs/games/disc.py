"""The disc game: a game of directions whose cycles, ratings and hidden variable are known exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from marlnb.config import ENVIRONMENTS, EnvConfig, option
from marlnb.envs.games.config import numbered
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, LabelSpec, ObservationSpec

if TYPE_CHECKING:
    from marlnb.envs.games.game import Game

FEATURES = ("cos_first", "sin_first", "cos_second", "sin_second")


@ENVIRONMENTS.register("game/disc")
@dataclass(frozen=True)
class DiscConfig(EnvConfig):
    """One step: both players choose a direction. Clockwise neighbours lose, and a hidden angle says what is strong."""

    directions: int = option(8, help="choices, evenly spaced on the circle", unit="choices", ge=3, le=360)
    strength: float = option(
        0.5, help="weight of the transitive part; 0: the disc game of the literature, in which Elo says nothing", ge=0
    )

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        from marlnb.envs.games.disc_rules import Disc

        group = GroupSpec(
            "player",
            numbered("player", 2),
            ObservationSpec((len(FEATURES),), names=FEATURES),
            ActionSpec("discrete", (self.directions,)),
        )
        labels = (LabelSpec("hidden_cos"), LabelSpec("hidden_sin"))
        spec = EnvSpec(self.name, (group,), max_steps=1, labels=labels)
        return Disc(self, spec, n_envs, device, directions=self.directions, strength=self.strength)
