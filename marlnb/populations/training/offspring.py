"""Offspring: makes the members of a population: its founders, and each generation by selection and mutation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from marlnb.algorithms.learner import Learner
from marlnb.envs.vector import VectorEnv
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.populations.counter_draws import generator
from marlnb.populations.evolution.architecture import NetworkTarget
from marlnb.populations.evolution.hyperparameters import Mutable, draw, options_of, with_options
from marlnb.populations.evolution.lineage import COPIED, FOUNDER, KEPT, REFUSED, Lineage
from marlnb.populations.evolution.members import Successor
from marlnb.populations.evolution.mutation import HYPERPARAMETERS, NONE, PARAMETERS, PRESERVING, draw_kind, mutated
from marlnb.populations.training.evolving_member import Member, member_experiment
from marlnb.populations.training.growth import MAX_RELATIVE_CHANGE
from marlnb.populations.training.perturbation import perturb
from marlnb.populations.training.shared_replay import SharedReplay
from marlnb.training.joined import JoinedTrainings


class Offspring:
    """Makes the members of a population.

    All draws are functions of (seed, generation, member).

    Args:
        experiment: with an evolution.
        targets: the options that mutate.
        envs: the environments of each place.
        device: of the networks.
        joined: the members advance together; None: one after the other.
        replay: the buffers that the members share; None: each has its own.
    """

    def __init__(
        self,
        experiment: Experiment,
        targets: tuple[Mutable, ...],
        envs: Sequence[VectorEnv],
        device: torch.device,
        joined: JoinedTrainings | None = None,
        replay: SharedReplay | None = None,
    ) -> None:
        assert experiment.evolution is not None
        self.experiment, self.config = experiment, experiment.evolution
        self._targets, self._envs, self._device = targets, envs, device
        self._joined, self._replay = joined, replay

    def founder(self, place: int) -> Member:
        """A member of the first generation."""
        experiment = member_experiment(self.experiment, place, 0)
        options = options_of(experiment, self._targets)
        if self.config.founders == "drawn" and place:
            rng = generator(self.experiment.seed, "founder", str(place), 0)
            options = {target.path: draw(rng, target, experiment) for target in self._targets}
            experiment = with_options(experiment, self._targets, options)
        row = Lineage(0, place, None, FOUNDER, seed=experiment.seed, options=options)
        joined, replay = self._joined, self._replay
        return Member(experiment, self._envs[place], self._device, born=0, row=row, joined=joined, replay=replay)

    def next_generation(self, parents: Sequence[Member], generation: int) -> tuple[list[Member], tuple[Successor, ...]]:
        """Selects and mutates: the members of a generation, and whom each of them continues.

        Children begin new episodes; a member that stays as it is continues where it was.

        Raises:
            ConfigError: the config made an invalid selection.
        """
        scored = [parent.scored(self.config.window) for parent in parents]
        rng = generator(self.experiment.seed, "select", "", generation - 1)
        successors = _check_successors(self.config.select(rng, scored), len(parents), self.config.name)
        states = {place: parents[place].loop.state_dict()["learners"] for place in {s.parent for s in successors}}
        networks = _networks(parents[0].loop.learners)
        members = [
            self._successor(place, generation, parents, successor, states[successor.parent], networks)
            for place, successor in enumerate(successors)
        ]
        if self._joined is not None:
            self._joined.keep([member.loop for member in members])
        return members, successors

    def _successor(
        self,
        place: int,
        generation: int,
        parents: Sequence[Member],
        successor: Successor,
        learners: Mapping[str, Any],
        networks: tuple[NetworkTarget, ...],
    ) -> Member:
        """The member of a place, which continues with the learners of its parent."""
        parent = parents[successor.parent]
        options = parents[successor.parent if successor.options_of is None else successor.options_of].row.options
        rng = generator(self.experiment.seed, "mutate", str(place), generation)
        kind = draw_kind(rng, self.config.probability) if successor.mutate else NONE
        row = Lineage(generation, place, successor.parent, KEPT, seed=parent.row.seed, options=options)
        if kind == NONE and successor.parent == place and options == parent.row.options:
            parent.row = row
            return parent
        base = member_experiment(self.experiment, place, generation)
        inherited = with_options(base, self._targets, row.options)
        changes = {path: [old, options[path]] for path, old in parent.row.options.items() if options[path] != old}
        row = replace(row, operator=COPIED, seed=base.seed, changes=changes)
        child = partial(self._child, parent=parent, learners=learners)
        if kind == NONE:
            return child(inherited, row)
        try:
            experiment, mutations = mutated(kind, rng, self.config, inherited, self._targets, networks)
            values = {**options, **{path: new for path, (_, new) in mutations.items()}}
            row_of_child = replace(row, operator=kind, changes={**changes, **mutations}, options=values)
            return self._changed(child(experiment, row_of_child), parent, kind, rng)
        except ConfigError as error:  # it is not possible here
            return child(inherited, replace(row, operator=REFUSED, note=str(error)))

    def _changed(self, child: Member, parent: Member, kind: str, rng: np.random.Generator) -> Member:
        """The child, with what a mutation of networks or weights did. Raises ConfigError: it changed outputs."""
        if kind == HYPERPARAMETERS:
            return child
        notes = []
        if kind == PARAMETERS:
            config = self.config
            for learner in child.loop.learners.values():
                notes.append(perturb(learner, rng, sigma=config.sigma, dormant_threshold=config.dormant_threshold))
        change = child.output_change(parent)
        if kind in PRESERVING and change > MAX_RELATIVE_CHANGE:
            raise ConfigError(f"the mutation of the {kind} would change the networks' outputs by {change:.2g}")
        child.row = replace(child.row, output_change=change, note="; ".join(notes))
        return child

    def _child(
        self, experiment: Experiment, row: Lineage, *, parent: Member, learners: Mapping[str, Mapping[str, Any]]
    ) -> Member:
        """A member that continues with its parent's learners, in new episodes."""
        child = Member(
            experiment,
            self._envs[row.member],
            self._device,
            born=row.generation,
            row=row,
            scores=parent.scores,
            frames=parent.frames,
            diverged=parent.diverged,
            joined=self._joined,
            replay=self._replay,
        )
        child.inherit(parent, learners)
        child.loop.begin(0)
        return child


def _networks(learners: Mapping[str, Learner]) -> tuple[NetworkTarget, ...]:
    """The actors, and the critics of algorithms that have any, of the groups that learn."""
    targets = []
    for name, learner in learners.items():
        parts = {parameter.partition(".")[0] for parameter, _ in learner.policy.named_parameters()}
        if learner.optimizers:
            targets.append(NetworkTarget("models", name))
        if learner.optimizers and any(part.startswith("critic") for part in parts):
            targets.append(NetworkTarget("critics", name))
    return tuple(targets)


def _check_successors(successors: tuple[Successor, ...], n_members: int, name: str) -> tuple[Successor, ...]:
    """Raises ConfigError unless every place has a parent in the population."""
    places = [place for each in successors for place in (each.parent, each.options_of) if place is not None]
    if len(successors) != n_members or not all(0 <= place < n_members for place in places):
        raise ConfigError(
            f"evolution {name!r} must select {n_members} successors, whose parents are 0 to {n_members - 1}; "
            f"got {successors}"
        )
    return successors


def heir(successors: tuple[Successor, ...], best: int) -> int:
    """The place that continues the fittest member, unchanged if there is one."""
    heirs = [place for place, each in enumerate(successors) if each.parent == best]
    return min(heirs, key=lambda place: (successors[place].mutate, place != best), default=best)
