"""Communication: does the speaker signal its goal, and does the listener act on the message?

The behaviour of two agents may be correlated because both observe the same thing. Only exchanging a message shows
whether it has an effect: the causal influence puts each message in turn into the listener's observation.

Source: Lowe et al. 2019, On the Pitfalls of Measuring Emergent Communication (arXiv:1903.05168).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from marlnb.analysis.communication.combinations import combinations_with_goal
from marlnb.analysis.communication.communication_result import Communication
from marlnb.analysis.communication.message_influence import ReceivedMessages, causal_influence
from marlnb.analysis.data.duplicate_episodes import duplicate_episode_warnings
from marlnb.analysis.data.labels import Label, rows_later
from marlnb.analysis.data.row_values import RowValues, row_values
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.data.views import Units, chosen_names
from marlnb.analysis.results import few_episodes_warning
from marlnb.analysis.stats.bootstrap import (
    Interval,
    bootstrap_weights,
    checked_resampling,
    episode_index,
    percentile_interval,
)
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.analysis.stats.mutual_information import MutualInformation, counts, mutual_information
from marlnb.display.formatting import count
from marlnb.errors import AnalysisError, unknown
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.specs import ActionSpec
from marlnb.values import checked_number

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

MIN_EPISODES = 30
MAX_VALUES = 64


def communication(
    recording: RecordingLike,
    *,
    speaker: str,
    listener: str,
    goal: Label,
    message: Label = "action",
    message_features: str | Sequence[str] | None = None,
    lag: int = 1,
    speaker_action: Label | None = None,
    listener_action: Label = "action",
    policies: Mapping[str, Policy] | None = None,
    checkpoint: int | None = None,
    n_shuffles: int = 100,
    n_bootstrap: int = 200,
    seed: int = 0,
) -> Communication:
    """Mutual information of message, goal and action, the code book, and the causal influence of the message.

    A code such as "goal XOR key" tells nothing of the goal alone. The goal is therefore also tested together with each
    other discrete quantity that the speaker observes (up to 8 features and labels), in `combinations`. Codes of three
    and more quantities are not tested.

    Args:
        speaker: the speaker's name.
        listener: the listener's name.
        goal: what the speaker should tell, discrete: a label of the recording or of an agent, as in `decode`.
        message: what the speaker says, discrete: its `action`, or a label or feature.
        message_features: one or several of the listener's observation features, which hold the message; None: those
            named `message_*` or `<speaker>_message_*`. `()` leaves out the causal influence.
        lag: steps until the listener acts on the message.
        speaker_action: another action of the speaker, for speaker consistency.
        listener_action: what the listener does, discrete: its `action`, or a label, as one component of its action. If
            `action` is continuous or has several components, `listening` and `following` are None.
        policies: by group; None: those of the run.
        checkpoint: iteration whose rows are read; required if a recording spans several.
        n_shuffles: permutations over episodes behind each p-value.
        n_bootstrap: bootstrap samples of the episodes, for the interval of the causal influence.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: unknown agent, label or feature; a message, goal or label of an action with more than 64 values
            or only one.
    """
    recording = opened_recording(recording)
    for name in (speaker, listener):
        if name not in recording.agents:
            raise AnalysisError(unknown("recorded agent", name, recording.agents))
    lag = checked_number(lag, int, "lag", ge=0)
    n_shuffles, n_bootstrap, seed = checked_resampling(n_shuffles, n_bootstrap, seed)
    of_speaker, of_listener = (_acting_rows(recording, name, checkpoint) for name in (speaker, listener))
    messages = _discrete(_one_choice(of_speaker, message, "message"), "message")
    goals = _discrete(row_values(of_speaker, goal), "goal")
    actions, no_actions = _listener_actions(of_listener, listener_action)
    spoken, received = _pair_rows(of_speaker, of_listener, lag)
    rng = np.random.default_rng(seed)
    shuffle_warnings: list[str] = []
    information = partial(_information, n_shuffles=n_shuffles, rng=rng, warnings=shuffle_warnings)
    episode, t = of_listener.episode[received], of_listener.t[received]
    code, message_names, goal_names = _code_book(messages, goals)
    influence, notes = _causal_influence(
        recording, of_listener, received, message_features, speaker, policies, checkpoint
    )
    n_episodes = len(np.unique(of_speaker.episode))
    missing = messages.missing_labels(speaker)
    goals.missing_labels(speaker, missing)
    signalling = information(messages, goals, of_speaker.episode, of_speaker.t, names=("message", goals.name))
    listening = following = consistency = None
    if actions is not None:
        actions.missing_labels(listener, missing)
        action_name = f"{listener}'s action" if actions.name == "action" else actions.name
        reaction = actions.at(received)
        listening = information(messages.at(spoken), reaction, episode, t, names=("message", action_name))
        following = information(goals.at(spoken), reaction, episode, t, names=(goals.name, action_name))
    if speaker_action is not None:
        other = _discrete(_one_choice(of_speaker, speaker_action, "speaker_action"), "action of the speaker")
        consistency = information(messages, other, of_speaker.episode, of_speaker.t, names=("message", other.name))
    times = np.unique(t)
    mean_influence = None if influence is None else _mean_with_interval(influence, episode, n_bootstrap, rng)
    combinations = combinations_with_goal(of_speaker, messages, goals, n_shuffles, rng)
    return Communication(
        speaker=speaker,
        listener=listener,
        message=messages.name,
        goal=goals.name,
        lag=lag,
        signalling=signalling,
        listening=listening,
        following=following,
        consistency=consistency,
        influence=mean_influence,
        influence_at=np.array([] if influence is None else [influence[t == step].mean() for step in times]),
        times=times,
        context_independence=context_independence(code),
        code=code,
        messages=message_names,
        goals=goal_names,
        combinations=combinations,
        n_rows=len(received),
        n_episodes=n_episodes,
        notes=(*notes, *no_actions, *missing.notes),
        warnings=(
            *few_episodes_warning(n_episodes, MIN_EPISODES),
            *duplicate_episode_warnings(recording, of_speaker.episode),
            *missing.warnings,
            *dict.fromkeys(shuffle_warnings),
        ),
    )


def context_independence(code: np.ndarray) -> float:
    """`mean over goals g of p(m_g | g) p(g | m_g)` with `m_g = argmax_m p(g | m)`: 1 for a one-to-one code book.

    Args:
        code: `[message, goal]` counts.
    Source: Bogin et al. 2018, section 4 (arXiv:1809.00549), with goals as concepts.
    """
    given_goal = code / np.maximum(code.sum(axis=0, keepdims=True), 1)
    given_message = code / np.maximum(code.sum(axis=1, keepdims=True), 1)
    best = given_message.argmax(axis=0)
    goals = np.arange(code.shape[1])
    return float(np.mean(given_goal[best, goals] * given_message[best, goals]))


def _information(
    a: RowValues,
    b: RowValues,
    episode: np.ndarray,
    t: np.ndarray,
    *,
    names: tuple[str, str],
    n_shuffles: int,
    rng: np.random.Generator,
    warnings: list[str],
) -> MutualInformation:
    """Mutual information of a and b over the rows at which both are known; episode and t: `[row]`.

    Appends reasons to distrust its p-value to `warnings`.
    """
    known = a.known & b.known
    of_b, episode, t = b.values[known], episode[known], t[known]
    names_b = [b.class_name(value) for value in np.unique(of_b)]
    warnings.extend(EpisodeShuffle(episode, t, of_b).warnings(names[1], of_b, names_b))
    return mutual_information(
        a.values[known], of_b, episode, t,
        names=names, n_shuffles=n_shuffles, rng=rng,
    )  # fmt: skip


def _code_book(messages: RowValues, goals: RowValues) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Counts `[message, goal]`, and the names of the messages and of the goals."""
    known = messages.known & goals.known
    message_values, message_index = np.unique(messages.values[known], return_inverse=True)
    goal_values, goal_index = np.unique(goals.values[known], return_inverse=True)
    code = counts(message_index, goal_index, len(message_values), len(goal_values))
    return code, tuple(map(messages.class_name, message_values)), tuple(map(goals.class_name, goal_values))


def _acting_rows(recording: Recording, agent: str, checkpoint: int | None) -> Units:
    """The rows at which an agent acts, as units of no site."""
    group = recording.spec.group_of(agent).name
    source = RowSource(recording, group)
    rows = source.rows(None, source.resolve_checkpoint(checkpoint))
    rows = rows.at(source.acting_positions(rows, agent))
    no_units = np.empty((len(rows), 0), np.float32)
    return Units(agent, agent, source, rows.index, rows.episode, rows.t, 0, no_units.__getitem__)


def not_one_choice(agent: str, action: ActionSpec, option: str) -> str:
    """Why an agent's action is not one discrete choice, and what to give as the option instead; empty if it is one."""
    if action.kind == "discrete":
        return ""
    if action.kind == "continuous":
        return f"the action of {agent} is continuous: give {option}= whole values, as of a function of the recording"
    component = (agent, "action", action.component_names[0])
    return f"the action of {agent} has {action.n_components} components: choose one, as {option}={component!r}"


def _one_choice(units: Units, label: Label, option: str) -> RowValues:
    """The label of each row.

    Raises:
        AnalysisError: the agent's whole action where it is not one discrete choice.
    """
    problem = not_one_choice(units.agent, units.source.env.group(units.source.group).action, option)
    if problem and isinstance(label, str) and label == "action":
        raise AnalysisError(problem)
    return row_values(units, label)


def _listener_actions(of_listener: Units, label: Label) -> tuple[RowValues | None, tuple[str, ...]]:
    """The listener's actions, or None and the reason why its whole action cannot be tested."""
    if not (isinstance(label, str) and label == "action"):
        return _discrete(row_values(of_listener, label), "action of the listener"), ()
    action = of_listener.source.env.group(of_listener.source.group).action
    problem = not_one_choice(of_listener.agent, action, "listener_action")
    return (None, (f"no listening and following: {problem}",)) if problem else (row_values(of_listener, label), ())


def _discrete(values: RowValues, what: str) -> RowValues:
    present = np.unique(values.values[values.known])
    if not values.is_class or len(present) > MAX_VALUES:
        raise AnalysisError(f"the {what} {values.name!r} must have at most {MAX_VALUES} whole values")
    if len(present) < 2:
        raise AnalysisError(f"the {what} {values.name!r} never varies")
    return values


def _pair_rows(of_speaker: Units, of_listener: Units, lag: int) -> tuple[np.ndarray, np.ndarray]:
    """Speaker's rows, and the listener's rows `lag` steps later in the same episode."""
    rows = of_speaker.source.rows(None)
    later = rows_later(Rows(rows.index, rows.episode, rows.t), lag)
    listener_row = np.full(len(of_speaker.source.recording), -1)
    listener_row[of_listener.index] = np.arange(len(of_listener))
    ahead = later[np.searchsorted(rows.index, of_speaker.index)]
    received = np.where(ahead >= 0, listener_row[rows.index[np.maximum(ahead, 0)]], -1)
    if not (received >= 0).any():
        after = f"{count(lag, 'step')} after {of_speaker.agent} speaks"
        raise AnalysisError(f"{of_listener.agent} never acts {after}: change lag=")
    return np.flatnonzero(received >= 0), received[received >= 0]


def _causal_influence(
    recording: Recording,
    of_listener: Units,
    received: np.ndarray,
    message_features: str | Sequence[str] | None,
    speaker: str,
    policies: Mapping[str, Policy] | None,
    checkpoint: int | None,
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Bits `[received row]`, or None and the reason why they are not available."""
    source = of_listener.source
    names = list(recording.feature_names(source.group))
    if message_features is None:
        from_speaker = [name for name in names if name.startswith(f"{speaker}_message")]
        message_features = from_speaker or [name for name in names if name.startswith("message")]
    if not message_features:
        return None, ("no causal influence: no feature of the listener's observation is named as a message",)
    chosen = chosen_names(f"feature that {of_listener.agent} observes", message_features, names)
    action = source.env.group(source.group).action
    if action.kind != "discrete":
        return None, (f"no causal influence: it needs discrete actions; these are {action.kind}",)
    policy = (policies or source.policies(checkpoint))[source.group]
    if missing := source.missing_agents(policy.reads(critic=False)):
        return None, (f"no causal influence: the listener's network reads agents that were not recorded: {missing}",)
    features = np.array([names.index(name) for name in chosen])
    rows = Rows(of_listener.index[received], of_listener.episode[received], of_listener.t[received])
    return causal_influence(ReceivedMessages(source, of_listener.agent_index, features, rows), policy)


def _mean_with_interval(
    values: np.ndarray, episode: np.ndarray, n_bootstrap: int, rng: np.random.Generator
) -> Interval:
    numbers, index = episode_index(episode)
    weights = bootstrap_weights(len(numbers), n_bootstrap, rng)
    sums, n = np.bincount(index, values), np.bincount(index)
    return Interval(float(values.mean()), *map(float, percentile_interval((weights @ sums) / (weights @ n))))
