"""A recording as Minari datasets for offline learning, one per agent.

Minari needs one observation more than actions: the one after the last step. A recording holds the observations before
each step only, so the last one is repeated, and each dataset's description says so. This matters for value estimates of
the last step of a truncated episode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np

from marlnb.disk import writing
from marlnb.errors import RecordingError, RecordingWriteError, unknown
from marlnb.paths import expanded
from marlnb.recording.export.selection import optional_import
from marlnb.recording.file.journal import JournaledFile
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.recording.file.reader import Recording
from marlnb.specs import GroupSpec

FINAL_OBSERVATION_NOTE = (
    "the final observation of each episode was not recorded; the last recorded one is repeated there"
)


def to_minari(
    recording: RecordingLike,
    dataset_id: str,
    *,
    group: str | None = None,
    agents: str | Sequence[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> list[str]:
    """Writes one Minari dataset per agent and returns their names, as `talk-listener_0-v0` of `talk-v0`.

    They hold finished episodes and the steps at which the agent acts; rewards in between are added up. Minari numbers
    them 0, 1, 2, ...; the infos `episode` and `t` are the recording's. The observation after the last step was not
    recorded, so the last one is repeated, and the description says so.

    Args:
        recording: what is converted.
        dataset_id: `<name>-v<number>`.
        group: the agents' group; None: every group.
        agents: one name or several; None: all.
        folder: Minari's root of datasets (MINARI_DATASETS_PATH); None: Minari's default.
    Raises:
        RecordingError: not every step was recorded, an agent is not recorded, or Minari has the dataset already or
            accepts no such id; or the disk refuses a write. No dataset is written then.
        ConfigError: Minari is not installed.
    """
    recording = opened_recording(recording)
    minari = optional_import("minari")
    if int(recording.file.attrs["every"]) > 1:
        raise RecordingError(f"{recording.path.name} holds every k-th step only; Minari needs every step")
    pairs = _group_agents(recording, group, [agents] if isinstance(agents, str) else agents)
    name, _, version = dataset_id.rpartition("-v")
    ids = [f"{name}-{agent}-v{version}" for _, agent in pairs] if len(pairs) > 1 else [dataset_id] * len(pairs)
    namespaces = {_namespace(minari, each) for each in (dataset_id, *ids)} - {None}
    with _datasets_in(folder):
        root = minari.storage.get_dataset_path()
        for each in ids:
            if (root / each).exists():
                raise RecordingError(f"the Minari dataset {each!r} already exists; give another name or version")
        # written to a hidden folder first: after an error or a kill, no name is taken
        with writing(root, kind=RecordingWriteError), TemporaryDirectory(prefix=".marlnb-", dir=root) as partial:
            with _datasets_in(partial):
                for each, (group_name, agent) in zip(ids, pairs):
                    _write(minari, recording, group_name, agent, each)
            for namespace in namespaces.difference(minari.namespace.list_local_namespaces()):
                minari.namespace.create_namespace(namespace)
            for each in ids:
                (Path(partial) / each).rename(root / each)
    return ids


def _namespace(minari: Any, dataset_id: str) -> str | None:
    """The folders before the dataset's name, if there are any.

    Raises:
        RecordingError: Minari accepts no such id.
    """
    try:
        namespace: str | None = minari.dataset.minari_dataset.parse_dataset_id(dataset_id)[0]
    except (ValueError, TypeError) as error:  # the second one: it has no version
        raise RecordingError(
            "a Minari dataset id must be <name>-v<number>, with letters, digits, _, - and / in the name; "
            f"got {dataset_id!r}"
        ) from error
    return namespace


def _write(minari: Any, recording: Recording, group: str, agent: str, dataset_id: str) -> None:
    buffers = list(_episodes(minari, recording, group, agent))
    if not buffers:
        raise RecordingError(f"{recording.path.name}: {agent} acts in no finished episode")
    observation, action = _spaces(recording.spec.group(group))
    folder = Path(minari.storage.get_dataset_path(dataset_id)) / "data"
    folder.mkdir(parents=True)
    storage = optional_import("minari.dataset.minari_storage").MinariStorage.new(folder, observation, action)
    storage.update_metadata(
        {
            "dataset_id": dataset_id,
            "algorithm_name": _algorithm(recording),
            "author": {"marlnb"},
            "author_email": {"unknown"},
            "code_permalink": "unknown",
            "description": f"{agent} of {recording.spec.name}, recorded by marlnb: {FINAL_OBSERVATION_NOTE}",
            "minari_version": minari.__version__,
        }
    )
    # HDF5 ends the process where it cannot write to a path
    with JournaledFile(storage._file_path, locking=False, existing=True) as file:
        h5py.File(file, "w").close()
        storage._file_path = file
        storage.update_episodes(file.until_refused(buffers))


def _group_agents(recording: Recording, group: str | None, agents: Sequence[str] | None) -> list[tuple[str, str]]:
    """(group, agent) of each dataset."""
    groups = recording.groups if group is None else [group]
    pairs = [(name, agent) for name in groups for agent in recording.group_agents(name)]
    if agents is None:
        return pairs
    recorded = [agent for _, agent in pairs]
    for agent in agents:
        if agent not in recorded:
            raise RecordingError(unknown("recorded agent", agent, recorded))
    return [(name, agent) for name, agent in pairs if agent in agents]


def _episodes(minari: Any, recording: Recording, group: str, agent: str) -> Iterator[Any]:
    """The steps at which the agent acts, each with the rewards until it acts again."""
    table = recording.episodes
    for number, entry in table[table["finished"]].iterrows():
        selectors = {"episode": number, "agent": agent}
        fields = ("observation", "action", "reward", "terminated", "truncated", "acting", "alive")
        steps = {name: recording.steps(group, name).sel(**selectors).to_numpy() for name in fields}
        acts = np.flatnonzero(steps["acting"] & steps["alive"])
        if not len(acts):
            continue
        spans = list(zip(acts, [*acts[1:], len(steps["reward"])]))
        observations = steps["observation"][acts]
        yield minari.data_collector.EpisodeBuffer(
            seed=int(entry["seed"]),
            observations=np.concatenate([observations, observations[-1:]]),
            actions=steps["action"][acts],
            rewards=np.array([steps["reward"][a:b].sum(dtype=np.float64) for a, b in spans]),
            terminations=np.array([steps["terminated"][a:b].any() for a, b in spans]),
            truncations=np.array([steps["truncated"][a:b].any() for a, b in spans]),
            infos={"t": np.concatenate([acts, acts[-1:] + 1]), "episode": np.full(len(acts) + 1, number)},
        )


def _spaces(group: GroupSpec) -> tuple[Any, Any]:
    import gymnasium as gym

    action, dtype = group.action, np.dtype(group.observation.dtype)
    if np.issubdtype(dtype, np.integer):
        limits: tuple[Any, Any] = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    else:
        limits = (-np.inf, np.inf)
    observation = gym.spaces.Box(*limits, group.observation.shape, dtype.type)
    if action.kind == "discrete":
        return observation, gym.spaces.Discrete(action.n[0])
    if action.kind == "multi_discrete":
        return observation, gym.spaces.MultiDiscrete(list(action.n))
    return observation, gym.spaces.Box(np.array(action.low, np.float32), np.array(action.high, np.float32))


def _algorithm(recording: Recording) -> str:
    experiment = recording.experiment
    return recording.source if experiment is None else type(experiment.algorithm).__name__.removesuffix("Config")


@contextmanager
def _datasets_in(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Sets Minari's root folder, which it reads from an environment variable, while the block runs."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    if folder is not None:
        os.environ["MINARI_DATASETS_PATH"] = str(expanded(folder).absolute())
    try:
        yield
    finally:
        if before is not None:
            os.environ["MINARI_DATASETS_PATH"] = before
        elif folder is not None:
            os.environ.pop("MINARI_DATASETS_PATH", None)
