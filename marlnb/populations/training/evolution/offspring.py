"""Offspring: makes the members of a population: its founders, and each generation by selection and mutation."""

from __future__ import annotations

import math
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
from marlnb.populations.evolution.members import Scored, Successor
from marlnb.populations.evolution.mutation import HYPERPARAMETERS, NONE, PARAMETERS, PRESERVING, draw_kind, mutated
from marlnb.populations.training.evolution.evolving_member import Member, member_experiment
from marlnb.populations.training.evolution.growth import MAX_RELATIVE_CHANGE
from marlnb.populations.training.evolution.perturbation import perturb
from marlnb.populations.training.evolution.shared_replay import SharedReplay
from marlnb.populations.training.other_processes.members import Offer, OtherMembers
from marlnb.training.loop import DivergedError
from marlnb.training.together.joined import JoinedTrainings


class Offspring:
    """Makes the members of a population.

    All draws are functions of (seed, generation, member).

    Args:
        experiment: with an evolution.
        targets: the options that mutate.
        envs: the environments of each place that is trained.
        device: of the networks.
        joined: the members advance together; None: one after the other.
        replay: the buffers that the members share; None: each has its own.
    """

    def __init__(
        self,
        experiment: Experiment,
        targets: tuple[Mutable, ...],
        envs: Mapping[int, VectorEnv],
        device: torch.device,
        joined: JoinedTrainings | None = None,
        replay: SharedReplay | None = None,
    ) -> None:
        assert experiment.evolution is not None
        self.experiment, self.config = experiment, experiment.evolution
        self._targets, self._envs, self._device = targets, envs, device
        self._joined, self._replay = joined, replay

    def founder(self, place: int) -> Member:
        """A member of the first generation.

        Raises:
            ConfigError: its options do not fit; the message says which were drawn, and what limits them.
        """
        experiment = member_experiment(self.experiment, place, 0)
        if self.config.founders != "drawn" or place == 0 or not self._targets:
            return self._founded(experiment, place)
        rng = generator(self.experiment.seed, "founder", str(place), 0)
        options = {target.path: draw(rng, target, experiment) for target in self._targets}
        try:
            return self._founded(with_options(experiment, self._targets, options), place)
        except ConfigError as error:
            raise _drawn_error(error, place, self._targets, options) from error

    def _founded(self, experiment: Experiment, place: int) -> Member:
        row = Lineage(0, place, None, FOUNDER, seed=experiment.seed, options=options_of(experiment, self._targets))
        joined, replay = self._joined, self._replay
        return Member(
            experiment, self._envs[place], self._device, first_generation=0, row=row, joined=joined, replay=replay
        )

    def next_generation(self, parents: Sequence[Member], generation: int) -> tuple[list[Member], tuple[Successor, ...]]:
        """Selects and mutates: the members of a generation, and whom each of them continues.

        Children begin new episodes; a member that stays as it is continues where it was.

        Raises:
            ConfigError: the config made an invalid selection.
        """
        successors = self._select([parent.scored(self.config.window) for parent in parents], "", generation)
        states = {place: parents[place].loop.state_dict()["learners"] for place in {s.parent for s in successors}}
        rows = {place: parent.row for place, parent in enumerate(parents)}
        members = [
            self._successor(place, generation, each, parents[each.parent], rows, states[each.parent])
            for place, each in enumerate(successors)
        ]
        if self._joined is not None:
            self._joined.keep([member.loop for member in members])
        return members, successors

    def next_member(self, member: Member, others: OtherMembers, generation: int) -> Member:
        """The next generation of a run's only member: it continues itself, or a member of another run.

        Members that have not been evaluated yet, or that diverged, are as unfit as can be, and no other continues them.

        Raises:
            ConfigError, RunError, CheckpointError, DiskError: as `OtherMembers.read`; ConfigError: invalid selection.
            DivergedError: the member diverged, and no other one could take its place.
        """
        place, offers = member.row.member, others.read(generation)
        living = {other: offer for other, offer in offers.items() if offer.learners is not None}
        if member.diverged and not living:
            raise DivergedError(f"{member.diverged}; no other member of the population could take its place")
        rows = {place: member.row, **{other: offer.row for other, offer in living.items()}}
        own = member.scored(self.config.window)
        scored = [own if k == place else _scored(k, generation - 1, rows.get(k)) for k in range(self.config.population)]
        successor = self._select(scored, str(place), generation)[place]
        offer = living.get(successor.parent)
        others.keep(None if offer is None else offer.learners)
        if offer is None:
            learners = member.loop.state_dict()["learners"]
            return self._successor(place, generation, replace(successor, parent=place), member, rows, learners)
        learners = others.learners(offer)
        return self._successor(place, generation, successor, self._member_of(offer, place, learners), rows, learners)

    def _select(self, scored: Sequence[Scored], name: str, generation: int) -> tuple[Successor, ...]:
        """Whom each place continues. `name`: of the place that selects for itself alone; empty: for all."""
        rng = generator(self.experiment.seed, "select", name, generation - 1)
        return _check_successors(self.config.select(rng, scored), len(scored), self.config.name)

    def _member_of(self, offer: Offer, place: int, learners: Mapping[str, Any]) -> Member:
        """A member of another training run, in the environments of a place."""
        row = offer.row
        experiment = member_experiment(self.experiment, row.member, row.generation)
        experiment = with_options(experiment, self._targets, row.options)
        env, device = self._envs[place], self._device
        member = Member(
            experiment, env, device, first_generation=row.generation, row=row, scores=offer.scores, frames=row.frames
        )
        for name, learner in member.loop.learners.items():
            learner.load_state_dict(learners[name])
        return member

    def _successor(
        self,
        place: int,
        generation: int,
        successor: Successor,
        parent: Member,
        rows: Mapping[int, Lineage],
        learners: Mapping[str, Any],
    ) -> Member:
        """The member of a place, which continues with these learners of its parent.

        Args:
            rows: by place, of the generation before.
        """
        before = rows[successor.parent]
        model = rows.get(before.member if successor.options_of is None else successor.options_of, before)
        # networks come with the parent's weights
        options = {**before.options, **{target.path: model.options[target.path] for target in self._targets}}
        rng = generator(self.experiment.seed, "mutate", str(place), generation)
        kind = draw_kind(rng, self.config.probability) if successor.mutate else NONE
        row = Lineage(generation, place, before.member, KEPT, seed=before.seed, options=options)
        if before.generation != generation - 1:
            row = replace(row, parent_generation=before.generation)
        if kind == NONE and before.member == place and options == before.options:
            parent.row = row
            return parent
        base = member_experiment(self.experiment, place, generation)
        inherited = with_options(base, self._targets, row.options)
        changes = {path: [old, options[path]] for path, old in before.options.items() if options[path] != old}
        row = replace(row, operator=COPIED, seed=base.seed, changes=changes)
        child = partial(self._child, parent=parent, learners=learners)
        if kind == NONE:
            return child(inherited, row)
        try:
            networks = _networks(parent.loop.learners)
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
            first_generation=row.generation,
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


def _drawn_error(error: ConfigError, place: int, targets: Sequence[Mutable], options: Mapping[str, Any]) -> ConfigError:
    """The error of a founder whose drawn options do not fit; about those that the error names, if it names any."""
    drawn = [target for target in targets if f"{target.option}=" in str(error)] or targets
    values = ", ".join(f"{target.path}={options[target.path]:.6g}" for target in drawn)
    limits = " ".join(f"evolution.ranges.{name}=[MIN,MAX]" for name in dict.fromkeys(each.option for each in drawn))
    was = "was" if len(drawn) == 1 else "were"
    return ConfigError(
        f"{error}; {values} {was} drawn for member {place}: limit what is drawn with {limits}, or use "
        "evolution.founders=equal",
        at="evolution",
    )


def _scored(place: int, generation: int, row: Lineage | None) -> Scored:
    """A member of another training run; None: it diverged, or was not evaluated yet, and is as unfit as can be."""
    if row is None or row.fitness is None:
        return Scored(place, -math.inf, generation)
    return Scored(place, row.fitness, generation, row.options)


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


def successor_of_best(successors: tuple[Successor, ...], best: int) -> int:
    """The place that continues the fittest member, unchanged if there is one."""
    continuing = [place for place, each in enumerate(successors) if each.parent == best]
    return min(continuing, key=lambda place: (successors[place].mutate, place != best), default=best)
