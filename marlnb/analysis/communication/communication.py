"""Communication: does the speaker signal its goal, and does the listener act on the message?

What two agents do may go together because both see the same thing. Whether a message does something is told only by
exchanging it: the causal influence puts every message in turn into what the listener sees and leaves the rest.

Source: Lowe et al. 2019, On the Pitfalls of Measuring Emergent Communication (arXiv:1903.05168).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from marlnb.analysis.communication.communication_result import Communication
from marlnb.analysis.communication.message_influence import Heard, influence_of
from marlnb.analysis.data.duplicate_episodes import repeats
from marlnb.analysis.data.labels import Label, rows_later
from marlnb.analysis.data.row_values import RowValues, row_values
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.data.views import Units
from marlnb.analysis.stats.bootstrap import Interval, bootstrap_weights, episode_places, percentile_interval
from marlnb.analysis.stats.mutual_information import Information, counts, information
from marlnb.errors import AnalysisError, unknown
from marlnb.models.policies.policy import Policy

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

FEW_EPISODES = 30
MOST_VALUES = 64


def communication(
    recording: Recording,
    *,
    speaker: str,
    listener: str,
    goal: Label,
    message: Label = "action",
    heard: Sequence[str] | None = None,
    lag: int = 1,
    speaker_action: Label | None = None,
    policies: Mapping[str, Policy] | None = None,
    checkpoint: int | None = None,
    n_shuffles: int = 100,
    repetitions: int = 200,
    seed: int = 0,
) -> Communication:
    """Mutual information between message, goal and action, the code book, and the causal influence of the message.

    Args:
        message: what the speaker says: its `action`, or a label or feature of it, discrete.
        goal: what it should tell, discrete; a label of the recording or of an agent, as `decode` takes it.
        heard: the listener's observation features that hold the message; None: those named `message_*` or
            `<speaker>_message_*`. `()`: the influence is not tried.
        lag: steps until the listener acts upon it.
        speaker_action: what else the speaker does, for speaker consistency.
        policies: by group; None: the run's.
    Raises:
        AnalysisError: an agent, label or feature that is not there; a message or goal with more than 64 values or
            only one.
    """
    for name in (speaker, listener):
        if name not in recording.agents:
            raise AnalysisError(unknown("recorded agent", name, recording.agents))
    if lag < 0 or n_shuffles < 20 or repetitions < 20:
        raise AnalysisError("a lag is 0 or more, shuffles and repetitions 20 or more")
    talks, hears = (_units(recording, name, checkpoint) for name in (speaker, listener))
    said, meant = _discrete(row_values(talks, message), "message"), _discrete(row_values(talks, goal), "goal")
    done = row_values(hears, "action")
    other = None if speaker_action is None else _discrete(row_values(talks, speaker_action), "action of the speaker")
    at_talk, at_hear = _paired(talks, hears, lag)
    rng = np.random.default_rng(seed)

    def told(
        a: RowValues, at_a: np.ndarray, b: RowValues, at_b: np.ndarray, names: tuple[str, str], by: np.ndarray
    ) -> Information:
        known = a.known[at_a] & b.known[at_b]
        pair = a.values[at_a][known], b.values[at_b][known]
        return information(*pair, by[known], names=names, n_shuffles=n_shuffles, repetitions=repetitions, rng=rng)

    every, episode = np.arange(len(talks)), hears.episode[at_hear]
    acts = f"{listener}'s action"
    known = said.known & meant.known
    messages, goals = np.unique(said.values[known]), np.unique(meant.values[known])
    code = counts(
        np.searchsorted(messages, said.values[known]),
        np.searchsorted(goals, meant.values[known]),
        len(messages),
        len(goals),
    )
    moved, notes = _influence(recording, hears, talks, at_talk, at_hear, heard, speaker, policies, checkpoint)
    n_episodes = len(np.unique(talks.episode))
    left_out = [values.left_out(units.agent) for values, units in ((said, talks), (meant, talks), (done, hears))]
    return Communication(
        speaker=speaker,
        listener=listener,
        message=said.name,
        goal=meant.name,
        lag=lag,
        signalling=told(said, every, meant, every, ("message", meant.name), talks.episode),
        listening=told(said, at_talk, done, at_hear, ("message", acts), episode),
        following=told(meant, at_talk, done, at_hear, (meant.name, acts), episode),
        consistency=None if other is None else told(said, every, other, every, ("message", other.name), talks.episode),
        influence=None if moved is None else _mean_interval(moved, episode, repetitions, rng),
        influence_at=np.empty(0) if moved is None else _by_time(moved, hears.t[at_hear]),
        times=np.unique(hears.t[at_hear]),
        context_independence=context_independence(code),
        code=code,
        messages=tuple(map(said.class_name, messages)),
        goals=tuple(map(meant.class_name, goals)),
        n_rows=len(at_hear),
        n_episodes=n_episodes,
        notes=(*notes, *(note for found in left_out for note in found.notes)),
        warnings=(
            *(() if n_episodes >= FEW_EPISODES else (f"only {n_episodes} episodes",)),
            *repeats(recording, talks.episode),
            *(doubt for found in left_out for doubt in found.doubts),
        ),
    )


def context_independence(code: np.ndarray) -> float:
    """The mean over goals of p(m | goal) p(goal | m), m the message that speaks for the goal most: 1 for a code book.

    Args:
        code: `[message, goal]` counts.
    Source: Bogin et al. 2018 (arXiv:1809.00549), section 4, with goals as concepts.
    """
    of_goal = code / np.maximum(code.sum(axis=0, keepdims=True), 1)
    of_message = code / np.maximum(code.sum(axis=1, keepdims=True), 1)
    best = of_message.argmax(axis=0)
    goals = np.arange(code.shape[1])
    return float(np.mean(of_goal[best, goals] * of_message[best, goals]))


def _units(recording: Recording, agent: str, checkpoint: int | None) -> Units:
    """The rows at which an agent acts, without any site."""
    group = next(group.name for group in recording.spec.groups if agent in group.agents)
    source = RowSource(recording, group)
    rows = source.rows(None, source.one_checkpoint(checkpoint))
    kept = np.flatnonzero(source.acting(rows)[:, source.env.group(group).agents.index(agent)])
    if not len(kept):
        raise AnalysisError(f"{agent} acts at none of the {len(rows)} rows")
    index, episode, t = rows.index[kept], rows.episode[kept], rows.t[kept]
    return Units(agent, agent, source, index, episode, t, 0, lambda places: np.empty((len(places), 0), np.float32))


def _discrete(values: RowValues, what: str) -> RowValues:
    present = np.unique(values.values[values.known])
    if not values.is_class or len(present) > MOST_VALUES:
        raise AnalysisError(f"the {what} {values.name!r} must have at most {MOST_VALUES} whole values")
    if len(present) < 2:
        raise AnalysisError(f"the {what} {values.name!r} never varies")
    return values


def _paired(talks: Units, hears: Units, lag: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of what was said, and of what the listener did `lag` steps later in the same episode."""
    rows = talks.source.rows(None)
    later = rows_later(Rows(rows.index, rows.episode, rows.t), lag)
    place = np.full(len(talks.source.recording), -1)
    place[hears.index] = np.arange(len(hears))
    ahead = later[np.searchsorted(rows.index, talks.index)]
    target = np.where(ahead >= 0, place[rows.index[np.maximum(ahead, 0)]], -1)
    if not (target >= 0).any():
        raise AnalysisError(f"{hears.agent} never acts {lag} steps after {talks.agent} speaks")
    return np.flatnonzero(target >= 0), target[target >= 0]


def _influence(
    recording: Recording,
    hears: Units,
    talks: Units,
    at_talk: np.ndarray,
    at_hear: np.ndarray,
    heard: Sequence[str] | None,
    speaker: str,
    policies: Mapping[str, Policy] | None,
    checkpoint: int | None,
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Bits by row, or why there are none."""
    names = list(recording.feature_names(hears.source.group))
    if heard is None:
        from_speaker = [name for name in names if name.startswith(f"{speaker}_message")]
        heard = from_speaker or [name for name in names if name.startswith("message")]
    for name in heard:
        if name not in names:
            raise AnalysisError(unknown(f"feature that {hears.agent} observes", name, names))
    if not heard:
        return None, ("the causal influence was not tried: no feature of the listener's is known to hold the message",)
    action = hears.source.env.group(hears.source.group).action
    if action.kind != "discrete":
        return None, (f"the causal influence was not tried: it needs discrete actions, these are {action.kind}",)
    found = policies or hears.source.policies(checkpoint)
    features = np.array([names.index(name) for name in heard])
    rows = Rows(hears.index[at_hear], hears.episode[at_hear], hears.t[at_hear])
    return influence_of(Heard(hears.source, hears.place, features, rows), found[hears.source.group])


def _mean_interval(values: np.ndarray, episode: np.ndarray, repetitions: int, rng: np.random.Generator) -> Interval:
    numbers, places = episode_places(episode)
    weights = bootstrap_weights(len(numbers), repetitions, rng)
    sums, n = np.bincount(places, values), np.bincount(places)
    low, high = percentile_interval((weights @ sums) / (weights @ n))
    return Interval(float(values.mean()), float(low), float(high))


def _by_time(values: np.ndarray, t: np.ndarray) -> np.ndarray:
    return np.array([values[t == step].mean() for step in np.unique(t)])
