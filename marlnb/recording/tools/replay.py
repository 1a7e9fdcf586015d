"""replay: plays a recorded episode again, from what its file states, and compares every field row by row.

The episode runs in the env that played it, next to as many others, because a matrix product over another number of
rows sums in another order. Activations that were computed for many episodes at once may still differ by rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from marlnb.config import EnvConfig
from marlnb.display.formatting import count
from marlnb.envs.vector import Step, VectorEnv
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import RecordingError
from marlnb.models.hooks.edit import Edit
from marlnb.recording.capture.config import RecordingConfig
from marlnb.recording.capture.episode_recorder import EpisodeRecorder
from marlnb.recording.capture.preparation import Prepared, prepare
from marlnb.recording.file.array import LabelledArray
from marlnb.recording.file.layout import BFLOAT16, bfloat16_numbers, row_paths
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.copying import stored_rows
from marlnb.recording.tools.recorded_env import check_env
from marlnb.recording.tools.recorded_policies import check_origin, edits_of, origin_of, source_of
from marlnb.specs import SEED_SPAN
from marlnb.training.collect.episodes import play
from marlnb.training.policies.policy_source import PolicySourceLike

if TYPE_CHECKING:
    import pandas as pd

NOT_COMPARED = ("steps/env_id", "steps/episode")  # which env played the episode, not what happened in it


@dataclass(frozen=True)
class Difference:
    """How one dataset differs between the recording and its reproduction.

    Attributes:
        path: the dataset.
        largest: the greatest absolute difference.
        t: the step of the greatest difference.
        agent: the agent of the greatest difference; None where the dataset has no agents.
        rows: rows that differ.
    """

    path: str
    largest: float
    t: int
    agent: str | None
    rows: int


@dataclass(frozen=True)
class Reproduction:
    """The result of `replay`.

    Attributes:
        episode: its number.
        n_rows: rows compared.
        differences: of the datasets that are not bit-identical, the largest first.
        compared: datasets that were compared.
        not_compared: the others, as labels that only the user can compute.
        actions: "recorded" actions were fed to the environment, or "recomputed" ones.
    """

    episode: int
    n_rows: int
    differences: tuple[Difference, ...]
    compared: tuple[str, ...]
    not_compared: tuple[str, ...]
    actions: str

    @property
    def exact(self) -> bool:
        """Whether everything compared is bit-identical."""
        return not self.differences

    @property
    def largest(self) -> float:
        return max((difference.largest for difference in self.differences), default=0.0)

    def table(self) -> pd.DataFrame:
        """One row per compared dataset."""
        import pandas as pd

        by_path = {difference.path: difference for difference in self.differences}
        rows = [by_path.get(path, Difference(path, 0.0, -1, None, 0)) for path in self.compared]
        return pd.DataFrame([vars(row) for row in rows])

    def __repr__(self) -> str:
        head = f"<Reproduction of episode {self.episode}: {count(self.n_rows, 'row')}, {len(self.compared)} datasets"
        if self.exact:
            return f"{head}, exact>"
        worst = self.differences[0]
        where = f"t={worst.t}" + (f", {worst.agent}" if worst.agent else "")
        return f"{head}, {len(self.differences)} differ, most of all {worst.path} by {worst.largest:.3g} at {where}>"


@closing_pools()
def replay(
    recording: RecordingLike,
    episode: int,
    *,
    policy_source: PolicySourceLike | None = None,
    env: EnvConfig | None = None,
) -> Reproduction:
    """Plays one recorded episode again, with its seed and checkpoint, and compares.

    Replays the recorded actions if all were recorded, otherwise recomputes greedy actions.

    Args:
        policy_source: the recorded run or agents, where the file is not in their run folder.
        env: the recorded environment, where it was not the one of `policy_source`.
    Raises:
        RecordingError: the episode does not exist, is unfinished or has no known start; several checkpoints played it;
            the weights or the environment differ from those recorded; sampled actions are missing in the file; or it
            was recorded with edits that draw random numbers.
    """
    recording = opened_recording(recording)
    table = recording.episodes
    if episode not in table.index or not table.loc[episode, "finished"]:
        raise RecordingError(
            f"{recording.path.name} has no finished episode {episode}; it has {count(len(table), 'episode')}, "
            f"{int(table['finished'].sum())} of them finished"
        )
    check_start(recording, episode)
    entry = table.loc[episode]
    rows = np.arange(int(entry["start"]), int(entry["start"] + entry["length"]))
    source, origin = source_of(recording, policy_source), origin_of(recording, episode)
    check_origin(recording, source, origin)
    check_env(recording, source, env)
    actions = recorded_actions(recording, rows)
    env_index = int(recording.file["steps/env_id"][rows[0]])
    config = _config(recording, origin.iteration, env_index, env, edits_of(recording, source))
    if drawing := [f"{edit.name} of {edit.site}" for edit in config.edits if edit.is_random]:
        raise RecordingError(
            f"{recording.path.name} cannot be played again: it was recorded with edits that draw random numbers "
            f"({', '.join(drawing)}), which depend on all episodes before"
        )
    with prepare(source, config) as prepared:
        if prepared.env.spec != recording.spec:
            raise RecordingError(
                f"{recording.path.name} was recorded in {recording.spec.name}; {prepared.env.spec.name} is another "
                "environment or has other spaces; give env="
            )
        number = (int(entry["seed"]) - int(recording.file.attrs["seed"])) % SEED_SPAN  # of its checkpoint's episodes
        first = max(0, number - env_index)
        seed = (int(entry["seed"]) - env_index) % SEED_SPAN - first
        played = _play(prepared, recording.path, env_index, first, seed, actions)
    return _compare(recording, episode, rows, played, "recomputed" if actions is None else "recorded")


def check_start(recording: Recording, episode: int) -> None:
    """Raises RecordingError unless an episode's seed is known and its first step is recorded."""
    entry = recording.episodes.loc[episode]
    first_t = int(recording.file["steps/t"][int(entry["start"])])
    if first_t or entry["seed"] < 0:
        problem = f"its first recorded step is t={first_t}" if first_t else "its seed is unknown"
        raise RecordingError(f"{recording.path.name}: episode {episode} cannot be played again, because {problem}")


def _config(
    recording: Recording, iteration: int, env_index: int, env: EnvConfig | None, edits: tuple[Edit, ...]
) -> RecordingConfig:
    settings = recording.settings
    n_envs = max(int(settings["n_envs"]), env_index + 1)
    return RecordingConfig(
        episodes=n_envs,
        sites=tuple(recording.sites),
        agents=tuple(recording.agents),
        every=int(recording.file.attrs["every"]),
        dtype=str(recording.file.attrs["dtype"]),
        seed=0,
        values=bool(settings["values"]),
        fill=settings.get("fill", "recomputed"),
        checkpoint=iteration,
        n_envs=n_envs,
        env=env,
        edits=edits,
    )


def recorded_actions(recording: Recording, rows: np.ndarray) -> dict[str, Tensor] | None:
    """By group `[t, agent, ...]`; None where some are missing but greedy actions can be recomputed."""
    spec = recording.spec
    missing = [agent for agent in spec.agents if agent not in recording.agents]
    has_all = int(recording.file.attrs["every"]) == 1 and not missing
    if has_all and all("action" in recording.fields(group) for group in spec.group_names):
        return {
            group: torch.from_numpy(stored_rows(recording.steps(group, "action"), rows)) for group in spec.group_names
        }
    if recording.settings["explore"]:
        which = f"those of {missing}" if missing else "those of the steps in between"
        raise RecordingError(f"{recording.path.name}: actions were sampled, and {which} were not recorded")
    return None


class _EpisodeFinished(Exception):
    """Raised to end the rollout."""


@dataclass
class _MemoryWriter:
    """A writer that keeps rows in memory, and ends the rollout after one episode.

    Attributes:
        path: of the recording; buffers that exceed the memory are next to it.
        episode: its number.
    """

    path: Path
    names: Sequence[str]
    episode: int
    rows: int = 0
    block_rows: int = 0
    flush_is_due: bool = False
    parts: list[Sequence[np.ndarray]] = field(default_factory=list)
    finished: bool = False

    def append(self, sources: Sequence[np.ndarray]) -> None:
        self.parts.append([np.array(source).reshape(-1, *source.shape[2:]) for source in sources])
        self.rows += len(self.parts[-1][0])

    def add_episodes(self, columns: Mapping[str, np.ndarray], returns: np.ndarray) -> None:
        self.finished |= self.episode in columns["episode"]

    def flush_if_due(self) -> None:
        """Does nothing: there is no file."""

    def stop_when_finished(self, n_episodes: int) -> None:
        if self.finished:
            raise _EpisodeFinished

    def columns(self) -> dict[str, np.ndarray]:
        """By dataset, the rows of the episode."""
        joined = {name: np.concatenate([part[index] for part in self.parts]) for index, name in enumerate(self.names)}
        is_episode = joined["steps/episode"] == self.episode
        return {name: values[is_episode] for name, values in joined.items()}


class _ReplayedActions(VectorEnv):
    """An environment in which one env takes recorded actions during its first episode."""

    def __init__(self, env: VectorEnv, env_index: int, actions: Mapping[str, Tensor]) -> None:
        self.env, self.env_index, self.actions = env, env_index, actions
        self.spec, self.n_envs, self.device = env.spec, env.n_envs, env.device
        self.t = 0

    def reset(self, seed: int) -> Step:
        self.t = 0
        return self.env.reset(seed)

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        if self.t < len(next(iter(self.actions.values()))):
            actions = {name: action.clone() for name, action in actions.items()}
            for name, action in actions.items():
                action[self.env_index] = self.actions[name][self.t].to(action.device)
        self.t += 1
        return self.env.step(actions)

    def labels(self) -> dict[str, Tensor]:
        return self.env.labels()

    def label_state(self) -> Tensor | None:
        return self.env.label_state()

    def labels_of(self, moments: Tensor) -> dict[str, Tensor]:
        return self.env.labels_of(moments)


def _play(
    prepared: Prepared, path: Path, env_index: int, first: int, seed: int, actions: Mapping[str, Tensor] | None
) -> dict[str, np.ndarray]:
    """Plays the first episode of one env, under the number that it had, since edits may read it."""
    schema = prepared.dry_run.schema
    writer = _MemoryWriter(path, [item.path for item in schema.fields], first + env_index)
    env = prepared.env if actions is None else _ReplayedActions(prepared.env, env_index, actions)
    every, on_episodes = prepared.config.every, writer.stop_when_finished
    recorder = EpisodeRecorder(
        env, schema, writer, every=every, activations=prepared.activations, on_episodes=on_episodes
    )
    with suppress(_EpisodeFinished):
        play(env, prepared.policies, episodes=env_index + 1, seed=seed, explore=False, first=first, callback=recorder)
    return writer.columns()


def _compare(
    recording: Recording, episode: int, rows: np.ndarray, played: dict[str, np.ndarray], actions: str
) -> Reproduction:
    # sampled actions were drawn at random
    skipped = ("/action", "/log_prob") if recording.settings["explore"] else ()
    paths = [path for path in row_paths(recording.file) if path not in NOT_COMPARED]
    compared = [path for path in paths if path in played and not (skipped and path.endswith(skipped))]
    items = (_difference(recording._array(path), rows, played[path], played["steps/t"]) for path in compared)
    differences = sorted((item for item in items if item is not None), key=lambda difference: -difference.largest)
    not_compared = tuple(path for path in paths if path not in compared)
    return Reproduction(episode, len(rows), tuple(differences), tuple(compared), not_compared, actions)


def _difference(array: LabelledArray, rows: np.ndarray, played: np.ndarray, t: np.ndarray) -> Difference | None:
    recorded = stored_rows(array, rows)
    if len(recorded) != len(played):
        shorter = min(len(recorded), len(played))
        return Difference(array.path, float("inf"), shorter, None, abs(len(recorded) - len(played)))
    if recorded.tobytes() == np.ascontiguousarray(played, recorded.dtype).tobytes():
        return None
    is_bits = array.dtype_stored == BFLOAT16
    a, b = (np.asarray(bfloat16_numbers(x) if is_bits else x, np.float64) for x in (recorded, played))
    gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    gap = np.nan_to_num(gap, nan=np.inf)
    if not gap.any():
        return None
    index = np.unravel_index(int(gap.argmax()), gap.shape)
    agents = array.labels.get("agent")
    agent = agents[int(index[1])] if agents else None
    n_rows = int(gap.reshape(len(gap), -1).any(axis=1).sum())
    return Difference(array.path, float(gap.max()), int(t[index[0]]), agent, n_rows)
