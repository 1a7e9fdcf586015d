"""Event-triggered averages: what an agent's units, or a field of its steps, do before and after an event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from marlnb.analysis.data.duplicate_episodes import duplicate_episode_warnings
from marlnb.analysis.data.labels import Label
from marlnb.analysis.data.missing_labels import MissingLabels
from marlnb.analysis.data.row_values import row_values
from marlnb.analysis.data.views import Units, View
from marlnb.analysis.representations.event_average_result import EventAverage, distance_from_control
from marlnb.analysis.stats.bootstrap import (
    bootstrap_means,
    bootstrap_weights,
    checked_resampling,
    episode_index,
    p_value_above,
    percentile_interval,
)
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.errors import AnalysisError, unknown
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.values import checked_number

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

Onset = Literal["start", "every"]
MIN_EVENTS = 30
MIN_EPISODES = 10


def event_average(
    recording: RecordingLike,
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
    n_bootstrap: int = 200,
    seed: int = 0,
) -> EventAverage:
    """The mean of each unit at each lag from an event: `mean[lag] = (1 / n[lag]) sum over events at t of x[t + lag]`.

    Windows never cross the ends of an episode: an event is not counted at lags that its episode does not have, so
    `n_events` differs between lags. Events may have others within their window; the result says how many do, and
    `no_other_within` leaves them out. The control gives each episode the event times of another, which preserves what
    comes from the usual course of an episode.

    Args:
        event: a label as in `decode` that is true at events; or, with `value`, a label with any values.
        site: whose units are averaged.
        field: instead of a site, a field of the agent's steps, such as `reward` or `observation`.
        agent: the agent's name; None if the site has a single agent.
        value: the value of `event` that is the event.
        onset: start: only the first of adjacent event rows; every: each.
        before: lags before the event, in steps, or in the agent's turns if it waits between them.
        after: lags after the event.
        no_other_within: leaves out events with another one at most this many lags away.
        checkpoint: iteration whose rows are read; required if a recording spans several.
        n_shuffles: event times taken from other episodes.
        n_bootstrap: bootstrap samples of the episodes, for the intervals.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: neither or both of site and field; an unknown onset; no event; a recording that leaves steps out.
    Source: Dayan and Abbott 2001, Theoretical Neuroscience, section 1.3, where the events are spikes.
    """
    recording = opened_recording(recording)
    _check(site, field, onset)
    before, after = checked_number(before, int, "before", ge=0), checked_number(after, int, "after", ge=0)
    if no_other_within is not None:
        no_other_within = checked_number(no_other_within, int, "no_other_within", ge=0)
    n_shuffles, n_bootstrap, seed = checked_resampling(n_shuffles, n_bootstrap, seed)
    units = _units(recording, site, field, agent, checkpoint)
    lag_unit = _lag_unit(units)
    is_event, name, missing = _event_rows(units, event, value)
    events = _events(is_event, units, onset, no_other_within)
    if not len(events):
        raise AnalysisError(f"{name} never happens over {units.agent}'s {len(units)} rows")
    x = _values(units, site, field).astype(np.float64)
    rng = np.random.default_rng(seed)
    lags = np.arange(-before, after + 1)
    rows = _align(events.rows, units, lags)
    low, high = _interval(x, rows, units, n_bootstrap, rng)
    shuffle = EpisodeShuffle(units.episode, units.t)
    of_others = (_align_shuffled(events.rows, units, lags, shuffle, rng) for _ in range(n_shuffles))
    shuffled = np.stack([_mean(x, each) for each in of_others])
    mean = _mean(x, rows)
    n_events = (rows >= 0).sum(axis=0)
    control_low, control_high = percentile_interval(shuffled)
    n_episodes = len(np.unique(units.episode[events.rows]))
    n_overlapping = events.n_overlapping(max(before, after))
    return EventAverage(
        what=site or str(field),
        agent=units.agent,
        agents=units.agents,
        event=name,
        lags=lags,
        lag_unit=lag_unit,
        channels=_channel_names(units, field, x.shape[1]),
        mean=mean,
        low=low,
        high=high,
        control=_finite_mean(shuffled),
        control_low=control_low,
        control_high=control_high,
        p_value=response_p_values(mean, shuffled, n_events),
        n_events=n_events,
        n_episodes=n_episodes,
        overlapping=n_overlapping,
        warnings=(
            *(() if np.ptp(x, axis=0).max() > 0 else (f"{site or field} of {units.agent} never varies",)),
            *_warnings(len(events), n_episodes, n_overlapping, n_events),
            *duplicate_episode_warnings(recording, units.episode),
            *missing.warnings,
        ),
        notes=tuple(missing.notes),
    )


def _check(site: str | None, field: str | None, onset: Onset) -> None:
    if (site is None) == (field is None):
        raise AnalysisError(f"exactly one of site= and field= is needed; got site={site!r}, field={field!r}")
    if onset not in get_args(Onset):
        raise AnalysisError(unknown("onset", onset, get_args(Onset)))


def _units(
    recording: Recording, site: str | None, field: str | None, agent: str | None, checkpoint: int | None
) -> Units:
    """The rows of a site, or for a field those of any site of the agent's group."""
    if site is None:
        if agent not in recording.agents:
            raise AnalysisError(
                f"field={field!r} needs agent=; {unknown('recorded agent', str(agent), recording.agents)}"
            )
        group = recording.spec.group_of(agent).name
        in_group = (name for name in recording.sites if name.startswith(f"{group}/"))
        site = next((name for name in in_group if agent in recording[name].labels["agent"]), None)
        if site is None:
            raise AnalysisError(f"no site of {agent} is recorded, which is needed to find its rows")
    return View(recording, site, agent, checkpoint=checkpoint).open()


def _values(units: Units, site: str | None, field: str | None) -> np.ndarray:
    """`[row, channel]`."""
    if site is not None:
        return units.all()
    steps = units.source.recording.steps(units.source.group, str(field)).sel(agent=units.agent).to_numpy()
    values = steps[units.index].reshape(len(units), -1)
    if not np.isfinite(values).all():
        raise AnalysisError(f"{field} of {units.agent} has values that are not finite")
    return values


def _channel_names(units: Units, field: str | None, n: int) -> tuple[str, ...]:
    if field is None:
        return tuple(f"unit {k}" for k in range(n))
    names = units.source.recording.feature_names(units.source.group) if field == "observation" else []
    if len(names) == n:
        return tuple(names)
    return (field,) if n == 1 else tuple(f"{field} {k}" for k in range(n))


def _lag_unit(units: Units) -> str:
    """What one lag is: a step, or a turn of an agent that waits in some steps."""
    _, start, index = np.unique(units.episode, return_index=True, return_inverse=True)
    if np.array_equal(units.t - units.t[start][index], np.arange(len(units)) - start[index]):
        return "steps"
    if int(units.source.recording.settings.get("every", 1)) > 1:
        raise AnalysisError(
            f"the recording leaves out steps of {units.agent} (record(every=...)), so lags in steps are not defined"
        )
    return f"turns of {units.agent}"


def _event_rows(units: Units, event: Label, value: int | str | None) -> tuple[np.ndarray, str, MissingLabels]:
    """Rows that are events `[row]` bool, the event in words, and the rows whose label is unknown."""
    label = row_values(units, event)
    missing = label.missing_labels(units.agent)
    if value is None:
        if label.values.dtype.kind == "f" or not np.isin(label.values[label.known], (0, 1)).all():
            present = np.unique(label.values[label.known])[:1].tolist()
            example = f", for example value={label.class_name(present[0]) if label.names else present[0]!r}"
            raise AnalysisError(
                f"{label.name!r} is not true or false: set value= to the value that is the event"
                f"{example if present else ''}"
            )
        name = label.class_name(1) if label.names else label.name
        return label.known & (label.values == 1), name, missing
    code = label.names.index(value) if isinstance(value, str) and value in label.names else value
    if isinstance(code, str):
        raise AnalysisError(unknown(f"value of {label.name!r}", code, label.names))
    return label.known & (label.values == code), f"{label.name} = {label.class_name(code)}", missing


@dataclass(frozen=True)
class _Events:
    """When an event happens.

    Attributes:
        rows: `[event]`.
        gaps: `[event]`, lags to the nearest other one of the episode.
    """

    rows: np.ndarray
    gaps: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def n_overlapping(self, n_lags: int) -> int:
        """How many have another one at most this many lags away."""
        return int((self.gaps <= n_lags).sum())


def _events(is_event: np.ndarray, units: Units, onset: Onset, no_other_within: int | None) -> _Events:
    """The events among rows `[row]` bool, without those that have another one at most `no_other_within` lags away."""
    rows = _onsets(is_event, units, onset)
    gaps = _gaps(rows, units)
    if no_other_within is None:
        return _Events(rows, gaps)
    isolated = gaps > no_other_within
    return _Events(rows[isolated], gaps[isolated])


def _onsets(is_event: np.ndarray, units: Units, onset: Onset) -> np.ndarray:
    """Rows at which an event happens; with onset="start" without those that continue the row before."""
    if onset == "every":
        return np.flatnonzero(is_event)
    continues = np.append(False, is_event[:-1] & (units.episode[1:] == units.episode[:-1]))
    return np.flatnonzero(is_event & ~continues)


def _gaps(events: np.ndarray, units: Units) -> np.ndarray:
    """Lags from each event to the nearest other one of its episode; the largest integer if there is none."""
    none = np.iinfo(np.int64).max
    if len(events) < 2:
        return np.full(len(events), none)
    same_episode = np.diff(units.episode[events]) == 0
    gaps = np.where(same_episode, np.diff(events), none)
    return np.minimum(np.append(gaps, none), np.insert(gaps, 0, none))


def _align(events: np.ndarray, units: Units, lags: np.ndarray) -> np.ndarray:
    """Rows around each event, `[event, lag]`; -1 where the episode has no such step."""
    rows = events[:, None] + lags
    inside = (rows >= 0) & (rows < len(units))
    inside &= units.episode[np.clip(rows, 0, len(units) - 1)] == units.episode[events][:, None]
    return np.where(inside, rows, -1)


def _align_shuffled(
    events: np.ndarray, units: Units, lags: np.ndarray, shuffle: EpisodeShuffle, rng: np.random.Generator
) -> np.ndarray:
    """As `_align`, with events at the same time steps of other episodes, at lags that the event's own episode has."""
    others = shuffle.rows(shuffle.draw(rng), events)
    return np.where(_align(events, units, lags) >= 0, _align(others, units, lags), -1)


def _mean(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Mean over events, `[lag, channel]`, of rows `[event, lag]`, without those at -1; NaN if there is none."""
    inside = rows >= 0
    sums = np.stack([x[column[valid]].sum(axis=0) for column, valid in zip(rows.T, inside.T)])
    count = inside.sum(axis=0)[:, None]
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def _interval(
    x: np.ndarray, rows: np.ndarray, units: Units, n_bootstrap: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Low and high end, each `[lag, channel]`, of the interval over episodes of `_mean`."""
    numbers, index = episode_index(units.episode)
    weights = bootstrap_weights(len(numbers), n_bootstrap, rng)
    inside = [column[column >= 0] for column in rows.T]
    _, low, high = np.stack([bootstrap_means(x[of_lag], index[of_lag], weights) for of_lag in inside], axis=1)
    return low, high


def response_p_values(mean: np.ndarray, shuffled: np.ndarray, n_events: np.ndarray) -> np.ndarray:
    """p-values `[channel]` of the largest distance from chance, against that of all channels in each shuffle.

    If events have no effect, the mean is one more shuffle. Distances are therefore from the centre of all of them, the
    mean included, in their standard deviations. By centre and width of the shuffles alone, p was below 0.05 in half of
    all cases without an effect, with 20 shuffles: a shuffle is close to a centre that it is part of.

    Args:
        mean: `[lag, channel]`.
        shuffled: `[shuffle, lag, channel]`, at the event times of other episodes; NaN at lags without an event.
        n_events: `[lag]`, of the mean.
    Source: Westfall and Young 1993, Resampling-Based Multiple Testing, section 2.4 (single step).
    """
    draws = np.concatenate([mean[None], shuffled])
    centre = _finite_mean(draws)
    deviation = np.sqrt(_finite_mean((draws - centre) ** 2))
    distance = distance_from_control(draws, centre, centre - deviation, centre + deviation, n_events)
    response, *of_shuffles = np.nanmax(distance, axis=1)
    largest = np.max(of_shuffles, axis=1)
    return np.array([p_value_above(value, largest) for value in response])


def _finite_mean(samples: np.ndarray) -> np.ndarray:
    """`[lag, channel]`, of samples `[sample, lag, channel]`, without numpy's warning where none is finite."""
    count = np.isfinite(samples).sum(axis=0)
    return np.where(count > 0, np.nansum(samples, axis=0) / np.maximum(count, 1), np.nan)


def _warnings(n_selected: int, n_episodes: int, n_overlapping: int, n_events: np.ndarray) -> Iterator[str]:
    if n_selected < MIN_EVENTS:
        yield f"only {n_selected} events"
    if n_episodes < MIN_EPISODES:
        yield f"only {n_episodes} episodes have an event"
    if n_overlapping > n_selected / 2:
        yield (
            f"{n_overlapping} of {n_selected} events have another one in their window, which mixes lags; use "
            "no_other_within="
        )
    if n_events.min() == 0:
        yield "no episode has some of the lags"
