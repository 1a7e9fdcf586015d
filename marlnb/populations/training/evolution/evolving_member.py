"""Member: one member of a population while it trains: its experiment, environments, learners and origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from marlnb.algorithms.learner import weights_of
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.populations.evolution.fitness import fitness
from marlnb.populations.evolution.hyperparameters import mutables, with_options
from marlnb.populations.evolution.lineage import Lineage
from marlnb.populations.evolution.members import Scored
from marlnb.populations.training.evolution.growth import change_of_outputs, grown_state
from marlnb.populations.training.evolution.shared_replay import SharedReplay
from marlnb.populations.training.snapshots import PolicyWeights
from marlnb.specs import EnvSpec, derive_seed
from marlnb.training.collect.episode_statistics import EpisodeStatistics
from marlnb.training.loop import Advance, DivergedError, Loop
from marlnb.training.together.joined import JoinedTrainings

SHUFFLER = "shuffler"  # in a learner's state: the generator of its shuffles, which a child does not inherit


class Member:
    """A member of a population, from the generation in which it was founded, copied or mutated.

    Args:
        experiment: of this member, as `member_experiment` makes it.
        env: its environments, which belong to the caller.
        device: of the networks.
        first_generation: the generation in which it was new.
        row: how it came to be in this generation; what its evaluation adds is not known yet.
        scores: of its last evaluations and those of its ancestors, oldest first.
        frames: that its weights have learned from.
        diverged: why its training ended, as its weights are not finite any more; empty while it trains.
        joined: the members that it advances with; None: it advances by itself.
        replay: the buffers that the members share; None: each has its own.

    Attributes:
        loop: environments, learners and random numbers.
    """

    def __init__(
        self,
        experiment: Experiment,
        env: VectorEnv,
        device: torch.device,
        *,
        first_generation: int,
        row: Lineage,
        scores: tuple[float, ...] = (),
        frames: int = 0,
        diverged: str = "",
        joined: JoinedTrainings | None = None,
        replay: SharedReplay | None = None,
    ) -> None:
        self.experiment, self.env, self.first_generation, self.row = experiment, env, first_generation, row
        self.scores, self.frames, self.diverged = scores, frames, diverged
        if joined is None or diverged:
            self.loop = Loop(experiment, env, device)
        else:
            self.loop = joined.add(experiment, env, device)
        if replay is not None:
            replay.join(self.loop.learners)

    @property
    def policies(self) -> dict[str, Policy]:
        return self.loop.policies

    def weights(self) -> PolicyWeights:
        """A copy of its policies' weights, by group."""
        return {name: weights_of(policy) for name, policy in self.policies.items()}

    def inherit(self, parent: Member, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Takes over a parent's learners: weights, optimizers, normalisers and replay buffers.

        Args:
            parent: whose networks may have fewer units and layers.
            states: of its learners, by group.
        Raises:
            ConfigError: the networks cannot grow out of the parent's.
        """
        for name, learner in self.loop.learners.items():
            state = grown_state(parent.loop.learners[name], learner, states[name])
            if SHUFFLER in state:
                state[SHUFFLER] = learner.state_dict()[SHUFFLER]
            learner.load_state_dict(state)

    def output_change(self, parent: Member) -> float:
        """The largest relative change of an output of a network against the parent's, on random inputs."""
        return max(change_of_outputs(parent.policies[name], policy) for name, policy in self.policies.items())

    def advance(self) -> Advance:
        """One rollout and update; of a member that has diverged nothing, at no frames."""
        frames = self.experiment.iteration_frames
        if self.diverged:
            return _nothing(self.env.spec, -frames)
        self.frames += frames
        try:
            return self.loop.advance()
        except DivergedError as error:  # the population continues without it
            self.diverged = str(error)
            self.loop.close()
            return _nothing(self.env.spec, 0)

    def scored(self, window: int) -> Scored:
        """What a selection reads of it."""
        return Scored(self.row.member, fitness(self.scores, window), self.row.generation, self.row.options)

    def state_dict(self) -> dict[str, Any]:
        return {
            "born": self.first_generation,
            "row": asdict(self.row),
            "scores": list(self.scores),
            "frames": self.frames,
            "diverged": self.diverged,
            "loop": self.loop.state_dict(),
        }


def _nothing(spec: EnvSpec, extra_frames: int) -> Advance:
    """An iteration in which no episode ended and nothing was learned."""
    returns = {group.name: np.zeros((0, group.n_agents)) for group in spec.groups}
    episodes = EpisodeStatistics(returns, np.zeros(0, dtype=np.int64))
    return Advance(episodes, {}, 0, 0.0, 0.0, 0.0, seconds=1e-3, extra_frames=extra_frames)


def member_experiment(experiment: Experiment, member: int, generation: int) -> Experiment:
    """The experiment of a member that is new in a generation: with a seed of its own, without evolution.

    The limits and the target are the population's: all members together reach them.
    """
    seed = derive_seed(experiment.seed, "member", member, generation)
    return replace(experiment.limited_by_frames(), evolution=None, seed=seed)


def winner_networks(state: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a population's state that `winner_experiment` reads: of the fittest member, without its loop.

    Raises:
        CheckpointError: as `winner_experiment`.
    """
    try:
        population = state["population"]
        saved = population["members"][population["best"]]
        row = {name: saved["row"][name] for name in ("member", "options")}
        return {"population": {"best": 0, "members": [{"born": saved["born"], "row": row}]}}
    except (KeyError, TypeError, IndexError) as error:
        raise CheckpointError(f"the checkpoint is not one of a population: {error!r}") from error


def winner_experiment(experiment: Experiment, spec: EnvSpec, state: Mapping[str, Any]) -> Experiment:
    """The experiment of the fittest member in the state of a population's checkpoint.

    Raises:
        CheckpointError: the state is of a training run without evolution, or it is damaged.
    """
    try:
        population = state["population"]
        saved = population["members"][population["best"]]
        own = member_experiment(experiment, int(saved["row"]["member"]), int(saved["born"]))
        return with_options(own, mutables(experiment, spec), saved["row"]["options"])
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise CheckpointError(f"the checkpoint is not one of a population: {error!r}") from error
