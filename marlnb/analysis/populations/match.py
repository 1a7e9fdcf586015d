"""match: plays and records two players against each other: players or snapshots of leagues, or any two runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from marlnb.analysis.populations.match_result import MatchResult, result_warnings
from marlnb.analysis.stats.wilson import wilson_interval
from marlnb.config import resolve_config
from marlnb.errors import ConfigError, RecordingError, unknown
from marlnb.paths import is_file_name
from marlnb.populations.league.matches import Match, check_competitive, even_scores, outcomes_of, scores_of
from marlnb.populations.league.players import Side, columns_of
from marlnb.populations.matches.seating import Seating, label_of, league_rules, match_labels, match_sides, seatings
from marlnb.populations.matches.seating_file import write_players
from marlnb.recording.capture.config import RecordingConfig
from marlnb.recording.capture.plan import recording_path
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.policy_source import PolicySourceLike, as_policy_source
from marlnb.training.runs.run_folder import Which
from marlnb.values import checked_number

MATCHES = "matches"
EPISODES = 100
REMEDY = "Say who wins with win_threshold={side: return}"  # of sides that do not compete


def match(
    a: PolicySourceLike,
    b: PolicySourceLike,
    *,
    episodes: int = EPISODES,
    checkpoints: tuple[Which, Which] = ("last", "last"),
    sides: str | Sequence[str] | None = None,
    win_threshold: Mapping[str, float] | None = None,
    explore: bool = True,
    name: str | None = None,
    exist: Literal["error", "open"] = "open",
    progress: bool = True,
    trust: bool = False,
    **options: Any,
) -> MatchResult:
    """Plays two players against each other, and records every episode.

    The first player takes each side that it can for an equal number of episodes, with the same seeds; the second takes
    all other sides. In a game of three sides or more, the first player also takes all but each side ("all-but-<side>"),
    so that both are alone against the other equally often. The recordings are in `matches/<name>` in the
    folder of `a`, one for each side. They open as any recording; where both players share a group of agents, sites have
    the agent's name, as `player/actor/player_0/hidden_1`.

    Args:
        a: a player or snapshot of a league, as `run.league["main_0@3"]`; a member of a population; a run or its folder;
            or other agents.
        b: another one, with the same groups, observations and actions.
        episodes: of all sides together.
        checkpoints: of a and b, where they are runs.
        sides: that a takes, by the names of the recordings; None: all that are possible.
        win_threshold: by side, the return above which it wins; None: that of the league.
        explore: sample actions, as in a league's matches; otherwise take the most likely.
        name: of the folder; None: `<a>-<b>`, with as much of their paths as tells them apart, or their checkpoints
            where both are of one run: `run@4-run@1`, `run@4-run@4`.
        exist: "open" uses existing recordings of the same episodes; "error" raises an error.
        progress: show a line with the number of episodes.
        trust: allow the code that the folders name.
        options: further options of `marlnb.record`, as `sites=...`, `frames=1` or `seed=...`.
    Raises:
        ConfigError: the players have other groups, observations or actions, cannot take different sides, or share
            their returns; the environment has one side only, `sides` names none, or `sides` or `win_threshold` names
            another one; `episodes`, `checkpoints` or `win_threshold` has a wrong value; or `name` has folders.
        RecordingError: there are recordings of this name with other players or options.
        CheckpointError: a snapshot is missing or damaged.
    """
    first, second = (as_policy_source(source, trust=trust) for source in (a, b))
    if fixed := [name for name in ("checkpoint", "edits", "agents") if name in options]:
        raise ConfigError(f"match has no option {fixed[0]!r}: both players are recorded whole, as trained")
    episodes = checked_number(episodes, int, "episodes")
    if not isinstance(checkpoints, (tuple, list)) or len(checkpoints) != 2:
        raise ConfigError(f'checkpoints must be two, of a and of b, such as ("last", "best"); got {checkpoints!r}')
    all_sides = match_sides(first, second)
    threshold = _checked_threshold(win_threshold or {}, first.spec.name, all_sides)
    threshold = threshold or league_rules(first, second).win_threshold
    iterations = (first.origin(checkpoints[0]).iteration, second.origin(checkpoints[1]).iteration)
    contestants = ((first, iterations[0]), (second, iterations[1]))
    labels = match_labels(*contestants)
    if name is not None and not is_file_name(name):
        raise ConfigError(f"name={name!r} is not the name of a folder in {MATCHES}; give one without folders above it")
    label = name or "-".join(labels).replace(os.sep, "-")
    folder = first.path / MATCHES / label
    possible = seatings(*contestants, all_sides, folder)
    chosen = _chosen(possible, sides)
    if episodes < len(chosen):
        names = ", ".join(seating.side.name for seating in chosen)
        raise ConfigError(f"episodes must be {len(chosen)} or more, one for each side of {label}: {names}")
    config = resolve_config(RecordingConfig, None, {"explore": explore, **options})
    _check_weights(possible)
    write_players(folder, first, second, iterations)
    tables, recordings = [], {}
    undecided: list[Match] | None = None if threshold else []  # until one shows that the sides compete
    for k, seating in enumerate(chosen):
        n_episodes = episodes // len(chosen) + (k < episodes % len(chosen))
        own = replace(config, name=seating.side.name, episodes=n_episodes)
        recording = record(seating, own, exist=exist, progress=progress)
        recordings[seating.side.name] = recording
        rows, played = _episodes(recording, seating, all_sides, threshold, n_episodes)
        tables.append(rows)
        if undecided is not None:
            undecided += played
            undecided = None if check_competitive(undecided, first.spec.name, remedy=REMEDY) else undecided
    table = pd.concat(tables, ignore_index=True)
    n_distinct = len(table.drop_duplicates(["side", "length", "return_a", "return_b"]))
    return MatchResult(
        a=labels[0],
        b=labels[1],
        env=first.spec.name,
        episodes=table,
        win_rate=wilson_interval(float(table["score"].mean()), len(table)),
        recordings=recordings,
        seatings={seating.side.name: seating for seating in chosen},
        explore=explore,
        win_threshold=threshold,
        warnings=result_warnings(len(table), n_distinct, explore),
    )


def _checked_threshold(win_threshold: Mapping[str, float], env: str, sides: Sequence[Side]) -> Mapping[str, float]:
    names = [each.name for each in sides]
    for side in win_threshold:
        if side not in names:
            raise ConfigError(unknown(f"side of {env} in win_threshold", side, names))
    return {side: checked_number(value, float, f"win_threshold.{side}") for side, value in win_threshold.items()}


def _chosen(possible: Sequence[Seating], sides: str | Sequence[str] | None) -> list[Seating]:
    names = [seating.side.name for seating in possible]
    wanted = names if sides is None else [sides] if isinstance(sides, str) else list(sides)
    if not wanted:
        raise ConfigError(f"sides={sides!r} names no side; valid: {', '.join(names)}, or None for all of them")
    for name in wanted:
        if name not in names:
            raise ConfigError(unknown(f"side of {label_of(possible[0].contestants[0][0])} in this match", name, names))
    return [seating for seating in possible if seating.side.name in wanted]


def _check_weights(possible: Sequence[Seating]) -> None:
    """Raises RecordingError if the match's folder has a recording of other weights, on any side."""
    for seating in possible:
        path = recording_path(seating, seating.side.name)
        recorded = None
        with suppress(RecordingError), Recording.open(path) as recording:  # `record` renames an unreadable one
            recorded = recording.settings["checkpoint"]
        if recorded not in (None, seating.origin().sha256):
            raise RecordingError(
                f"{path} was recorded with other weights than the {seating.source} has; give another name"
            )


def _episodes(
    recording: Recording, seating: Seating, sides: Sequence[Side], win_threshold: Mapping[str, float], n: int
) -> tuple[pd.DataFrame, list[Match]]:
    """The episodes of a recorded match: a row for each, and each as a line of a league would have it."""
    episodes = recording.episodes.iloc[:n]
    names = [side.name for side in sides]
    returns = np.stack([episodes[list(side.agents)].mean(axis=1) for side in sides], axis=1)
    outcomes = np.array([outcomes_of(names, list(each), win_threshold) for each in returns])
    own = columns_of(sides, seating.side)
    players = {name: label_of(seating.contestants[k not in own][0]) for k, name in enumerate(names)}
    played = [
        Match(k, "", "match", players, tuple(returns[k]), tuple(outcomes[k]), int(steps))
        for k, steps in enumerate(episodes["n_steps"])
    ]
    rows = pd.DataFrame(
        {
            "side": seating.side.name,
            "episode": episodes.index,
            "seed": episodes["seed"].to_numpy(),
            "length": episodes["n_steps"].to_numpy(),
            "return_a": returns[:, own].mean(axis=1),
            "return_b": np.delete(returns, own, axis=1).mean(axis=1),
            "score": scores_of(outcomes, own),
            "even": even_scores(outcomes, own),
        }
    )
    return rows, played
