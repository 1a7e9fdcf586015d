"""Member: one member of a population while it trains: its experiment, environments, learners and origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import torch

from marlnb.algorithms.learner import weights_of
from marlnb.envs.vector import VectorEnv
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.populations.evolution.fitness import fitness
from marlnb.populations.evolution.lineage import Lineage
from marlnb.populations.evolution.members import Scored
from marlnb.populations.training.snapshots import PolicyWeights
from marlnb.training.collect.seeds import derive_seed
from marlnb.training.loop import Advance, Loop

SHUFFLER = "shuffler"  # in a learner's state: the generator of its shuffles, which a child does not inherit


class Member:
    """A member of a population, from the generation in which it was founded, copied or mutated.

    Args:
        experiment: of this member, as `member_experiment` makes it.
        env: its environments, which belong to the caller.
        device: of the networks.
        born: the generation in which it was new.
        row: how it came to be in this generation; what its evaluation adds is not known yet.
        scores: of its last evaluations and those of its ancestors, oldest first.
        frames: that its weights have learnt from.

    Attributes:
        loop: environments, learners and random numbers.
    """

    def __init__(
        self,
        experiment: Experiment,
        env: VectorEnv,
        device: torch.device,
        *,
        born: int,
        row: Lineage,
        scores: tuple[float, ...] = (),
        frames: int = 0,
    ) -> None:
        self.experiment, self.env, self.born, self.row = experiment, env, born, row
        self.scores, self.frames = scores, frames
        self.loop = Loop(experiment, env, device)

    @property
    def policies(self) -> dict[str, Policy]:
        return self.loop.policies

    def weights(self) -> PolicyWeights:
        """A copy of its policies' weights, by group."""
        return {name: weights_of(policy) for name, policy in self.policies.items()}

    def inherit(self, learners: Mapping[str, Mapping[str, Any]]) -> None:
        """Takes over a parent's learners: weights, optimizers, normalisers and replay buffers."""
        for name, learner in self.loop.learners.items():
            state = dict(learners[name])
            if SHUFFLER in state:
                state[SHUFFLER] = learner.state_dict()[SHUFFLER]
            learner.load_state_dict(state)

    def advance(self) -> Advance:
        advance = self.loop.advance()
        self.frames += self.experiment.iteration_frames
        return advance

    def scored(self, window: int) -> Scored:
        """What a selection reads of it."""
        return Scored(self.row.member, fitness(self.scores, window), self.row.generation, self.row.options)

    def state_dict(self) -> dict[str, Any]:
        return {
            "born": self.born,
            "row": asdict(self.row),
            "scores": list(self.scores),
            "frames": self.frames,
            "loop": self.loop.state_dict(),
        }


def member_experiment(experiment: Experiment, member: int, generation: int) -> Experiment:
    """The experiment of a member that is new in a generation: without evolution, with a seed of its own."""
    seed = derive_seed(experiment.seed, "member", member, generation)
    return replace(experiment, evolution=None, seed=seed, target_group=None, target_return=None)
