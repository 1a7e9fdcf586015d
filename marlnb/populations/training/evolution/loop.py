"""EvolutionLoop: the loop of a population's training. Members take turns, are evaluated, selected and mutated.

An iteration is the turn of one member: a rollout of its own environments, and an update. After `generation_frames` of
each member, a generation ends: all are evaluated on the same episodes, and written to `lineage.jsonl`. The next one
begins with selection and mutation, so a training run that ends leaves the members as they were evaluated. All draws are
functions of (seed, generation, member), so a resumed training run makes the same ones.

With `evolution.member` there is one member only, which meets those of other training runs through files
(`OtherMembers`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from marlnb.algorithms.learner import Learner
from marlnb.envs.external.interface import is_served
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, ConfigError, RunError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.populations.evolution.hyperparameters import mutables, with_options
from marlnb.populations.evolution.lineage import Lineage, LineageFile
from marlnb.populations.training.evolution.evolving_member import Member, member_experiment
from marlnb.populations.training.evolution.judges import Judgement, build_judge
from marlnb.populations.training.evolution.offspring import Offspring, successor_of_best
from marlnb.populations.training.evolution.shared_replay import SharedReplay
from marlnb.populations.training.learning_metrics import metrics_named
from marlnb.populations.training.other_processes.members import OtherMembers
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.training.collect.episode_statistics import EpisodeTracker
from marlnb.training.loop import Advance, DivergedError
from marlnb.training.runs.files import EVALUATION
from marlnb.training.together.joinable import check_builds_joinable, check_joinable
from marlnb.training.together.joined import JoinedTrainings

GENERATIONS = 20  # of a training run whose evolution does not say how long a generation is


class EvolutionLoop:
    """Trains a population; has the interface of `marlnb.training.loop.Loop`.

    Args:
        experiment: with an evolution.
        env: the environments of the first member; the others get their own.
        device: of the networks.
        folder: of the run.
    Raises:
        ConfigError: an option cannot be mutated, the training ends before the first generation does, or other
            processes take part in the environment.
    """

    def __init__(self, experiment: Experiment, env: VectorEnv, device: torch.device, folder: Path) -> None:
        assert experiment.evolution is not None
        self.experiment, self.config, self._device = experiment, experiment.evolution, device
        if is_served(env):
            raise ConfigError(
                f"evolution={self.config.name} gives each member envs of its own, but simulators connect to "
                f"{env.spec.name} at one address; train without evolution=, or in an environment of another kind",
                at="evolution",
            )
        self._targets = mutables(experiment, env.spec)
        places = range(self.config.population) if self.config.member is None else (self.config.member,)
        self._turns = generation_iterations(experiment) * len(places)  # of the present generation
        self._files = LineageFile(folder)
        self._snapshots = SnapshotStore(self._files.folder, env.spec)
        self._judge = build_judge(experiment, env.spec, folder / EVALUATION)
        self._others = None if self.config.member is None else OtherMembers(folder, env.spec)
        self._envs = {places[0]: env}
        self._joined: JoinedTrainings | None = None
        if self.config.together:
            self._joined = JoinedTrainings()
            first = member_experiment(experiment, 0, 0)
            check_joinable([replace(first, loggers=(), profile=False)])  # which are of the population, not of a member
            check_builds_joinable(first)
        self._replay = SharedReplay() if self.config.shared_replay else None
        self._offspring = Offspring(experiment, self._targets, self._envs, device, self._joined, self._replay)
        self.generation = self._turn = 0
        self._best = 0  # index of the fittest member of the last generation that was evaluated
        self.members: list[Member] = []
        try:
            for place in places:
                if place not in self._envs:
                    self._envs[place] = build_env(experiment, experiment.n_envs, device=experiment.device)
                self.members.append(self._offspring.founder(place))
        except BaseException:
            self.close()
            raise

    @property
    def env(self) -> VectorEnv:
        """The environments of the first member."""
        return next(iter(self._envs.values()))

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
        """Resets every member's environments. Raises ConfigError: a new training run would have no fitness."""
        if iteration == 0:
            self._judge.check()
            self._files.cut(0)
        for member in self.members:
            member.loop.begin(iteration)

    def advance(self) -> Advance:
        """The turn of one member; the last one of a generation also evaluates all, the first one selects and mutates.

        Raises:
            DivergedError: the training of every member diverged. One that does is as unfit as can be, and not trained.
            EnvError: as of any training run.
            ConfigError: there is no fitness, or the config made an invalid selection.
            CheckpointError: a snapshot cannot be written.
        """
        if self.may_end:
            self._next_generation()
        index = self._turn % len(self.members)
        member = self.members[index]
        advance = member.advance()
        self._turn += 1
        if member.diverged and index == self._best:
            self._best = self._fittest(self._alive())
        name = f"member_{member.row.member}"
        turn = {name: {"generation": self.generation}}
        advance = replace(advance, learning=metrics_named(name, advance.learning), turn=turn)
        if advance.joined_s:
            advance = _share(advance, len(self._alive()))
        return self._evaluate(advance) if self.may_end else advance

    def state_dict(self) -> dict[str, Any]:
        """As of a Loop: `learners` are those of the fittest member, so that a population opens like any other run."""
        self._files.sync()
        members = [member.state_dict() for member in self.members]
        learners = members[self._best]["loop"].pop("learners")
        population = {
            "generation": self.generation,
            "turn": self._turn,
            "turns": self._turns,
            "n_rows": self._files.n_rows,
            "best": self._best,
            "members": members,
            "replay": {} if self._replay is None else self._replay.state_dict(),
            "judge": self._judge.state_dict(),
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
            self._turns = self._resumed_turns(saved["turns"])
            for index, of_member in enumerate(saved["members"]):
                loop = dict(of_member["loop"])
                if index == self._best:
                    loop["learners"] = state["learners"]
                row, first_generation = Lineage(**of_member["row"]), of_member["born"]
                experiment = member_experiment(self.experiment, row.member, first_generation)
                self.members[index] = member = Member(
                    with_options(experiment, self._targets, row.options),
                    self._envs[row.member],
                    self._device,
                    first_generation=first_generation,
                    row=row,
                    scores=tuple(of_member["scores"]),
                    frames=of_member["frames"],
                    diverged=of_member["diverged"],
                    joined=self._joined,
                    replay=self._replay,
                )
                member.loop.load_state_dict(loop, iteration)
            if self._replay is not None:
                self._replay.load_state_dict(saved["replay"])
            if self._joined is not None:
                self._joined.keep([member.loop for member in self.members])
            self._judge.load_state_dict(saved.get("judge", {}))
        except (RunError, KeyError, TypeError, ValueError, IndexError) as error:
            raise CheckpointError(f"the population cannot be resumed: {error}") from error

    def close(self) -> None:
        """Frees the environments of all members but the first, which belong to the caller."""
        with closing(self._judge):
            for member in self.members:
                member.loop.close()
            for env in list(self._envs.values())[1:]:
                env.close()

    def _evaluate(self, advance: Advance) -> Advance:
        """Ends a generation: its evaluations count as frames, and its rows are written."""
        alive = self._alive()
        members = {self.members[index].row.member: self.members[index].policies for index in alive}
        judgements = dict(zip(alive, self._judge.judge(members)))
        rows = [self._row(member, judgements.get(index)) for index, member in enumerate(self.members)]
        self._files.add(rows)
        self._best = self._fittest(alive)
        if self._others is not None:
            (member,), (row,) = self.members, rows
            self._others.offer(row, member.scores, None if member.diverged else member.loop.state_dict()["learners"])
        frames = advance.extra_frames + sum(judgement.frames for judgement in judgements.values())
        evaluation = judgements[self._best].means if judgements else {}
        return replace(advance, extra_frames=frames, evaluation=evaluation)

    def _alive(self) -> list[int]:
        """The indices of members whose training has not diverged.

        Raises:
            DivergedError: there is none, and no other training run has any.
        """
        alive = [index for index, member in enumerate(self.members) if not member.diverged]
        if not alive and self._others is None:
            raise DivergedError(f"every member of the population diverged; the last one: {self.members[-1].diverged}")
        return alive

    def _fittest(self, alive: Sequence[int]) -> int:
        """The index of the fittest of these members, by their last evaluations; without any, the present one."""
        fitness = {index: self.members[index].scored(self.config.window).fitness for index in alive}
        return max(fitness, key=fitness.__getitem__, default=self._best)

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

    def _resumed_turns(self, turns: int) -> int:
        """Of the present generation, which began with this many and may end earlier if `frames` is less now.

        It ends at its new length, or after the round in progress; one that has ended, and was evaluated, stays so.
        """
        if self._turn == turns:
            return turns
        n_members = len(self.members)
        return min(turns, max(self._turns, (self._turn // n_members + 1) * n_members))

    def _next_generation(self) -> None:
        if self._others is not None:
            self.members = [self._offspring.next_member(self.members[0], self._others, self.generation + 1)]
        else:
            self.members, successors = self._offspring.next_generation(self.members, self.generation + 1)
            self._best = successor_of_best(successors, self._best)
        self.generation += 1
        self._turn, self._turns = 0, generation_iterations(self.experiment) * len(self.members)


def _share(advance: Advance, n_members: int) -> Advance:
    """One member's share of the seconds in which several advanced."""
    names = ("stepping_s", "acting_s", "learning_s", "seconds")
    return replace(advance, joined_s=0.0, **{name: getattr(advance, name) / n_members for name in names})


def generation_iterations(experiment: Experiment) -> int:
    """Iterations of each member between two selections.

    Raises:
        ConfigError: the training ends before the first generation does.
    """
    config, frames = experiment.evolution, experiment.iteration_frames
    assert config is not None
    n_members = config.n_trained
    share = experiment.frames / n_members
    iterations = max(1, math.ceil(config.generation_frames / frames) or round(share / GENERATIONS / frames))
    if iterations * frames > share:
        raise ConfigError(
            f"frames={experiment.frames} ends before the first generation: population={n_members} members of "
            f"{iterations * frames:,} frames each (n_envs × rollout_steps, whole iterations) take "
            f"{n_members * iterations * frames:,} frames; use more frames, or smaller rollouts",
            at="frames",
        )
    return iterations
