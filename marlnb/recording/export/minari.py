"""A recording as Minari datasets, one an agent: what an offline learner takes.

Minari wants one observation more than actions, the one that the last step led to. A recording holds the observations
before each step only, so the last one is repeated there, and each dataset says so; it matters to who learns a value of
the last step of a truncated episode.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marlnb.errors import RecordingError, unknown
from marlnb.recording.export.selection import needs
from marlnb.specs import GroupSpec

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

FILLED = "the final observation of each episode was not recorded; the last recorded one is repeated there"


def to_minari(
    recording: Recording,
    dataset_id: str,
    *,
    group: str | None = None,
    agents: Sequence[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> list[str]:
    """`Recording.to_minari`."""
    minari = needs("minari")
    if int(recording.file.attrs["every"]) > 1:
        raise RecordingError(f"{recording.path.name} holds every k-th step only; Minari's steps follow one another")
    chosen = _chosen(recording, group, agents)
    name, _, version = dataset_id.rpartition("-v")
    if not name or not version.isdigit():
        raise RecordingError(f"a Minari dataset is called <name>-v<number>; got {dataset_id!r}")
    made = []
    with _datasets_in(folder), warnings.catch_warnings():
        told = "env_spec|eval_env|author|code_permalink|algorithm_name|namespace"
        warnings.filterwarnings("ignore", message=f".*({told})")
        for group_name, agent in chosen:
            own = f"{name}-{agent}-v{version}" if len(chosen) > 1 else dataset_id
            buffers = list(_episodes(minari, recording, group_name, agent))
            if not buffers:
                raise RecordingError(f"{recording.path.name}: {agent} acts in no finished episode")
            observation, action = _spaces(recording.spec.group(group_name))
            try:
                minari.create_dataset_from_buffers(
                    own,
                    buffers,
                    observation_space=observation,
                    action_space=action,
                    algorithm_name=_algorithm(recording),
                    author="marlnb",
                    author_email="unknown",
                    code_permalink="unknown",
                    description=f"{agent} of {recording.spec.name}, recorded by marlnb: {FILLED}",
                )
            except ValueError as error:
                if "already exists" not in str(error):
                    raise
                raise RecordingError(
                    f"there is a Minari dataset {own!r} already; give another name or version"
                ) from error
            made.append(own)
    return made


def _chosen(recording: Recording, group: str | None, agents: Sequence[str] | None) -> list[tuple[str, str]]:
    """(group, agent) of each dataset."""
    groups = recording.groups if group is None else [group]
    pairs = [(name, agent) for name in groups for agent in recording.group_agents(name)]
    if agents is None:
        return pairs
    have = [agent for _, agent in pairs]
    for agent in agents:
        if agent not in have:
            raise RecordingError(unknown("recorded agent", agent, have))
    return [(name, agent) for name, agent in pairs if agent in agents]


def _episodes(minari: Any, recording: Recording, group: str, agent: str) -> Iterator[Any]:
    """The steps at which the agent acts, each with the rewards until it acts again."""
    table = recording.episodes
    for number, entry in table[table["finished"]].iterrows():
        at = {"episode": number, "agent": agent}
        fields = ("observation", "action", "reward", "terminated", "truncated", "acting", "alive")
        taken = {name: recording.steps(group, name).sel(**at).to_numpy() for name in fields}
        acts = np.flatnonzero(taken["acting"] & taken["alive"])
        if not len(acts):
            continue
        spans = list(zip(acts, [*acts[1:], len(taken["reward"])]))
        observations = taken["observation"][acts]
        yield minari.data_collector.EpisodeBuffer(
            id=int(number),
            seed=int(entry["seed"]),
            observations=np.concatenate([observations, observations[-1:]]),
            actions=taken["action"][acts],
            rewards=np.array([taken["reward"][a:b].sum(dtype=np.float64) for a, b in spans]),
            terminations=np.array([taken["terminated"][a:b].any() for a, b in spans]),
            truncations=np.array([taken["truncated"][a:b].any() for a, b in spans]),
            infos={"t": np.concatenate([acts, acts[-1:] + 1])},
        )


def _spaces(group: GroupSpec) -> tuple[Any, Any]:
    import gymnasium as gym

    seen, action = group.observation, group.action
    dtype = np.dtype(seen.dtype)
    if np.issubdtype(dtype, np.integer):
        limits: tuple[Any, Any] = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    else:
        limits = (-np.inf, np.inf)
    observation = gym.spaces.Box(*limits, seen.shape, dtype.type)
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
    """Minari's root folder, which it takes from the environment; as it was afterwards."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    if folder is not None:
        os.environ["MINARI_DATASETS_PATH"] = str(Path(folder).expanduser().absolute())
    try:
        yield
    finally:
        if before is not None:
            os.environ["MINARI_DATASETS_PATH"] = before
        elif folder is not None:
            os.environ.pop("MINARI_DATASETS_PATH", None)
