"""EvolutionLoop: the loop of a population's training. Members take turns, are evaluated, selected and mutated.

An iteration is the turn of one member: a rollout of its own environments, and an update. After `generation_frames` of
each member, a generation ends: all are evaluated on the same episodes, and written to `lineage.jsonl`. The next one
begins with selection and mutation, so a training that ends leaves the members as they were evaluated. All draws are
functions of (seed, generation, member), so a resumed training makes the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from marlnb.algorithms.learner import Learner
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, ConfigError, RunError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.populations.counter_draws import generator
from marlnb.populations.evolution.architecture import NetworkTarget
from marlnb.populations.evolution.hyperparameters import draw, mutables, options_of, with_options
from marlnb.populations.evolution.lineage import COPIED, FOUNDER, KEPT, REFUSED, Lineage, LineageFile
from marlnb.populations.evolution.members import Successor
from marlnb.populations.evolution.mutation import HYPERPARAMETERS, NONE, PARAMETERS, PRESERVING, draw_kind, mutated
from marlnb.populations.training.evolving_member import Member, member_experiment
from marlnb.populations.training.growth import MAX_RELATIVE_CHANGE
from marlnb.populations.training.judges import Judgement, build_judge
from marlnb.populations.training.perturbation import perturb
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.training.collect.episode_statistics import EpisodeTracker
from marlnb.training.loop import Advance, DivergedError
from marlnb.training.runs.files import EVALUATION

GENERATIONS = 20  # of a training whose evolution does not say how long a generation is


class EvolutionLoop:
    """Trains a population; has the interface of `marlnb.training.loop.Loop`.

    Args:
        experiment: with an evolution.
        env: the environments of member 0; the others get their own.
        device: of the networks.
        folder: of the run.
    Raises:
        ConfigError: an option cannot be mutated, or the training ends before the first generation does.
    """

    def __init__(self, experiment: Experiment, env: VectorEnv, device: torch.device, folder: Path) -> None:
        assert experiment.evolution is not None
        self.experiment, self.config, self._device = experiment, experiment.evolution, device
        self._targets = mutables(experiment, env.spec)
        self._turns = generation_iterations(experiment) * self.config.population  # of a generation
        self._files = LineageFile(folder)
        self._snapshots = SnapshotStore(self._files.folder, env.spec)
        self._judge = build_judge(experiment, env.spec, folder / EVALUATION)
        self._envs = [env]
        self.generation = self._turn = 0
        self._best = 0  # the fittest member of the last generation that was evaluated
        self.members: list[Member] = []
        try:
            for place in range(self.config.population):
                if place:
                    self._envs.append(build_env(experiment, experiment.n_envs, device=experiment.device))
                self.members.append(self._founder(place))
        except BaseException:
            self.close()
            raise
        self._networks = _networks(self.members[0].loop.learners)

    @property
    def env(self) -> VectorEnv:
        """The environments of member 0."""
        return self._envs[0]

    @property
    def learners(self) -> dict[str, Learner]:
        """By group, the learner of the fittest member."""
        return self.members[self._best].loop.learners

    @property
    def policies(self) -> dict[str, Policy]:
        """By group, the policy of the fittest member."""
        return self.members[self._best].policies

    @property
    def episodes(self) -> EpisodeTracker:
        """Recent episodes of the fittest member."""
        return self.members[self._best].loop.episodes

    @property
    def may_end(self) -> bool:
        """Whether a generation has just been evaluated."""
        return self._turn == self._turns

    def begin(self, iteration: int) -> None:
        """Resets every member's environments."""
        if iteration == 0:
            self._files.cut(0)
        for member in self.members:
            member.loop.begin(iteration)

    def advance(self) -> Advance:
        """The turn of one member; the last one of a generation also evaluates all, the first one selects and mutates.

        Raises:
            DivergedError: the training of every member diverged. One that does is as unfit as can be, and not trained.
            EnvError: as of any training.
            ConfigError: there is no fitness, or the config made an invalid selection.
            CheckpointError: a snapshot cannot be written.
        """
        if self.may_end:
            self._next_generation()
        place = self._turn % len(self.members)
        member = self.members[place]
        advance = member.advance()
        self._turn += 1
        if member.diverged and place == self._best:
            self._best = self._alive()[0]
        name = f"member_{place}"
        learning = {
            name if len(advance.learning) == 1 else f"{name}/{group}": metrics
            for group, metrics in advance.learning.items()
        }
        advance = replace(advance, learning=learning, turn={name: {"generation": self.generation}})
        return self._evaluate(advance) if self.may_end else advance

    def state_dict(self) -> dict[str, Any]:
        """As of a Loop: `learners` are those of the fittest member, so that a population opens like any other run."""
        self._files.sync()
        members = [member.state_dict() for member in self.members]
        learners = members[self._best]["loop"].pop("learners")
        population = {
            "generation": self.generation,
            "turn": self._turn,
            "n_rows": self._files.n_rows,
            "best": self._best,
            "members": members,
        }
        return {"learners": learners, "population": population}

    def load_state_dict(self, state: Mapping[str, Any], iteration: int) -> None:
        """Restores a saved state; `lineage.jsonl` is cut back to it. Training then continues bit for bit on a CPU.

        Raises:
            CheckpointError: the state belongs to another experiment, or the lineage is missing or damaged.
        """
        try:
            saved = state["population"]
            self._files.cut(saved["n_rows"])
            self.generation, self._turn, self._best = saved["generation"], saved["turn"], saved["best"]
            for place, of_member in enumerate(saved["members"]):
                loop = dict(of_member["loop"])
                if place == self._best:
                    loop["learners"] = state["learners"]
                row, born = Lineage(**of_member["row"]), of_member["born"]
                experiment = member_experiment(self.experiment, place, born)
                self.members[place] = member = Member(
                    with_options(experiment, self._targets, row.options),
                    self._envs[place],
                    self._device,
                    born=born,
                    row=row,
                    scores=tuple(of_member["scores"]),
                    frames=of_member["frames"],
                    diverged=of_member["diverged"],
                )
                member.loop.load_state_dict(loop, iteration)
        except (RunError, KeyError, TypeError, ValueError, IndexError) as error:
            raise CheckpointError(f"the population cannot be resumed: {error}") from error

    def close(self) -> None:
        """Frees the environments of all members but the first, which belong to the caller."""
        with closing(self._judge):
            for env in self._envs[1:]:
                env.close()

    def _founder(self, place: int) -> Member:
        experiment = member_experiment(self.experiment, place, 0)
        options = options_of(experiment, self._targets)
        if self.config.founders == "drawn" and place:
            rng = generator(self.experiment.seed, "founder", str(place), 0)
            options = {target.path: draw(rng, target, experiment) for target in self._targets}
            experiment = with_options(experiment, self._targets, options)
        row = Lineage(0, place, None, FOUNDER, seed=experiment.seed, options=options)
        return Member(experiment, self._envs[place], self._device, born=0, row=row)

    def _evaluate(self, advance: Advance) -> Advance:
        """Ends a generation: its evaluations count as frames, and its rows are written."""
        alive = self._alive()
        judgements = dict(zip(alive, self._judge.judge([self.members[place].policies for place in alive])))
        self._files.add([self._row(member, judgements.get(place)) for place, member in enumerate(self.members)])
        scored = [member.scored(self.config.window) for member in self.members]
        self._best = max((scored[place] for place in alive), key=lambda member: member.fitness).place
        frames = advance.extra_frames + sum(judgement.frames for judgement in judgements.values())
        return replace(advance, extra_frames=frames, evaluation=judgements[self._best].means)

    def _alive(self) -> list[int]:
        """The places whose training has not diverged. Raises DivergedError: there is none."""
        alive = [place for place, member in enumerate(self.members) if not member.diverged]
        if not alive:
            raise DivergedError(f"every member of the population diverged; the last one: {self.members[-1].diverged}")
        return alive

    def _row(self, member: Member, judgement: Judgement | None) -> Lineage:
        """The line of a member; without a judgement, of one that diverged."""
        window = self.config.window
        value = judgement.score if judgement is not None else -math.inf
        member.scores = (*member.scores, value)[-window:]
        row = replace(member.row, frames=member.frames)
        if judgement is None:
            return replace(row, note=member.diverged)
        return replace(
            row,
            fitness=member.scored(window).fitness,
            score=value,
            returns=judgement.returns,
            evaluation_seed=judgement.seed,
            checkpoint=self._snapshots.write(member.row.id, member.frames, member.weights()),
        )

    def _next_generation(self) -> None:
        """Selects and mutates. Children begin new episodes; who stays as it is continues where it was."""
        scored = [member.scored(self.config.window) for member in self.members]
        rng = generator(self.experiment.seed, "select", "", self.generation)
        successors = _check_successors(self.config.select(rng, scored), len(self.members), self.config.name)
        parents = list(self.members)
        states = {place: parents[place].loop.state_dict()["learners"] for place in {s.parent for s in successors}}
        self.generation += 1
        self._turn = 0
        for place, successor in enumerate(successors):
            options = parents[successor.parent if successor.options_of is None else successor.options_of].row.options
            self.members[place] = self._successor(place, parents[successor.parent], successor, options, states)
        self._best = _heir(successors, self._best)

    def _successor(
        self,
        place: int,
        parent: Member,
        successor: Successor,
        options: Mapping[str, Any],
        states: Mapping[int, Mapping[str, Any]],
    ) -> Member:
        rng = generator(self.experiment.seed, "mutate", str(place), self.generation)
        kind = draw_kind(rng, self.config.probability) if successor.mutate else NONE
        row = Lineage(self.generation, place, successor.parent, KEPT, seed=parent.row.seed, options=options)
        if kind == NONE and successor.parent == place and options == parent.row.options:
            parent.row = row
            return parent
        base = member_experiment(self.experiment, place, self.generation)
        inherited = with_options(base, self._targets, row.options)
        changes = {path: [old, options[path]] for path, old in parent.row.options.items() if options[path] != old}
        row = replace(row, operator=COPIED, seed=base.seed, changes=changes)
        child = partial(self._child, parent=parent, learners=states[successor.parent])
        if kind == NONE:
            return child(inherited, row)
        try:
            experiment, mutations = mutated(kind, rng, self.config, inherited, self._targets, self._networks)
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
            born=self.generation,
            row=row,
            scores=parent.scores,
            frames=parent.frames,
            diverged=parent.diverged,
        )
        child.inherit(parent, learners)
        child.loop.begin(0)
        return child


def generation_iterations(experiment: Experiment) -> int:
    """Iterations of each member between two selections.

    Raises:
        ConfigError: the training ends before the first generation does.
    """
    config, frames = experiment.evolution, experiment.iteration_frames
    assert config is not None
    share = experiment.frames / config.population
    iterations = max(1, math.ceil(config.generation_frames / frames) or round(share / GENERATIONS / frames))
    if iterations * frames > share:
        raise ConfigError(
            f"frames={experiment.frames} ends before the first generation: population={config.population} members of "
            f"{iterations * frames:,} frames each (n_envs × rollout_steps, whole iterations) take "
            f"{config.population * iterations * frames:,} frames; use more frames, or smaller rollouts",
            at="frames",
        )
    return iterations


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


def _heir(successors: tuple[Successor, ...], best: int) -> int:
    """The place that continues the fittest member, unchanged if there is one."""
    heirs = [place for place, each in enumerate(successors) if each.parent == best]
    return min(heirs, key=lambda place: (successors[place].mutate, place != best), default=best)
