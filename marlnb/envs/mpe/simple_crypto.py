"""Alice sends Bob a secret, encrypted with a key that both observe; Eve hears every word and must not decode it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ENVIRONMENTS
from marlnb.envs.mpe.config import MPEConfig
from marlnb.envs.mpe.layout import Body, Feature, Layout
from marlnb.envs.mpe.scenario import Scenario, block
from marlnb.specs import LabelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World

EVE, BOB, ALICE = 0, 1, 2


@ENVIRONMENTS.register("mpe/simple_crypto")
@dataclass(frozen=True)
class SimpleCryptoConfig(MPEConfig):
    """Eve earns minus the error of her guess; Alice and Bob earn Eve's error minus Bob's."""

    mpe2_module: ClassVar[str] = "mpe2.simple_crypto_v3"

    def scenario(self) -> Scenario:
        return SimpleCrypto()


class SimpleCrypto(Scenario):
    rewards_groups_differently = True
    n_words = 4
    choices: ClassVar = {"goal": 2, "key": 2}

    def __init__(self) -> None:
        agents = [Body(f"{who}_0", collide=False, movable=False, silent=False) for who in ("eve", "bob", "alice")]
        super().__init__(agents, [Body(f"landmark_{i}", collide=False, movable=False) for i in range(2)])

    def blocks(self) -> dict[str, tuple[int, ...]]:
        return {"goal": (self.n_words,), "key": (self.n_words,)}

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        goal, key = (block(layout, what, [f"{what}_{k}" for k in range(self.n_words)]) for what in ("goal", "key"))
        message_features = self.message_features(layout, ALICE)
        return {EVE: message_features, BOB: key + message_features, ALICE: goal + key}[agent]

    def begin(self, world: World) -> None:
        for name in self.choices:  # one-hot
            world[name].zero_().scatter_(0, world.choice[name][None], 1.0)

    def reward(self, world: World, out: Tensor) -> None:
        spoke = (world.message != 0).any(1)
        error = (world.message - world["goal"]).square().sum(1) * spoke
        out[EVE] = -error[EVE]
        out[BOB:] = error[EVE] - error[BOB]

    def labels(self) -> tuple[LabelSpec, ...]:
        return tuple(LabelSpec(what, None, (f"{what}_0", f"{what}_1")) for what in self.choices)

    def read_labels(self, world: World) -> dict[str, Tensor]:
        return {what: world.choice[what] for what in self.choices}
