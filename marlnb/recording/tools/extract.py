"""extract: a part of a recording as a recording of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from marlnb.errors import MarlnbError, RecordingError, SiteError, unknown
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.copying import ALWAYS, Portion, all_paths, copy_episodes, new_recording

Chosen = str | Sequence[str] | None


def extract(
    recording: Recording | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    episodes: Sequence[int] | slice | None = None,
    agents: Chosen = None,
    sites: Chosen = None,
    every: int | None = None,
    fields: Chosen = None,
) -> Recording:
    """Copies a part into a new file, in bounded memory; episodes keep their numbers.

    Args:
        episodes: numbers, or a slice of them that leaves out its end; agents: names or globs; sites: globs.
            None: all of them.
        every: the steps t = 0, `every`, 2 `every`, ...: a multiple of the recording's own.
        fields: globs over what is recorded beside sites, as `"observation"`, `"labels/*"` or
            `"steps/listener/reward"`; t, episode and env_id are always kept.
    Raises:
        RecordingError: something that is not there, or nothing is left; `path` is there already.
    """
    opened = recording if isinstance(recording, Recording) else Recording.open(recording)
    try:
        portion = choose(opened, episodes=episodes, agents=agents, sites=sites, every=every, fields=fields)
        _copy(opened, Path(path).expanduser(), portion)
    finally:
        if opened is not recording:
            opened.close()
    return Recording.open(path)


def choose(
    recording: Recording,
    *,
    episodes: Sequence[int] | slice | None = None,
    agents: Chosen = None,
    sites: Chosen = None,
    every: int | None = None,
    fields: Chosen = None,
) -> Portion:
    """What `extract` copies.

    Raises:
        RecordingError: something that is not there, or nothing is left.
    """
    own_every = int(recording.file.attrs["every"])
    wanted_every = own_every if every is None else every
    if wanted_every < 1 or wanted_every % own_every:
        raise RecordingError(
            f"{recording.path.name} was recorded with every={own_every}; every must be a multiple of that; got {every}"
        )
    names = None if agents is None else _matching(recording.agents, agents, "recorded agent", RecordingError)
    numbers = _numbers(recording, episodes)
    chosen_sites = recording.sites if sites is None else _matching(recording.sites, sites, "recorded site", SiteError)
    paths = [f"activations/{site}" for site in chosen_sites] + _field_paths(recording, fields)
    portion = Portion(paths, names, numbers, wanted_every)
    left = [path for path in paths if 0 not in portion.array(recording, path).shape[1:]]
    return Portion(left, names, numbers, wanted_every)


def _copy(recording: Recording, path: Path, portion: Portion) -> None:
    settings = recording.settings
    sites = [name.removeprefix("activations/") for name in portion.paths if name.startswith("activations/")]
    kept = {
        "sites": sites,
        "every": portion.every,
        "agents": [recording.agents[place] for place in portion.agent_places(recording)],
    }
    n = len(recording.episodes if portion.episodes is None else portion.episodes)
    told: dict[str, Any] = {"verb": "extract", "of": recording.path.name, "settings": settings}
    attributes = {
        "settings": json.dumps({**settings, **kept, "episodes": n}, sort_keys=True),
        "every": portion.every,
        "derived": json.dumps(told, sort_keys=True),
    }
    with new_recording(
        path,
        recording,
        portion,
        attributes=attributes,
        expected_rows=len(recording),
        complete=recording.complete,
    ) as writer:
        copy_episodes(recording, writer, portion)


def _numbers(recording: Recording, episodes: Sequence[int] | slice | None) -> list[int] | None:
    if episodes is None:
        return None
    table = recording.episodes
    if isinstance(episodes, slice):
        wanted = range(int(table.index.max()) + 1)[episodes]
        found = [int(number) for number in table.index if number in wanted]
    else:
        missing = sorted(set(map(int, episodes)) - set(table.index))
        if missing:
            raise RecordingError(f"no episodes {missing[:5]} in {recording.path.name}; it has {len(table)} of them")
        found = sorted(map(int, episodes))
    if not found:
        raise RecordingError(f"no episodes are left of the {len(table)} of {recording.path.name}; got {episodes}")
    return found


def _field_paths(recording: Recording, fields: Chosen) -> list[str]:
    paths = [path for path in all_paths(recording) if not path.startswith("activations/")]
    if fields is None:
        return paths
    patterns = [fields] if isinstance(fields, str) else list(fields)
    for pattern in patterns:
        if not any(_fits(path, pattern) for path in paths):
            short = sorted({path.rsplit("/", 1)[1] for path in paths})
            raise RecordingError(f"{recording.path.name}: {unknown('recorded field', pattern, short)}")
    return [path for path in paths if path in ALWAYS or any(_fits(path, pattern) for pattern in patterns)]


def _matching(names: Sequence[str], patterns: str | Sequence[str], what: str, error: type[MarlnbError]) -> list[str]:
    """Those that match any of the names or globs, in their order; an empty list of patterns: none."""
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise error(unknown(what, pattern, names))
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in wanted)]


def _fits(path: str, pattern: str) -> bool:
    """A glob fits a path, or its last part."""
    return fnmatchcase(path, pattern) or fnmatchcase(path.rsplit("/", 1)[1], pattern)
