"""extract: copies a part of a recording into a new recording."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from marlnb.errors import MarlnbError, RecordingError, SiteError, unknown
from marlnb.paths import expanded
from marlnb.recording.file.layout import row_paths
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.copying import STEP_COLUMNS, Portion, copy_episodes, new_recording

Patterns = str | Sequence[str] | None
EpisodeNumbers = Sequence[int] | slice | np.ndarray | None


def extract(
    recording: RecordingLike,
    path: str | os.PathLike[str],
    *,
    episodes: EpisodeNumbers = None,
    agents: Patterns = None,
    sites: Patterns = None,
    every: int | None = None,
    fields: Patterns = None,
) -> Recording:
    """Copies a part of a recording into a new file, in bounded memory. Episodes keep their numbers.

    Args:
        episodes: numbers, a slice that excludes its end, or a mask with one boolean for each episode; None: all.
        agents: names or globs; None: all.
        sites: globs; None: all.
        every: the steps t = 0, `every`, 2 `every`, ...: a multiple of the recording's own; None: all recorded steps.
        fields: globs over everything except sites, such as `"observation"`, `"labels/*"` or `"steps/listener/reward"`;
            None: all. t, episode and env_id are always copied.
    Raises:
        RecordingError, SiteError: something requested is not recorded, nothing is left, or `path` exists.
    """
    opened = opened_recording(recording)
    try:
        portion = select(opened, episodes=episodes, agents=agents, sites=sites, every=every, fields=fields)
        _copy(opened, expanded(path), portion)
    finally:
        if opened is not recording:
            opened.close()
    return Recording.open(path)


def select(
    recording: Recording,
    *,
    episodes: EpisodeNumbers = None,
    agents: Patterns = None,
    sites: Patterns = None,
    every: int | None = None,
    fields: Patterns = None,
) -> Portion:
    """The part that `extract` copies.

    Raises:
        RecordingError, SiteError: something requested is not recorded, or nothing is left.
    """
    if not len(recording):
        raise RecordingError(f"{recording.path.name} has no rows")
    recorded_every = int(recording.file.attrs["every"])
    every = recorded_every if every is None else every
    if every < 1 or every % recorded_every:
        raise RecordingError(
            f"every must be a multiple of {recorded_every}, with which {recording.path.name} was recorded; got {every}"
        )
    names = None if agents is None else _matching(recording.agents, agents, "recorded agent", RecordingError)
    if names == []:
        raise RecordingError(f"agents must name at least one agent; valid: {', '.join(recording.agents)}")
    numbers = _with_rows(recording, _numbers(recording, episodes), every)
    chosen_sites = recording.sites if sites is None else _matching(recording.sites, sites, "recorded site", SiteError)
    paths = [f"activations/{site}" for site in chosen_sites] + _field_paths(recording, fields)
    portion = Portion(paths, names, numbers, every)
    not_empty = [path for path in paths if 0 not in portion.array(recording, path).shape[1:]]
    return Portion(not_empty, names, numbers, every)


def _copy(recording: Recording, path: Path, portion: Portion) -> None:
    settings = recording.settings
    derived = {"verb": "extract", "of": recording.path.name, "settings": settings}
    new_settings = {
        **settings,
        "sites": [name.removeprefix("activations/") for name in portion.paths if name.startswith("activations/")],
        "every": portion.every,
        "agents": [recording.agents[index] for index in portion.agent_indices(recording)],
        "episodes": len(recording.episodes if portion.episodes is None else portion.episodes),
    }
    attributes = {
        "settings": json.dumps(new_settings, sort_keys=True),
        "every": portion.every,
        "derived": json.dumps(derived, sort_keys=True),
    }
    with new_recording(
        path, recording, portion, attributes=attributes, expected_rows=len(recording), complete=recording.complete
    ) as writer:
        copy_episodes(recording, writer, portion)


def _numbers(recording: Recording, episodes: EpisodeNumbers) -> list[int] | None:
    if episodes is None:
        return None
    numbers = sorted(recording.episode_numbers(episodes))
    if not numbers:
        n_episodes = len(recording.episodes)
        raise RecordingError(f"episodes={episodes} selects none of the {n_episodes} episodes of {recording.path.name}")
    return numbers


def _with_rows(recording: Recording, numbers: list[int] | None, every: int) -> list[int] | None:
    """Without the episodes that have no row on the stride, as one that began before the recording may have none."""
    is_kept = recording._times() % every == 0
    if is_kept.all():
        return numbers
    table = recording.episodes
    table = table if numbers is None else table.loc[numbers]
    spans = zip(table.index, table["start"], table["length"])
    kept = [int(number) for number, start, length in spans if is_kept[start : start + length].any()]
    if not kept:
        raise RecordingError(f"{recording.path.name} has no rows at every={every} in the chosen episodes")
    return numbers if len(kept) == len(table) else kept


def _field_paths(recording: Recording, fields: Patterns) -> list[str]:
    paths = [path for path in row_paths(recording.file) if not path.startswith("activations/")]
    if fields is None:
        return paths
    patterns = [fields] if isinstance(fields, str) else list(fields)
    for pattern in patterns:
        if not any(_matches(path, pattern) for path in paths):
            names = sorted({path.rsplit("/", 1)[1] for path in paths})
            raise RecordingError(f"{recording.path.name}: {unknown('recorded field', pattern, names)}")
    return [path for path in paths if path in STEP_COLUMNS or any(_matches(path, pattern) for pattern in patterns)]


def _matching(names: Sequence[str], patterns: str | Sequence[str], what: str, error: type[MarlnbError]) -> list[str]:
    """The names that match any glob, in their order; an empty list of patterns: none."""
    globs = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in globs:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise error(unknown(what, pattern, names))
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in globs)]


def _matches(path: str, pattern: str) -> bool:
    """Whether a glob matches a path or its last part."""
    return fnmatchcase(path, pattern) or fnmatchcase(path.rsplit("/", 1)[1], pattern)
