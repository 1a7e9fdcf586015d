"""RunPopulation: the population of a run folder, read from its files: members, fitness, and their ancestors."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marlnb.config import EnvConfig
from marlnb.display.formatting import count, format_number
from marlnb.display.notebook_html import frame_html, note_html, title_html
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, RunError, unknown
from marlnb.evolution_config import EvolutionConfig
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.populations.evolution.hyperparameters import mutables, with_options
from marlnb.populations.evolution.lineage import MEMBERS, POPULATION, Lineage, read_lineage
from marlnb.populations.training.evolution.evolving_member import member_experiment
from marlnb.populations.training.other_processes.members import member_folders
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.schedule import Change
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.learners import build_learner
from marlnb.training.runs.checkpoints.checkpoint import save_checkpoint
from marlnb.training.runs.run import Origin, Run
from marlnb.training.runs.run_folder import RunFolder, Which
from marlnb.training.runs.status import GREEDY

if TYPE_CHECKING:
    import pandas as pd


class RunPopulation:
    """The population of a run, as its files are now; `run.population["12-3"]` is member 3 in generation 12.

    Attributes:
        run: the run.
        folder: `<run>/population`.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run if isinstance(run, Run) else Run(run.path, run.experiment)
        self.folder = run.path / POPULATION

    @property
    def config(self) -> EvolutionConfig:
        assert self.run.experiment.evolution is not None
        return self.run.experiment.evolution

    @property
    def folders(self) -> dict[int, Path]:
        """By member, the folder of its files: this one, unless each member has a training run (`evolution.member`).

        Raises:
            ConfigError: training runs in neighbouring folders belong to different populations.
        """
        if self.config.member is None:
            return dict.fromkeys(range(self.config.population), self.folder)
        return {member: folder / POPULATION for folder, member in sorted(member_folders(self.run.path).items())}

    def lineage(self) -> list[Lineage]:
        """All members of all generations that were evaluated; parents come before their children."""
        if self.config.member is None:
            return read_lineage(self.folder)
        rows = [row for folder in self.folders.values() for row in read_lineage(folder)]
        return sorted(rows, key=lambda row: (row.frames, row.generation, row.member))

    @property
    def members(self) -> list[PopulationMember]:
        """The members, each in the last generation in which it was evaluated."""
        last: dict[int, Lineage] = {}
        for row in self.lineage():
            if row.member not in last or row.generation > last[row.member].generation:
                last[row.member] = row
        return [PopulationMember(self, last[member]) for member in sorted(last)]

    @property
    def best(self) -> PopulationMember:
        """The fittest member of the last generation that was evaluated.

        After a generation, the run itself opens with its weights, or its own member's; within one, with those of the
        member that continues it.

        Raises:
            RunError: no generation has been evaluated yet, or the training of every member diverged.
        """
        evaluated = [member for member in self.members if member.row.fitness is not None]
        if not evaluated:
            raise RunError(
                f"{self.run.shown_path} has no member with a fitness: no generation has ended yet, or each diverged"
            )
        return max(evaluated, key=lambda member: member.row.fitness or 0.0)

    def __getitem__(self, name: str) -> PopulationMember:
        """A member by generation and place, as "12-3". Raises RunError: there is none."""
        known = {row.id: row for row in self.lineage()}
        if name not in known:
            raise RunError(unknown(f"member in the population of {self.run.shown_path}", name, tuple(known)))
        return PopulationMember(self, known[name])

    def ancestors(self, name: str) -> list[Lineage]:
        """The line of a member through all generations, itself last. Raises RunError: no such member, or no parent."""
        known = {row.id: row for row in self.lineage()}
        line, row = [], self[name].row
        while True:
            line.append(row)
            if row.parent_id is None:
                return line[::-1]
            if row.parent_id not in known:
                raise RunError(
                    f"{row.parent_id}, the parent of {row.id}, is in no folder next to {self.run.shown_path}; the "
                    "folders of a population's training runs belong together"
                )
            row = known[row.parent_id]

    def winner(self, path: str | os.PathLike[str]) -> Run:
        """Writes the fittest member as an ordinary run, which can be evaluated, recorded, analysed and trained further.

        Args:
            path: of the new run's folder.
        Raises:
            RunError: the folder holds something else, or the last checkpoint is from within a generation.
            CheckpointError: the run has no checkpoint.
        """
        if self.config.member is None:
            return self._winner(path)
        return RunPopulation(Run.open(self.folders[self.best.row.member].parent))._winner(path)

    def _winner(self, path: str | os.PathLike[str]) -> Run:
        """As `winner`, of the members that this run trains."""
        checkpoint = self.run.checkpoint()
        state = checkpoint.load()
        population = state["population"]
        generation, members = population["generation"], population["members"]
        if population["n_rows"] <= generation * len(members):
            raise RunError(
                f"{self.run.shown_path} stopped within generation {generation}, in which no member has been evaluated "
                "yet; resume it, and it ends with a generation. population.best is the fittest member of the last one"
            )
        member = members[population["best"]]
        row, frames = Lineage(**member["row"]), int(member["frames"])
        own = PopulationMember(self, row).experiment
        experiment = replace(own, frames=max(frames, own.iteration_frames))
        run = Run.create(path, experiment)
        run.write_spec(self.run.spec)
        progress = {"seconds": 0.0, "agent_steps": frames * len(self.run.spec.agents), "evaluation_returns": {}}
        iteration = frames // own.iteration_frames
        returns = dict(checkpoint.returns)
        loop = {**member["loop"], "learners": state["learners"]}
        save_checkpoint(
            run.path / "checkpoints", {**loop, **progress}, iteration=iteration, frames=frames, returns=returns
        )
        facts = {"iteration": iteration, "frames": frames, "frames_total": frames, "scores": {GREEDY: returns}}
        run.write_status("complete", **facts)
        run.log_event(f"member {row.id} of {self.run.path}")
        return run

    def to_frame(self) -> pd.DataFrame:
        """One line for each member of each generation: fitness, parent, operator, and the options that can mutate."""
        import pandas as pd

        columns = ("generation", "member", "parent", "operator", "fitness", "score", "frames")
        rows = [{**{name: getattr(row, name) for name in columns}, **row.options} for row in self.lineage()]
        frame = pd.DataFrame(rows, columns=None if rows else columns)
        return frame.astype({"parent": "Int64"})

    def __repr__(self) -> str:
        rows = self.lineage()
        name = f"<population of {self.run.shown_path}: {self.config.name}, {self.config.population} members"
        if not rows:
            return f"{name}, no generation has ended yet>"
        n_generations = 1 + max(row.generation for row in rows)
        if all(member.row.fitness is None for member in self.members):
            return f"{name}, {count(n_generations, 'generation')}; every member diverged>"
        best = self.best
        fitness = format_number(best.row.fitness or 0.0)
        return f"{name}, {count(n_generations, 'generation')}; fittest {best.id} with {fitness}>"

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        last = frame.loc[frame.groupby("member")["generation"].idxmax()]
        return title_html(repr(self).strip("<>")) + frame_html(last, digits=4) + note_html("the last generation")


class PopulationMember:
    """One member in one generation; it is played, evaluated and recorded like a run.

    Attributes:
        population: to which it belongs.
        row: its line of the lineage.
    """

    def __init__(self, population: RunPopulation, row: Lineage) -> None:
        self.population, self.row = population, row

    @property
    def id(self) -> str:
        """Generation and place, as "12-3"."""
        return self.row.id

    @property
    def path(self) -> Path:
        """Folder of its recordings."""
        return self.population.folder / MEMBERS / self.id

    @property
    def spec(self) -> EnvSpec:
        return self.population.run.spec

    @property
    def n_envs(self) -> int:
        return self.population.run.n_envs

    @property
    def experiment(self) -> Experiment:
        """What it trained with in its generation, without evolution."""
        experiment = self.population.run.experiment
        own = replace(member_experiment(experiment, self.row.member, self.row.generation), seed=self.row.seed)
        return with_options(own, mutables(experiment, self.spec), self.row.options)

    def schedule(self) -> list[tuple[int, dict[str, Any]]]:
        """The options with which its weights were trained: from how many frames on, and their values by path."""
        schedule: list[tuple[int, dict[str, Any]]] = []
        start = 0
        for row in self.population.ancestors(self.id):
            if not schedule or schedule[-1][1] != row.options:
                schedule.append((start, dict(row.options)))
            start = row.frames
        return schedule

    def replay_experiment(self, *, seed: int = 0) -> Experiment:
        """An ordinary experiment of one training run that follows this member's schedule from the beginning.

        It has the networks that the member ended with, and as many frames as its weights have learned from. Noise on
        weights is not repeated.

        Args:
            seed: of the training.
        """
        schedule = self.schedule()
        own = self.experiment
        targets = mutables(self.population.run.experiment, self.spec)
        first = {**schedule[-1][1], **{target.path: schedule[0][1][target.path] for target in targets}}
        changes = [
            str(Change(frames, target.path.rpartition(".")[0], target.option, after[target.path]))
            for (_, before), (frames, after) in itertools.pairwise(schedule)
            for target in targets
            if after[target.path] != before[target.path]
        ]
        experiment = with_options(replace(own, seed=seed), targets, first)
        return replace(experiment, schedule=tuple(changes), frames=max(self.row.frames, own.iteration_frames))

    def build_env(self, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
        return self.population.run.build_env(n_envs, device=device, env=env)

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        """The policy of each group with its weights at the end of its generation, ready to act.

        Raises:
            CheckpointError: it has no weights because it diverged; or its snapshot is missing or damaged.
        """
        self._check(checkpoint)
        folder = self.population.folders[self.row.member]
        weights = SnapshotStore(folder, self.spec).read(self.id, self.row.checkpoint)
        experiment, policies = self.experiment, {}
        for group in self.spec.groups:
            policy = build_learner(experiment, self.spec, group, device).policy
            try:
                policy.load_state_dict(weights[group.name])
            except RuntimeError as error:
                raise CheckpointError(f"the weights of {self.id} do not fit its networks: {error}") from error
            policies[group.name] = policy.eval()
        return policies

    def origin(self, checkpoint: Which = "last") -> Origin:
        self._check(checkpoint)
        return Origin(0, str(self.row.checkpoint))

    def policy_index(self, group: GroupSpec) -> list[int]:
        return self.population.run.policy_index(group)

    def __repr__(self) -> str:
        fitness = "diverged" if self.row.fitness is None else f"fitness {format_number(self.row.fitness)}"
        return f"<member {self.id} of {self.population.run.shown_path}: {self.row.operator}, {fitness}>"

    def _check(self, checkpoint: Which) -> None:
        if str(checkpoint) not in ("last", "best", "0"):
            raise CheckpointError(f"no checkpoint {checkpoint!r}: {self.id} has one set of weights; valid: last")
        if self.row.checkpoint is None:
            raise CheckpointError(f"member {self.id} has no weights, because it diverged: {self.row.note}")
