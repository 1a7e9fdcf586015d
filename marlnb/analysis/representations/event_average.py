"""Events: what an agent's units, or a field of its steps, do on average before and after something happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from marlnb.analysis.data.duplicate_episodes import repeats
from marlnb.analysis.data.labels import Label
from marlnb.analysis.data.missing_labels import LeftOut
from marlnb.analysis.data.row_values import row_values
from marlnb.analysis.data.views import Units, View
from marlnb.analysis.representations.event_average_result import EventAverage
from marlnb.analysis.stats.bootstrap import bootstrap_weights, episode_places, percentile_interval
from marlnb.errors import AnalysisError

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

Onset = Literal["start", "every"]
FEW_EVENTS = 30
FEW_EPISODES = 10


@dataclass(frozen=True)
class Aligned:
    """Events' places among the rows.

    Attributes:
        rows: `[event, lag]`, -1 where the episode does not reach; episode: `[event]`, places among the episodes.
    """

    rows: np.ndarray
    episode: np.ndarray


def event_average(
    recording: Recording,
    *,
    event: Label | Callable[[Recording], np.ndarray],
    site: str | None = None,
    field: str | None = None,
    agent: str | None = None,
    value: int | str | None = None,
    onset: Onset = "start",
    before: int = 5,
    after: int = 10,
    no_other_within: int | None = None,
    checkpoint: int | None = None,
    n_shuffles: int = 100,
    repetitions: int = 200,
    seed: int = 0,
) -> EventAverage:
    """The mean of each unit at each lag from an event.

    Windows never cross an episode's borders: a lag that an episode does not reach is not counted for its events
    (`n_events` says how many are averaged at each lag, and that these are not the same at every lag). Events may have
    others within their window; how many do is said, and `no_other_within` leaves them out. The control gives each
    episode the event times of another, which keeps what comes from the mere course of an episode.

    Args:
        event: what `decode` takes as a label, true at the rows that are events; or any class of it, by `value`.
        site: whose units are averaged; or field: one of the agent's steps, as `reward` or `observation`.
        onset: start: the first of adjoining event rows only; every: each.
        before, after: lags in steps, or in the agent's own turns where it waits between them. no_other_within: leaves
            out events with another one at most so many away.
    Raises:
        AnalysisError: neither or both of site and field; no event; a recording that leaves steps out.
    """
    if (site is None) == (field is None):
        raise AnalysisError(f"average a site or a field, one of them; got site={site!r}, field={field!r}")
    if before < 0 or after < 0 or n_shuffles < 20 or repetitions < 20:
        raise AnalysisError("lags are 0 or more, shuffles and repetitions 20 or more")
    units = _units(recording, site, field, agent, checkpoint)
    lag_unit = _lag_unit(units)
    happening, name, left_out = _happening(units, event, value)
    numbers, places = episode_places(units.episode)
    lags = np.arange(-before, after + 1)
    starts = _starts(happening, units, onset)
    crowded = _crowded(starts, units, lags)
    if no_other_within is not None:
        starts = starts[_gaps(starts, units) > no_other_within]
    if not len(starts):
        raise AnalysisError(f"{name} never happens over {units.agent}'s {len(units)} rows")
    x = _values(units, site, field).astype(np.float64)
    rng = np.random.default_rng(seed)
    aligned = _align(starts, units, lags, places)
    mean = _mean(x, aligned.rows)
    low, high = _interval(x, aligned, len(numbers), repetitions, rng)
    null = np.stack([_mean(x, _shuffled(starts, units, lags, places, rng).rows) for _ in range(n_shuffles)])
    control_low, control_high = percentile_interval(null)
    n_events = (aligned.rows >= 0).sum(axis=0)
    held = len(np.unique(aligned.episode))
    return EventAverage(
        what=site or str(field),
        agent=units.agent,
        agents=units.agents,
        event=name,
        lags=lags,
        lag_unit=lag_unit,
        channels=_channels(units, field, x.shape[1]),
        mean=mean,
        low=low,
        high=high,
        control=_nanmean(null),
        control_low=control_low,
        control_high=control_high,
        n_events=n_events,
        n_episodes=held,
        overlapping=0 if no_other_within is not None and no_other_within >= before + after else int(crowded),
        warnings=(
            *(() if np.ptp(x, axis=0).max() > 0 else (f"{site or field} of {units.agent} never varies",)),
            *_doubts(len(starts), held, int(crowded) if no_other_within is None else 0, n_events),
            *repeats(recording, units.episode),
            *left_out.doubts,
        ),
        notes=tuple(left_out.notes),
    )


def _units(
    recording: Recording, site: str | None, field: str | None, agent: str | None, checkpoint: int | None
) -> Units:
    """The rows: of a site, or of any site of the agent's group where a field is averaged."""
    if site is None:
        if agent not in recording.agents:
            raise AnalysisError(f"whose {field}? agent must be one of {recording.agents}; got {agent!r}")
        group = next(group.name for group in recording.spec.groups if agent in group.agents)
        own = [name for name in recording.sites if name.startswith(f"{group}/")]
        found = [name for name in own if agent in recording[name].labels["agent"]]
        if not found:
            raise AnalysisError(f"no site of {agent} is recorded, by which its rows are found")
        site = found[0]
    return View(recording, site, agent, checkpoint=checkpoint).open()


def _values(units: Units, site: str | None, field: str | None) -> np.ndarray:
    if site is not None:
        return units.all()
    steps = units.source.recording.steps(units.source.group, str(field)).sel(agent=units.agent).to_numpy()
    values = steps[units.index].reshape(len(units), -1)
    if not np.isfinite(values).all():
        raise AnalysisError(f"{field} of {units.agent} has values that are not finite")
    return values


def _channels(units: Units, field: str | None, n: int) -> tuple[str, ...]:
    if field is None:
        return tuple(f"unit {k}" for k in range(n))
    names = units.source.recording.feature_names(units.source.group) if field == "observation" else []
    return tuple(names) if len(names) == n else (field,) if n == 1 else tuple(f"{field} {k}" for k in range(n))


def _lag_unit(units: Units) -> str:
    """What lies between an agent's rows: steps, or its turns where it waits in some."""
    _, start, number = np.unique(units.episode, return_index=True, return_inverse=True)
    if np.array_equal(units.t - units.t[start][number], np.arange(len(units)) - start[number]):
        return "steps"
    if int(units.source.recording.settings.get("every", 1)) > 1:
        raise AnalysisError(
            f"lags are in steps, and rows of {units.agent} are missing within episodes (every= in record)"
        )
    return f"turns of {units.agent}"


def _happening(units: Units, event: Label, value: int | str | None) -> tuple[np.ndarray, str, LeftOut]:
    """Rows that are events, in words which, and what is said of rows of which it is not known."""
    told = row_values(units, event)
    left_out = told.left_out(units.agent)
    if value is None:
        if told.values.dtype.kind == "f" or not np.isin(told.values[told.known], (0, 1)).all():
            some = np.unique(told.values[told.known])[:1].tolist()
            example = f", as value={told.class_name(some[0]) if told.names else some[0]!r}" if some else ""
            raise AnalysisError(f"{told.name!r} is no yes or no: say which value is the event{example}")
        name = told.class_name(1) if told.names else told.name
        return told.known & (told.values == 1), name, left_out
    wanted = told.names.index(value) if isinstance(value, str) and value in told.names else value
    if isinstance(wanted, str):
        raise AnalysisError(f"{told.name!r} has no value {value!r}; it has {list(told.names)}")
    return told.known & (told.values == wanted), f"{told.name} = {told.class_name(wanted)}", left_out


def _starts(happening: np.ndarray, units: Units, onset: Onset) -> np.ndarray:
    """Rows at which an event happens; with onset="start" not those that go on from the row before."""
    if onset == "every":
        return np.flatnonzero(happening)
    went_on = np.zeros(len(happening), bool)
    went_on[1:] = happening[:-1] & (units.episode[1:] == units.episode[:-1])
    return np.flatnonzero(happening & ~went_on)


def _gaps(starts: np.ndarray, units: Units) -> np.ndarray:
    """Steps from each event to the nearest other one of its episode."""
    far = np.iinfo(np.int64).max
    if len(starts) < 2:
        return np.full(len(starts), far)
    same = np.diff(units.episode[starts]) == 0
    steps = np.where(same, np.diff(starts), far)
    return np.minimum(np.append(steps, far), np.insert(steps, 0, far))


def _crowded(starts: np.ndarray, units: Units, lags: np.ndarray) -> int:
    return int((_gaps(starts, units) <= max(-lags[0], lags[-1])).sum())


def _align(starts: np.ndarray, units: Units, lags: np.ndarray, places: np.ndarray) -> Aligned:
    rows = starts[:, None] + lags
    inside = (rows >= 0) & (rows < len(units))
    inside &= units.episode[np.clip(rows, 0, len(units) - 1)] == units.episode[starts][:, None]
    return Aligned(np.where(inside, rows, -1), places[starts])


def _shuffled(
    starts: np.ndarray, units: Units, lags: np.ndarray, places: np.ndarray, rng: np.random.Generator
) -> Aligned:
    """Events at the same times of other episodes; one that the other episode is too short for falls away."""
    _, first, length = np.unique(units.episode, return_index=True, return_counts=True)
    donor = rng.permutation(len(first))[places[starts]]
    offset = starts - first[places[starts]]
    moved = (first[donor] + offset)[offset < length[donor]]
    return _align(moved, units, lags, places)


def _mean(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """`[lag, channel]` over events `[event, lag]`, those at -1 left out; NaN where there are none."""
    there = rows >= 0
    sums = np.stack([x[column[here]].sum(axis=0) for column, here in zip(rows.T, there.T)])
    count = there.sum(axis=0)[:, None]
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def _interval(
    x: np.ndarray, aligned: Aligned, n_episodes: int, repetitions: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Episodes with their events drawn anew, lag by lag."""
    weights = bootstrap_weights(n_episodes, repetitions, rng)
    bounds = []
    for column in aligned.rows.T:
        there = column >= 0
        sums = np.zeros((n_episodes, x.shape[1]))
        np.add.at(sums, aligned.episode[there], x[column[there]])
        count = weights @ np.bincount(aligned.episode[there], minlength=n_episodes)
        bounds.append(percentile_interval((weights @ sums) / np.where(count > 0, count, np.nan)[:, None]))
    return np.stack([low for low, _ in bounds]), np.stack([high for _, high in bounds])


def _nanmean(samples: np.ndarray) -> np.ndarray:
    count = np.isfinite(samples).sum(axis=0)
    return np.where(count > 0, np.nansum(samples, axis=0) / np.maximum(count, 1), np.nan)


def _doubts(n_starts: int, n_episodes: int, crowded: int, n_events: np.ndarray) -> Iterator[str]:
    if n_starts < FEW_EVENTS:
        yield f"only {n_starts} events"
    if n_episodes < FEW_EPISODES:
        yield f"events of {n_episodes} episodes only"
    if crowded > n_starts / 2:
        yield f"{crowded} of {n_starts} events have another within the window, so lags mix; see no_other_within"
    if n_events.min() == 0:
        yield "no episode reaches some of the lags"
