"""The rows of a recording that an analysis works on, read batch by batch as tensors of all the group's agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from marlnb.errors import AnalysisError, RecordingError, shown, unknown
from marlnb.models.policies.policy import Policy, Reads
from marlnb.populations.matches.seating_file import recorded_source
from marlnb.recording.file.array import expand_agents
from marlnb.recording.file.episode_index import integers_of
from marlnb.recording.tools.recorded_policies import MOVE_REMEDY, origin_at, policies_of
from marlnb.specs import EnvSpec
from marlnb.training.runs.run import Origin, Run
from marlnb.version import __version__

if TYPE_CHECKING:
    from marlnb.recording.file.array import LabelledArray, Selector
    from marlnb.recording.file.reader import Recording


@dataclass(frozen=True)
class Rows:
    """Chosen rows in the recording's order, in which an episode's rows follow one another.

    Attributes:
        index: `[row]`, positions in the file.
        episode: `[row]`, the episode's number.
        t: `[row]`, steps since the episode began.
    """

    index: np.ndarray
    episode: np.ndarray
    t: np.ndarray

    def __len__(self) -> int:
        return len(self.index)

    def at(self, positions: np.ndarray | slice) -> Rows:
        """The rows at some positions, or those that a mask or slice selects."""
        return Rows(self.index[positions], self.episode[positions], self.t[positions])

    def first_of_episodes(self, where: np.ndarray) -> np.ndarray:
        """Of rows `[row, ...]` bool, the first in each episode: `[row, ...]` bool."""
        _, start, episode_index = np.unique(self.episode, return_index=True, return_inverse=True)
        number = np.cumsum(where, axis=0)
        before_episode = (number - where)[start][episode_index]
        return np.asarray(where & (number - before_episode == 1))


@dataclass(frozen=True)
class RowBatch:
    """What policies observed and did at a batch of rows. Optional tensors are None where there is none.

    Attributes:
        observations: by group, `[row, agent, *shape]`.
        action: of the analysed group, `[row, agent(, component)]`.
        acting: `[row, agent]` bool.
        recurrent: the actor's state that entered the step, `[row, agent, layer, unit]`.
        action_mask: `[row, agent, choice]`.
        state: the environment's, `[row, *state_shape]`.
        critic_recurrent: the critic's state that entered the step, `[row, agent, layer, unit]`.
    """

    observations: Mapping[str, Tensor]
    action: Tensor
    acting: Tensor
    recurrent: Tensor | None = None
    action_mask: Tensor | None = None
    state: Tensor | None = None
    critic_recurrent: Tensor | None = None

    def at(self, rows: slice | Tensor) -> RowBatch:
        """Some of the rows."""
        optional = (self.recurrent, self.action_mask, self.state, self.critic_recurrent)
        observations = {name: observation[rows] for name, observation in self.observations.items()}
        return RowBatch(
            observations, self.action[rows], self.acting[rows], *(None if x is None else x[rows] for x in optional)
        )


class RowSource:
    """A recording as one group sees it: rows in batches, with zeros for agents that were not recorded.

    Attributes:
        recording: the recording.
        group: the group's name.
        given_policies: policies by group, of agents that no run folder holds; None otherwise.
        env: the recording's environment.
    Raises:
        AnalysisError: no agent of the group is recorded.
    """

    def __init__(self, recording: Recording, group: str, given_policies: Mapping[str, Policy] | None = None) -> None:
        if group not in recording.groups:
            raise AnalysisError(unknown("recorded group", group, recording.groups))
        self.recording, self.group, self.given_policies = recording, group, given_policies
        self.env: EnvSpec = recording.spec

    def rows(
        self, episodes: Selector | None, checkpoint: int | None = None, steps: Sequence[int] | None = None
    ) -> Rows:
        """All rows, or those of some episodes, of one checkpoint's iteration, or at some steps.

        Args:
            episodes: their numbers, or a mask with one boolean for each episode.
        Raises:
            AnalysisError: no row is left, or the checkpoint does not exist.
            RecordingError: an episode does not exist, or a step is no integer.
        """
        table = self.recording.rows
        episode, t = table["episode"].to_numpy(), table["t"].to_numpy()
        index = np.arange(len(episode))
        if episodes is not None:
            numbers = self.recording.episode_numbers(episodes)
            if not numbers:
                raise AnalysisError(
                    f"episodes={shown(episodes)} selects none of the {len(self.recording.episodes)} episodes of "
                    f"{self.recording.path}"
                )
            index = index[np.isin(episode, numbers)]
        if checkpoint is not None:
            self.resolve_checkpoint(checkpoint)
            table = self.recording.checkpoints
            spans = table.loc[table["iteration"] == checkpoint, ["row_start", "row_stop"]].to_numpy()
            index = np.concatenate([index[(start <= index) & (index < stop)] for start, stop in spans])
        if steps is not None and len(index):
            available = t[index]
            index = index[np.isin(available, integers_of(steps, None, "steps"))]
            if not len(index):
                requested = ", ".join(map(str, steps)) or "none"
                raise AnalysisError(f"no rows at steps={requested}; valid: {available.min()} to {available.max()}")
        if not len(index) and episodes is not None and checkpoint is not None:
            available = self.rows(None, checkpoint).episode
            valid = f"{available.min()} to {available.max()}"
            raise AnalysisError(f"no rows of episodes={shown(episodes)} at checkpoint={checkpoint}; valid: {valid}")
        if not len(index):
            raise AnalysisError(f"{self.recording.path} has no rows of complete episodes")
        return Rows(index, episode[index], t[index])

    def policies(self, checkpoint: int | None = None) -> Mapping[str, Policy]:
        """The policies that made the recording, from its run, league's player, population's member or match.

        Args:
            checkpoint: one of several that were recorded.
        Raises:
            AnalysisError: the run or its checkpoint does not exist, or several made the recording and none was chosen.
            RecordingError: a player of a league has learned since it was recorded.
        """
        iteration, path = self.resolve_checkpoint(checkpoint), self.recording.run_path
        external = self.recording.experiment is None
        advice = "in Python pass policies=agents.by_group" if external else "in Python pass policies={group: policy}"
        if path is None:
            player = recorded_source(self._folder, self.recording.path.stem)
            if player is not None:
                return policies_of(self.recording, player, origin_at(self.recording, 0))
            unknown_policies = f"{self.recording.path} is in no run folder, so its policies are unknown"
            if external:
                raise AnalysisError(f"{unknown_policies} (external agents: {self.recording.source}); {advice}")
            raise AnalysisError(f"{unknown_policies}; {MOVE_REMEDY}, or {advice}")
        run = Run.open(path)
        available = [checkpoint.iteration for checkpoint in run.checkpoints]
        if iteration not in available:
            raise AnalysisError(
                f"{path} no longer has the recording's checkpoint {iteration}, only {available}; {advice}"
            )
        sha256_of = dict(zip(self.recording.checkpoints["iteration"], self.recording.checkpoints["sha256"]))
        try:
            return policies_of(self.recording, run, Origin(iteration, sha256_of[iteration]))
        except RecordingError as error:
            raise AnalysisError(f"{error}; {advice}") from None

    @property
    def is_of_players(self) -> bool:
        """Whether it was made by a league's player, by a population's member or in a match."""
        return self.recording.run_path is None and recorded_source(self._folder, self.recording.path.stem) is not None

    @property
    def _folder(self) -> Path:
        return self.recording.path.absolute().parent.parent

    def resolve_checkpoint(self, checkpoint: int | None = None) -> int:
        """The iteration requested, or the only one.

        Raises:
            AnalysisError: there are several and none was chosen, there is no such iteration, or several networks have
                this iteration, as in merged recordings of agents that learned between them.
        """
        table = self.recording.checkpoints[["iteration", "sha256"]].drop_duplicates()
        available = sorted(set(table["iteration"].tolist()))
        if checkpoint is None and len(available) > 1:
            raise AnalysisError(
                f"{self.recording.path.name} spans checkpoints {available}, each with other networks: choose one with "
                "checkpoint="
            )
        if checkpoint is not None and checkpoint not in available:
            raise AnalysisError(f"no rows of checkpoint {checkpoint} in {self.recording.path.name}; valid: {available}")
        iteration = int(available[0] if checkpoint is None else checkpoint)
        if (n_networks := int((table["iteration"] == iteration).sum())) > 1:
            raise AnalysisError(
                f"{self.recording.path.name} holds {n_networks} networks of checkpoint {iteration}, whose units mean "
                "different things: copy the episodes of one of them with mnb.extract(recording, path, episodes=...)"
            )
        return iteration

    @property
    def agents(self) -> tuple[str, ...]:
        """The group's agents."""
        return self.env.group(self.group).agents

    @property
    def has_critic_state(self) -> bool:
        """Whether the state that enters the group's critic is recorded."""
        return "critic" in self._recorded_states()

    def recorded_agents(self, group: str | None = None) -> list[str]:
        return self.recording.group_agents(group or self.group)

    def missing_agents(self, reads: Reads) -> list[str]:
        """Agents that were not recorded, and on which outputs of this group's recorded agents may depend."""
        needed = {"agent": (), "group": self.agents, "all": self.env.agents}[reads]
        return [agent for agent in needed if agent not in self.recording.agents]

    def check_recorded(self, reads: Reads) -> None:
        """Raises AnalysisError if an agent on which the group's outputs may depend was not recorded."""
        if missing := self.missing_agents(reads):
            raise AnalysisError(
                f"these outputs of {self.group!r} depend on all {'its ' * (reads == 'group')}agents; not recorded: "
                f"{missing}; make a recording of all of them"
            )

    def observations(self, group: str, rows: Rows) -> np.ndarray:
        """`[row, agent, *shape]` in the recording's dtype, zero for agents that were not recorded."""
        return self._read_field("observation", group, rows.index)

    def alive(self, group: str, rows: Rows) -> np.ndarray:
        """`[row, agent]` bool: recorded and not dead."""
        return self._read_field("alive", group, rows.index)

    def acting(self, rows: Rows) -> np.ndarray:
        """`[row, agent]` bool: recorded and asked for an action."""
        return self._read_field("acting", self.group, rows.index)

    def acting_positions(self, rows: Rows, agent: str) -> np.ndarray:
        """Positions of the rows at which an agent acts.

        Raises:
            AnalysisError: there is none.
        """
        acting = np.flatnonzero(self.acting(rows)[:, self.agents.index(agent)])
        if not len(acting):
            raise AnalysisError(f"{agent} acts at none of the {len(rows)} rows")
        return acting

    def field(self, name: str, rows: Rows) -> np.ndarray:
        """`[row, agent, ...]` of this group, zero for agents that were not recorded."""
        return self._read_field(name, self.group, rows.index)

    def recurrent_state(self, rows: Rows) -> np.ndarray:
        """The actor's state that entered each step, `[row, agent, layer, unit]`."""
        return self._expand_to_group(self.group, self.recording.recurrent(self.group).read_rows(rows.index))

    def activations(self, site: str, rows: Rows) -> np.ndarray:
        """`[row, agent, unit]` float32, zero for agents without this site and agents that were not recorded."""
        array = self.recording[site]
        return self._expand_to_group(self.group, array.read_rows(rows.index), list(array.labels["agent"]))

    def mean_observation(
        self, group: str, rows: Rows, where: np.ndarray | None = None, batch_rows: int = 65536
    ) -> Tensor:
        """Each agent's mean over the rows at which it was alive, `[agent, feature]`; zero for one that never was.

        Args:
            where: `[row, agent]` bool, the rows that count for each agent; None: all.
        """
        spec = self.env.group(group)
        total = np.zeros((spec.n_agents, spec.observation.size))
        count = np.zeros((spec.n_agents, 1))
        for start in range(0, len(rows), batch_rows):
            index = rows.index[start : start + batch_rows]
            observation = self._read_field("observation", group, index).reshape(len(index), spec.n_agents, -1)
            counts = self._read_field("alive", group, index)
            if where is not None:
                counts = counts & where[start : start + batch_rows]
            total += np.where(counts[..., None], observation, 0).sum(axis=0, dtype=np.float64)
            count += counts.sum(axis=0)[:, None]
        return torch.from_numpy(total / np.maximum(count, 1)).float()

    def batches(self, rows: Rows, batch_rows: int, *, needs_state: bool = False) -> Iterator[RowBatch]:
        """The rows as tensors, `batch_rows` at a time; `check_recorded` says whether all that is needed was recorded.

        Args:
            needs_state: also read what critics read: the other groups' observations, and the environment's state and
                the critic's, where they exist.
        """
        groups = self.env.group_names if needs_state else (self.group,)
        parts: tuple[Literal["actor", "critic"], ...] = ("actor", "critic") if needs_state else ("actor",)
        states = {part: self.recording.recurrent(self.group, part) for part in parts if part in self._recorded_states()}
        has_mask = "action_mask" in self.recording.fields(self.group)
        has_env_state = needs_state and self.env.state_shape is not None
        for start in range(0, len(rows), batch_rows):
            index = rows.index[start : start + batch_rows]
            yield RowBatch(
                observations={name: _tensor(self._read_field("observation", name, index)) for name in groups},
                action=_tensor(self._read_field("action", self.group, index)),
                acting=_tensor(self._read_field("acting", self.group, index)),
                recurrent=self._read_state(states.get("actor"), index),
                action_mask=_tensor(self._read_field("action_mask", self.group, index)) if has_mask else None,
                state=_tensor(self.recording.state.read_rows(index)) if has_env_state else None,
                critic_recurrent=self._read_state(states.get("critic"), index),
            )

    def label(self, label: str, rows: Rows) -> tuple[np.ndarray, np.ndarray, Sequence[str]]:
        """A recorded label, where it has a value, and the names of its classes.

        Returns:
            the values and where they are known, `[row]` or `[row, agent of the group]` each, and the names. A label of
            agents is known while its agent is alive.
        Raises:
            AnalysisError: the label belongs to other agents.
        """
        array = self.recording.label(label)
        values, class_names = array.read_rows(rows.index), self.recording.classes(label)
        if values.ndim == 1:
            return values, np.ones(values.shape, bool), class_names
        owners = list(array.labels["agent"])
        if owners == self.recorded_agents():
            return self._expand_to_group(self.group, values), self.field("alive", rows), class_names
        if len(owners) == 1:
            group = self.env.group_of(owners[0])
            alive = self._read_field("alive", group.name, rows.index)[:, group.agents.index(owners[0])]
            return values[:, 0], alive, class_names
        raise AnalysisError(
            f"label {label!r} belongs to the agents {owners}, not to {self.group!r}: choose one, such as "
            f"({owners[0]!r}, {label!r})"
        )

    def keeps_every_step(self, rows: Rows) -> bool:
        """Whether each episode's rows are its steps 0, 1, 2, ... without a gap."""
        _, start, number = np.unique(rows.episode, return_index=True, return_inverse=True)
        return bool(np.array_equal(rows.t, np.arange(len(rows)) - start[number]))

    def origin(self, checkpoint: int | None) -> dict[str, Any]:
        """What made the recording, as plain JSON: its last checkpoint, or the one of an iteration."""
        iteration, sha256 = self.recording.checkpoint
        if checkpoint is not None and checkpoint != iteration:
            table = self.recording.checkpoints
            iteration, sha256 = checkpoint, table.loc[table["iteration"] == checkpoint, "sha256"].iloc[0]
        experiment = self.recording.experiment
        return {
            "recording": str(self.recording.path.absolute()),
            "checkpoint": {"iteration": iteration, "sha256": sha256},
            "experiment": None if experiment is None else experiment.to_json(),
            "settings": self.recording.settings,
            "version": __version__,
        }

    def _read_field(self, field: str, group: str, index: np.ndarray) -> np.ndarray:
        """`[row, agent of the group, ...]`; of a group that was not recorded, observations and who is alive: zeros."""
        if group in self.recording.groups:
            return self._expand_to_group(group, self.recording.steps(group, field).read_rows(index))
        spec = self.env.group(group)
        shape, dtype = (spec.observation.shape, spec.observation.dtype) if field == "observation" else ((), "bool")
        return np.zeros((len(index), spec.n_agents, *shape), dtype)

    def _read_state(self, array: LabelledArray | None, index: np.ndarray) -> Tensor | None:
        return None if array is None else _tensor(self._expand_to_group(self.group, array.read_rows(index)))

    def _expand_to_group(self, group: str, values: np.ndarray, recorded: list[str] | None = None) -> np.ndarray:
        """`[row, recorded agent, ...]` -> `[row, agent of the group, ...]`."""
        recorded = self.recorded_agents(group) if recorded is None else recorded
        return expand_agents(values, recorded, self.env.group(group).agents)

    def _recorded_states(self) -> set[str]:
        """The parts of the group's policy, actor or critic, whose recurrent state is recorded."""
        path = f"recurrent/{self.group}"
        return set(self.recording.file[path]) if path in self.recording.file else set()


def _tensor(values: np.ndarray) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return tensor.float() if tensor.is_floating_point() else tensor
