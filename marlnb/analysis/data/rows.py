"""The rows of a recording that an analysis works on, read batch by batch as tensors with every agent in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import marlnb
from marlnb.errors import AnalysisError, unknown
from marlnb.models.policies.policy import Policy
from marlnb.specs import EnvSpec
from marlnb.training.runs.run import Run

if TYPE_CHECKING:
    from marlnb.recording.file.array import LabelledArray
    from marlnb.recording.file.reader import Recording


@dataclass(frozen=True)
class Rows:
    """Chosen rows, in the recording's order: the rows of an episode lie next to each other.

    Attributes:
        index: `[row]`, where they lie in the file; episode, t: `[row]`.
    """

    index: np.ndarray
    episode: np.ndarray
    t: np.ndarray

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Moments:
    """What policies saw and did at a batch of rows.

    Attributes:
        observations: of each group, `[row, agent, *shape]`.
        action: of the group that is explained, `[row, agent(, component)]`; acting: `[row, agent]` bool.
        recurrent: the actor's state that entered the step, `[row, agent, layer, unit]`; action_mask
            `[row, agent, choice]`; state `[row, *state_shape]`; critic_recurrent: the critic's state that entered the
            step, `[row, agent, layer, unit]`; None where there is none.
    """

    observations: Mapping[str, Tensor]
    action: Tensor
    acting: Tensor
    recurrent: Tensor | None = None
    action_mask: Tensor | None = None
    state: Tensor | None = None
    critic_recurrent: Tensor | None = None


class RowSource:
    """One group's view of a recording: chosen rows, in batches, agents that were not recorded left empty.

    Args:
        given: policies by group, where no run folder holds them.
    Raises:
        AnalysisError: no agent of the group is recorded.
    """

    def __init__(self, recording: Recording, group: str, given: Mapping[str, Policy] | None = None) -> None:
        if group not in recording.groups:
            raise AnalysisError(unknown("recorded group", group, recording.groups))
        self.recording, self.group, self.given = recording, group, given
        self.env: EnvSpec = recording.spec

    def rows(
        self, episodes: Sequence[int] | None, checkpoint: int | None = None, steps: Sequence[int] | None = None
    ) -> Rows:
        """All rows, or those of some episodes, by number, of one checkpoint, by its iteration, or of some steps.

        Raises:
            AnalysisError: there are none.
        """
        table = self.recording.rows
        episode, t = table["episode"].to_numpy(), table["t"].to_numpy()
        index = np.arange(len(episode))
        if episodes is not None:
            missing = sorted(set(map(int, episodes)) - set(episode.tolist()))
            if missing:
                raise AnalysisError(f"no episodes {missing[:5]} in this recording; it has {len(set(episode))} of them")
            index = index[np.isin(episode, np.asarray(episodes, dtype=np.int64))]
        if checkpoint is not None:
            index = index[self._of_checkpoint(checkpoint, len(episode))[index]]
        if steps is not None and len(index):
            there = t[index]
            index = index[np.isin(there, np.asarray(steps, dtype=np.int64))]
            if not len(index):
                asked = ", ".join(map(str, steps)) or "none"
                raise AnalysisError(
                    f"no row is at the steps asked for ({asked}); there are {there.min()} to {there.max()}"
                )
        if not len(index):
            raise AnalysisError(f"{self.recording.path} has no rows of whole episodes to analyse")
        return Rows(index, episode[index], t[index])

    def policies(self, checkpoint: int | None = None) -> Mapping[str, Policy]:
        """Those of the checkpoint that made the recording, or one of those, found by its place in the run folder.

        Raises:
            AnalysisError: the run is not there, no longer has that checkpoint, or several made it and none was chosen.
        """
        if checkpoint is None:
            self.one_checkpoint()
        path, (iteration, sha256) = self.recording.run_path, self._made_by(checkpoint)
        elsewhere = self.recording.experiment is None
        advice = "pass policies=agents.by_group" if elsewhere else "pass policies={group: policy}"
        if path is None:
            whose = f" (agents from elsewhere: {self.recording.source})" if elsewhere else ""
            raise AnalysisError(f"{self.recording.path} lies in no run folder: policies unknown{whose}; {advice}")
        run = Run.open(path)
        have = [checkpoint.iteration for checkpoint in run.checkpoints]
        if iteration not in have:
            raise AnalysisError(f"{path} no longer has the recording's checkpoint {iteration}, only {have}; {advice}")
        if run.checkpoint(iteration).sha256 != sha256:
            raise AnalysisError(f"checkpoint {iteration} of {path} is not the one that made this recording; {advice}")
        return run.policies(iteration)

    def _made_by(self, checkpoint: int | None) -> tuple[int, str]:
        """Iteration and sha256."""
        if checkpoint is None:
            return self.recording.checkpoint
        table = self.recording.checkpoints.set_index("iteration")["sha256"]
        return checkpoint, str(table[[self.one_checkpoint(checkpoint)]].iloc[0])

    def one_checkpoint(self, checkpoint: int | None = None) -> int:
        """The iteration whose rows are meant: the one asked for, or the only one.

        Raises:
            AnalysisError: there are several and none was chosen, or no such.
        """
        have = sorted(set(self.recording.checkpoints["iteration"].tolist()))
        if checkpoint is None and len(have) > 1:
            raise AnalysisError(
                f"{self.recording.path.name} spans checkpoints {have}, of other networks each: choose one with "
                "checkpoint="
            )
        if checkpoint is not None and checkpoint not in have:
            raise AnalysisError(f"no rows of checkpoint {checkpoint} in {self.recording.path.name}; it has {have}")
        return int(have[0] if checkpoint is None else checkpoint)

    def _of_checkpoint(self, checkpoint: int, n_rows: int) -> np.ndarray:
        """Which rows were played by it, `[row]` bool."""
        self.one_checkpoint(checkpoint)
        table, of = self.recording.checkpoints, np.zeros(n_rows, bool)
        for start, stop in table.loc[table["iteration"] == checkpoint, ["row_start", "row_stop"]].to_numpy():
            of[start:stop] = True
        return of

    @property
    def has_critic_state(self) -> bool:
        """Whether the state that enters the group's critic is recorded."""
        return any(name.startswith(f"recurrent/{self.group}/critic") for name in self._names("recurrent"))

    def recorded_agents(self, group: str | None = None) -> list[str]:
        return self.recording.group_agents(group or self.group)

    def observations(self, group: str, rows: Rows) -> np.ndarray:
        """`[row, agent, *shape]` in the recording's dtype, zero for agents that were not recorded."""
        return self._by_agent("observation", group, rows.index)

    def acting(self, rows: Rows) -> np.ndarray:
        """`[row, agent]` bool: recorded and asked for an action."""
        return self._by_agent("acting", self.group, rows.index)

    def field(self, name: str, rows: Rows) -> np.ndarray:
        """`[row, agent, ...]` of this group, zero for agents that were not recorded."""
        return self._by_agent(name, self.group, rows.index)

    def recurrent_state(self, rows: Rows) -> np.ndarray:
        """The actor's state that entered each step, `[row, agent, layer, unit]`."""
        return self._spread(self.group, _read(self.recording.recurrent(self.group), rows.index))

    def activations(self, site: str, rows: Rows) -> np.ndarray:
        """`[row, agent, unit]` float32, zero for agents that the site is not of or that were not recorded."""
        array = self.recording[site]
        return self._spread(self.group, _read(array, rows.index), list(array.labels["agent"]))

    def mean_observation(self, group: str, rows: Rows, batch_rows: int = 65536) -> Tensor:
        """Each agent's mean over the rows at which it was alive, `[agent, feature]`; zero for one that never was."""
        spec = self.env.group(group)
        total = np.zeros((spec.n_agents, spec.observation.size))
        count = np.zeros((spec.n_agents, 1))
        for start in range(0, len(rows), batch_rows):
            index = rows.index[start : start + batch_rows]
            seen = self._by_agent("observation", group, index).reshape(len(index), spec.n_agents, -1)
            alive = self._by_agent("alive", group, index)[..., None]
            total += np.where(alive, seen, 0).sum(axis=0, dtype=np.float64)
            count += alive.sum(axis=0)
        return torch.from_numpy(total / np.maximum(count, 1)).float()

    def batches(
        self, rows: Rows, batch_rows: int, *, needs_state: bool = False, every_group: bool | None = None
    ) -> Iterator[Moments]:
        """The rows as tensors, `batch_rows` at a time.

        Args:
            needs_state: also the environment's state and the critic's, where there are any; every_group: also the
                other groups' observations (None: when the state is needed, since critics read both).
        Raises:
            AnalysisError: an agent whose observation is needed was not recorded.
        """
        all_groups = needs_state if every_group is None else every_group
        if all_groups:
            self._check_all_recorded()
        groups = self.env.group_names if all_groups else (self.group,)
        fields = self.recording.fields(self.group)
        held = [name.split("/")[2] for name in self._names("recurrent") if name.startswith(f"recurrent/{self.group}/")]
        recurrent, critic = "actor" in held, needs_state and "critic" in held
        state = needs_state and self.env.state_shape is not None
        for start in range(0, len(rows), batch_rows):
            index = rows.index[start : start + batch_rows]
            own = self.recording.recurrent(self.group) if recurrent else None
            critics = self.recording.recurrent(self.group, part="critic") if critic else None
            yield Moments(
                observations={name: _tensor(self._by_agent("observation", name, index)) for name in groups},
                action=_tensor(self._by_agent("action", self.group, index)),
                acting=_tensor(self._by_agent("acting", self.group, index)),
                recurrent=None if own is None else _tensor(self._spread(self.group, _read(own, index))),
                action_mask=_tensor(self._by_agent("action_mask", self.group, index))
                if "action_mask" in fields
                else None,
                state=_tensor(_read(self.recording.state, index)) if state else None,
                critic_recurrent=None if critics is None else _tensor(self._spread(self.group, _read(critics, index))),
            )

    def label(self, label: str | np.ndarray, rows: Rows) -> tuple[np.ndarray, str, Sequence[str]]:
        """A label `[row]` or `[row, agent of the group]`, its name and the names of its classes."""
        if not isinstance(label, str):
            given = np.asarray(label)
            if len(given) != len(self.recording):
                raise AnalysisError(
                    f"a label has a value for each of the recording's {len(self.recording)} rows; got {len(given)}"
                )
            return given[rows.index], "label", ()
        array = self.recording.label(label)
        values, classes = _read(array, rows.index), self.recording.classes(label)
        if values.ndim == 1:
            return values, label, classes
        bearers = list(array.labels["agent"])
        if bearers == self.recorded_agents():
            return self._spread(self.group, values), label, classes
        if len(bearers) == 1:
            return values[:, 0], label, classes
        raise AnalysisError(
            f"label {label!r} is of the agents {bearers}, not of {self.group!r}: "
            f"say whose, as ({bearers[0]!r}, {label!r})"
        )

    def keeps_every_step(self, rows: Rows) -> bool:
        """Whether each episode's rows are its steps 0, 1, 2, ... without a gap."""
        _, start, number = np.unique(rows.episode, return_index=True, return_inverse=True)
        return bool(np.array_equal(rows.t, np.arange(len(rows)) - start[number]))

    def origin(self) -> dict[str, Any]:
        """What made the recording, as plain JSON."""
        iteration, sha256 = self.recording.checkpoint
        experiment = self.recording.experiment
        return {
            "recording": str(self.recording.path.absolute()),
            "checkpoint": {"iteration": iteration, "sha256": sha256},
            "experiment": None if experiment is None else experiment.to_json(),
            "settings": self.recording.settings,
            "version": marlnb.__version__,
        }

    def _by_agent(self, field: str, group: str, index: np.ndarray) -> np.ndarray:
        return self._spread(group, _read(self.recording.steps(group, field), index))

    def _spread(self, group: str, values: np.ndarray, recorded: list[str] | None = None) -> np.ndarray:
        """`[row, recorded agent, ...]` -> `[row, agent of the group, ...]`."""
        agents = self.env.group(group).agents
        recorded = self.recorded_agents(group) if recorded is None else recorded
        if list(agents) == recorded:
            return values
        spread = np.zeros((len(values), len(agents), *values.shape[2:]), values.dtype)
        spread[:, [agents.index(agent) for agent in recorded]] = values
        return spread

    def _check_all_recorded(self) -> None:
        missing = [agent for agent in self.env.agents if agent not in self.recording.agents]
        if missing:
            raise AnalysisError(f"a critic reads every agent's observation; not recorded: {missing}")

    def _names(self, top: str) -> list[str]:
        found: list[str] = []
        if top in self.recording.file:
            self.recording.file[top].visit(lambda name: found.append(f"{top}/{name}"))
        return found


def _read(array: LabelledArray, index: np.ndarray) -> np.ndarray:
    return replace(array, rows=index).to_numpy()


def _tensor(values: np.ndarray) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return tensor.float() if tensor.is_floating_point() else tensor
