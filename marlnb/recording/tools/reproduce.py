"""replay: plays a recorded episode again from what its file says and compares every field, row by row.

The episode runs in the copy that played it, beside as many others, since a matrix product over another number of rows
adds up in another order. Activations that were computed for many episodes at once may still differ by rounding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from marlnb.config import EnvConfig
from marlnb.envs.vector import SEED_SPAN, Step, VectorEnv
from marlnb.errors import RecordingError
from marlnb.models.hooks.edits import Edit
from marlnb.recording.capture.episode_recorder import EpisodeRecorder
from marlnb.recording.capture.policy_source import check_origin, maker_of, origin_at
from marlnb.recording.capture.preparation import Prepared, prepare
from marlnb.recording.capture.request import Request
from marlnb.recording.file.array import LabelledArray
from marlnb.recording.file.layout import BFLOAT16
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.copying import all_paths, stored_rows
from marlnb.training.collect.episodes import play
from marlnb.training.policies.policy_source import PolicySource

if TYPE_CHECKING:
    import pandas as pd

PLACE = ("steps/env_id", "steps/episode")  # where an episode lay, not what happened in it


@dataclass(frozen=True)
class Difference:
    """Attributes: path: the dataset; largest: the greatest difference of its numbers; t, agent: where that is; rows:
    how many rows differ."""

    path: str
    largest: float
    t: int
    agent: str | None
    rows: int


@dataclass(frozen=True)
class Replay:
    """What a replay found.

    Attributes:
        episode: its number; n_rows: compared.
        differences: of the fields that are not bit-identical, the largest first.
        compared, not_compared: datasets; a user's labels, for one, are known to the user alone.
        actions: "recorded" ones were fed to the environment, or "recomputed" ones.
    """

    episode: int
    n_rows: int
    differences: tuple[Difference, ...]
    compared: tuple[str, ...]
    not_compared: tuple[str, ...]
    actions: str

    @property
    def exact(self) -> bool:
        """Whether all that was compared is bit-identical."""
        return not self.differences

    @property
    def largest(self) -> float:
        return max((difference.largest for difference in self.differences), default=0.0)

    def table(self) -> pd.DataFrame:
        """One row a dataset that was compared."""
        import pandas as pd

        found = {difference.path: difference for difference in self.differences}
        rows = [found.get(path, Difference(path, 0.0, -1, None, 0)) for path in self.compared]
        return pd.DataFrame([vars(row) for row in rows])

    def __repr__(self) -> str:
        head = f"<Replay of episode {self.episode}: {self.n_rows} rows, {len(self.compared)} datasets"
        if self.exact:
            return f"{head}, exact>"
        worst = self.differences[0]
        where = f"t={worst.t}" + (f", {worst.agent}" if worst.agent else "")
        return f"{head}, {len(self.differences)} differ, most {worst.path} by {worst.largest:.3g} at {where}>"


def replay(
    recording: Recording,
    episode: int,
    *,
    subject: PolicySource | str | os.PathLike[str] | None = None,
    env: EnvConfig | None = None,
) -> Replay:
    """Plays one recorded episode again, under its seed and checkpoint, and compares.

    Recorded actions are fed to the environment where all of them are there; else the most likely ones are taken again.

    Args:
        subject: whose agents were recorded, where the file does not lie in their run's folder.
        env: the environment that was recorded, where it was not the subject's own.
    Raises:
        RecordingError: no such episode, or it broke off; other weights or another environment than were recorded;
            sampled actions that are not all in the file.
    """
    table = recording.episodes
    if episode not in table.index or not table.loc[episode, "finished"]:
        raise RecordingError(f"{recording.path.name} has no finished episode {episode}; it has {len(table)}")
    entry = table.loc[episode]
    rows = np.arange(int(entry["start"]), int(entry["start"] + entry["length"]))
    maker, origin = maker_of(recording, subject), origin_at(recording, int(rows[0]))
    check_origin(recording, maker, origin)
    fed = _recorded_actions(recording, rows)
    copy = int(recording.file["steps/env_id"][rows[0]])
    with prepare(maker, _request(recording, origin.iteration, copy, env)) as prepared:
        if prepared.env.spec != recording.spec:
            raise RecordingError(
                f"{recording.path.name} was recorded in {recording.spec.name}, and this is {prepared.env.spec.name} or "
                f"differs in its spaces; give env="
            )
        played = _play(prepared, copy, (int(entry["seed"]) - copy) % SEED_SPAN, fed)
    return _compare(recording, episode, rows, played, sampled=bool(recording.settings["explore"]), fed=fed is not None)


def _request(recording: Recording, iteration: int, copy: int, env: EnvConfig | None) -> Request:
    settings = recording.settings
    n_envs = max(int(settings["n_envs"]), copy + 1)
    return Request(
        episodes=n_envs,
        sites=recording.sites,
        agents=recording.agents,
        every=int(recording.file.attrs["every"]),
        dtype=str(recording.file.attrs["dtype"]),
        seed=0,
        explore=False,
        values=bool(settings["values"]),
        frames=False,
        checkpoint=iteration,
        n_envs=n_envs,
        env=env,
        device="cpu",
        edits=tuple(Edit.from_json(edit) for edit in settings.get("edits", ())),
    )


def _recorded_actions(recording: Recording, rows: np.ndarray) -> dict[str, Tensor] | None:
    """By group `[t, agent, ...]`; None where the file does not hold all of them and they can be chosen again."""
    spec = recording.spec
    missing = [agent for agent in spec.agents if agent not in recording.agents]
    whole = int(recording.file.attrs["every"]) == 1 and not missing
    if whole and all("action" in recording.fields(group) for group in spec.group_names):
        return {
            group: torch.from_numpy(stored_rows(recording.steps(group, "action"), rows)) for group in spec.group_names
        }
    if recording.settings["explore"]:
        lacking = f"those of {missing}" if missing else "those of the steps in between"
        raise RecordingError(f"{recording.path.name}: actions were sampled, and {lacking} were not recorded")
    return None


class _Done(Exception):
    """The episode is over."""


@dataclass
class _Kept:
    """A writer that keeps rows in memory."""

    path: Path
    names: Sequence[str]
    copy: int
    rows: int = 0
    block_rows: int = 0
    flush_is_due: bool = False
    parts: list[Sequence[np.ndarray]] = field(default_factory=list)
    ended: bool = False

    def append(self, sources: Sequence[np.ndarray]) -> None:
        self.parts.append([np.array(source).reshape(-1, *source.shape[2:]) for source in sources])
        self.rows += len(self.parts[-1][0])

    def add_episodes(self, columns: Mapping[str, np.ndarray], returns: np.ndarray) -> None:
        self.ended |= self.copy in columns["episode"]

    def flush_if_due(self) -> None:
        """Nothing: memory is all there is."""

    def stop_when_ended(self, n_episodes: int) -> None:
        if self.ended:
            raise _Done

    def found(self) -> dict[str, np.ndarray]:
        """The rows of the copy's first episode, by dataset."""
        joined = {name: np.concatenate([part[place] for part in self.parts]) for place, name in enumerate(self.names)}
        own = joined["steps/episode"] == self.copy
        return {name: values[own] for name, values in joined.items()}


class _Fed(VectorEnv):
    """An environment one copy of which is fed recorded actions during its first episode."""

    def __init__(self, env: VectorEnv, copy: int, actions: Mapping[str, Tensor]) -> None:
        self.env, self.copy, self.actions = env, copy, actions
        self.spec, self.n_envs, self.device = env.spec, env.n_envs, env.device
        self.t = 0

    def reset(self, seed: int) -> Step:
        self.t = 0
        return self.env.reset(seed)

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        if self.t < len(next(iter(self.actions.values()))):
            actions = {name: action.clone() for name, action in actions.items()}
            for name, action in actions.items():
                action[self.copy] = self.actions[name][self.t].to(action.device)
        self.t += 1
        return self.env.step(actions)

    def labels(self) -> dict[str, Tensor]:
        return self.env.labels()

    def label_moment(self) -> Tensor | None:
        return self.env.label_moment()

    def labels_of(self, moments: Tensor) -> dict[str, Tensor]:
        return self.env.labels_of(moments)


def _play(prepared: Prepared, copy: int, seed: int, fed: Mapping[str, Tensor] | None) -> dict[str, np.ndarray]:
    contents = prepared.trial.contents
    kept = _Kept(Path(os.devnull), [item.path for item in contents.fields], copy)
    env = prepared.env if fed is None else _Fed(prepared.env, copy, fed)
    recorder = EpisodeRecorder(
        env,
        contents,
        kept,
        every=prepared.request.every,
        activations=prepared.activations,
        on_episodes=kept.stop_when_ended,
    )
    with suppress(_Done):
        play(env, prepared.policies, episodes=copy + 1, seed=seed, explore=False, callback=recorder)
    return kept.found()


def _compare(
    recording: Recording, episode: int, rows: np.ndarray, played: dict[str, np.ndarray], *, sampled: bool, fed: bool
) -> Replay:
    skipped = ("/action", "/log_prob") if sampled else ()  # those of the recording were drawn
    paths = [path for path in all_paths(recording) if path not in PLACE]
    compared = [path for path in paths if path in played and not (skipped and path.endswith(skipped))]
    differences = []
    for path in compared:
        array = recording._array(path)
        found = _difference(array, stored_rows(array, rows), played[path], played["steps/t"])
        if found is not None:
            differences.append(found)
    differences.sort(key=lambda difference: -difference.largest)
    left = tuple(path for path in paths if path not in compared)
    how = "recorded" if fed else "recomputed"
    return Replay(episode, len(rows), tuple(differences), tuple(compared), left, how)


def _difference(array: LabelledArray, was: np.ndarray, now: np.ndarray, t: np.ndarray) -> Difference | None:
    if len(was) != len(now):
        return Difference(array.path, float("inf"), min(len(was), len(now)), None, abs(len(was) - len(now)))
    if was.tobytes() == np.ascontiguousarray(now, was.dtype).tobytes():
        return None
    a, b = (_numbers(values, array.dtype_stored) for values in (was, now))
    gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    gap = np.nan_to_num(gap, nan=np.inf)
    if not gap.any():
        return None
    place = np.unravel_index(int(gap.argmax()), gap.shape)
    agents = array.labels.get("agent")
    agent = agents[int(place[1])] if agents else None
    n_rows = int(gap.reshape(len(gap), -1).any(axis=1).sum())
    return Difference(array.path, float(gap.max()), int(t[place[0]]), agent, n_rows)


def _numbers(values: np.ndarray, stored: str) -> Any:
    if stored == BFLOAT16:
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)
