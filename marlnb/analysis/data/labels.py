"""Labels of rows: the recording's, what agents do and observe, or a user's function of the recording; also shifted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args

import numpy as np

from marlnb.analysis.data.missing_labels import not_a_number
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.stats.linear_models import Kind
from marlnb.errors import AnalysisError, unknown

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

AgentLabel = tuple[str, str] | tuple[str, str, str | int]
Label = str | np.ndarray | AgentLabel | Callable[["Recording"], np.ndarray]
SeveralLabels = Label | Sequence[Label]
"""One label or several; a tuple holds several."""
MAX_CLASS_LIKE_VALUES = 10
ALWAYS_KNOWN = ("alive", "acting")  # also of an agent that is dead
FIELD_LABELS = ("action", "reward", "return_to_go")
TIME = "t"


def label_list(labels: SeveralLabels) -> list[Label]:
    return [labels] if isinstance(labels, str | np.ndarray) or callable(labels) else [*labels]


@dataclass(frozen=True)
class Labels:
    """One label of one group's agents at chosen rows.

    Attributes:
        values: `[row, agent of the group]`.
        known: `[row, agent of the group]` bool, False where there is no value, as of an agent that is dead, or no
            number.
        name: of the label.
        class_names: of the values 0, 1, ...; empty where they have none.
    """

    values: np.ndarray
    known: np.ndarray
    name: str
    class_names: Sequence[str]

    def later(self, rows: Rows, offset: int) -> Labels:
        """The label `offset` steps later in the same episode (earlier, if negative); unknown beyond its ends."""
        if offset == 0:
            return self
        positions = rows_later(rows, offset)
        inside_episode = (positions >= 0)[:, None]
        return Labels(self.values[positions], self.known[positions] & inside_episode, self.name, self.class_names)

    @property
    def not_numbers(self) -> np.ndarray:
        """`[row, agent]` bool: where the value is not a number."""
        return not_a_number(self.values)


@dataclass(frozen=True)
class Classes:
    """How labels become the targets of a model: class indices or quantities.

    Attributes:
        kind: classification or regression.
        present: `[class]`, the labels' values; empty for a regression.
        names: of the classes.
        note: what a reader must know about the choice of kind; may be empty.
    """

    kind: Kind
    present: np.ndarray
    names: tuple[str, ...]
    note: str = ""

    @staticmethod
    def from_labels(labels: Labels, kind: Kind | None) -> Classes:
        """The kind requested; None: whole numbers, booleans and words are classes.

        Raises:
            AnalysisError: an unknown kind, or a regression on labels that are no numbers.
        """
        if kind not in (None, *get_args(Kind)):
            raise AnalysisError(unknown("kind of decoding", str(kind), get_args(Kind)))
        whole_numbers, present = labels.values.dtype.kind in "iub", np.unique(labels.values[labels.known])
        chosen: Kind = kind or ("classification" if whole_numbers else "regression")
        if chosen == "regression":
            if labels.values.dtype.kind not in "iubf":
                raise AnalysisError(
                    f"label {labels.name!r} holds {labels.values.dtype}, not numbers; for classes, give whole numbers "
                    "or words, or kind='classification'"
                )
            return Classes(chosen, np.empty(0), (), "" if kind else _note_on_class_like_values(labels.name, present))
        known_names = labels.class_names
        names = tuple(
            known_names[int(v)] if whole_numbers and 0 <= int(v) < len(known_names) else str(v) for v in present
        )
        return Classes(chosen, present, names)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Class indices, or float64 quantities."""
        if self.kind == "regression":
            return values.astype(np.float64)
        return np.minimum(np.searchsorted(self.present, values), max(0, len(self.present) - 1))

    def names_in(self, encoded: np.ndarray) -> tuple[str, ...]:
        """Names of the classes that occur among class indices; none of quantities."""
        return () if self.kind == "regression" else tuple(self.names[k] for k in np.unique(encoded))


def _note_on_class_like_values(name: str, present: np.ndarray) -> str:
    """Points out a quantity that looks like classes, as whole numbers with NaN do; empty otherwise."""
    if not 2 <= len(present) <= MAX_CLASS_LIKE_VALUES or (present % 1 != 0).any():
        return ""
    values = ", ".join(f"{value:g}" for value in present)
    return f"{name!r} holds {values} as floats and is taken as a quantity; kind='classification' makes classes"


def resolve_label(source: RowSource, rows: Rows, label: Label) -> Labels:
    """The label of each agent of the source's group.

    Raises:
        AnalysisError: no such label, agent, field or feature; an array or a function's result of another shape.
    """
    if callable(label):
        name = getattr(label, "__name__", type(label).__name__)
        return _from_array(source, rows, label(source.recording), name)
    if isinstance(label, tuple):
        return _from_agent(source, rows, label)
    if not isinstance(label, str):
        return _from_array(source, rows, label, "label")
    if label not in source.recording.labels:
        return _from_name(source, rows, label)
    return _recorded(source, rows, label)


def own_action(source: RowSource, rows: Rows) -> list[Labels]:
    """The action of each agent of the source's group: one label, or one for each component where it has these."""
    action = source.env.group(source.group).action
    components = [None] if action.kind == "discrete" else range(action.n_components)
    values_by_component = [_from_field(source, rows, "action", component) for component in components]
    return [
        Labels(values, known & ~not_a_number(values), "action", class_names)
        for values, known, class_names in values_by_component
    ]


def _from_name(source: RowSource, rows: Rows, name: str) -> Labels:
    """The agent's own action, reward, return to go or observed feature, or the time step."""
    if name == TIME:
        return _labels_of_group(source, rows.t, "t", ())
    features = source.recording.feature_names(source.group)
    if name not in (*FIELD_LABELS, *features):
        valid = [*source.recording.labels, *FIELD_LABELS, TIME, *features]
        of_another = next((agent for agent in source.recording.agents if name.startswith(f"{agent}/")), None)
        hint = f"; another agent's is ({of_another!r}, {name.removeprefix(f'{of_another}/')!r})" if of_another else ""
        raise AnalysisError(unknown("label, field or observed feature", name, valid) + hint)
    field, feature = (name, None) if name in FIELD_LABELS else ("observation", name)
    values, known, class_names = _from_field(source, rows, field, feature)
    return Labels(values, known & ~not_a_number(values), name, class_names)


def _recorded(source: RowSource, rows: Rows, name: str) -> Labels:
    values, known, class_names = source.label(name, rows)
    labels = _labels_of_group(source, values, name, class_names)
    return replace(labels, known=labels.known & known.reshape(len(known), -1))


def _from_array(source: RowSource, rows: Rows, array: np.ndarray, name: str) -> Labels:
    """An array's values; those that a masked array hides are unknown."""
    values, mask, n_rows = np.asarray(array), np.ma.getmaskarray(array), len(source.recording)
    if values.ndim == 0:
        raise AnalysisError(
            "a label is the name of a label, field or observed feature, (agent, field), a function of the recording, "
            f"or an array with a value for each of its {n_rows} rows; got {values.item()!r}"
        )
    if len(values) != n_rows:
        raise AnalysisError(
            f"a label has a value for each of the recording's {n_rows} rows; {name!r} has {len(values)}"
        )
    values, class_names = _as_numbers(values, name)
    labels = _labels_of_group(source, values[rows.index], name, class_names)
    hidden = mask[rows.index] if mask.ndim == 2 else mask[rows.index, None]
    return replace(labels, known=labels.known & ~hidden)


def _as_numbers(values: np.ndarray, name: str) -> tuple[np.ndarray, Sequence[str]]:
    """Words as class indices with names; Python objects as the numbers or words that they are.

    Raises:
        AnalysisError: objects that are neither, or words of which some are missing.
    """
    if values.dtype.kind == "O":
        n_other = sum(not isinstance(value, str) for value in values.flat)
        if n_other == 0:
            values = values.astype(str)
        elif n_other < values.size:
            raise AnalysisError(f"label {name!r} is a word at some rows and none at {n_other}: give those a word too")
        else:
            try:
                values = values.astype(np.float64)  # None becomes NaN
            except (TypeError, ValueError) as error:
                raise AnalysisError(f"label {name!r} holds objects that are neither numbers nor words") from error
    if values.dtype.kind not in "US":
        return values, ()
    present, index = np.unique(values.astype(str), return_inverse=True)
    return index.reshape(values.shape), present.tolist()


def _labels_of_group(source: RowSource, values: np.ndarray, name: str, class_names: Sequence[str]) -> Labels:
    n_agents = source.env.group(source.group).n_agents
    if values.ndim == 1:
        values = np.repeat(values[:, None], n_agents, axis=1)
    if values.shape[1:] != (n_agents,):
        raise AnalysisError(
            f"label {name!r} is {list(values.shape)}; group {source.group!r} needs [row] or [row, {n_agents} agents]"
        )
    return Labels(values, ~not_a_number(values), name, class_names)


def _from_agent(source: RowSource, rows: Rows, label: AgentLabel) -> Labels:
    """A field or label of one agent, which need not be of the source's group: the same for all agents of the group."""
    if len(label) not in (2, 3):
        raise AnalysisError(f"a label of an agent is (agent, field) or (agent, field, feature); got {label}")
    agent, field = label[0], label[1]
    feature = label[2] if len(label) == 3 else None
    if agent not in source.recording.agents:
        reading = "; a tuple is (agent, field): give several labels as a list"
        raise AnalysisError(unknown("recorded agent", agent, source.recording.agents) + reading)
    group = source.env.group_of(agent)
    group_source = RowSource(source.recording, group.name)
    if field in source.recording.labels:
        by_agent = _recorded(group_source, rows, field)
        values, known, class_names = by_agent.values, by_agent.known, by_agent.class_names
    else:
        values, known, class_names = _from_field(group_source, rows, field, feature)
    column = [group.agents.index(agent)]
    n_agents = source.env.group(source.group).n_agents
    name = " ".join(str(part) for part in (agent, field, feature) if part is not None)
    known = known & ~not_a_number(values)
    return Labels(
        values[:, column].repeat(n_agents, axis=1), known[:, column].repeat(n_agents, axis=1), name, class_names
    )


def _from_field(
    source: RowSource, rows: Rows, field: str, feature: str | int | None
) -> tuple[np.ndarray, np.ndarray, Sequence[str]]:
    """A field `[row, agent]` of a group, where it is known, and the names of its classes."""
    group, recording = source.group, source.recording
    known = source.field("acting" if field == "action" else "alive", rows).astype(bool)
    if field in ALWAYS_KNOWN:
        known = np.ones_like(known)
    if field == "return_to_go":
        values, reaches_end = _return_to_go(source, rows)
        return values, known & reaches_end, ()
    if field == "recurrent":
        states = source.recurrent_state(rows)
        return _feature_column(states, feature, (), f"unit of the recurrent state of {group!r}"), known, ()
    if field not in recording.fields(group):
        valid = [*recording.fields(group), "return_to_go", "recurrent", *recording.labels]
        raise AnalysisError(unknown(f"label or field of {group!r}", field, valid))
    values = source.field(field, rows)
    action = source.env.group(group).action
    class_names: Sequence[str] = action.names if field == "action" and action.kind == "discrete" else ()
    if values.ndim > 2:
        names: Sequence[str] = ()
        if field in ("observation", "action"):
            names = action.component_names if field == "action" else recording.feature_names(group)
        values = _feature_column(values, feature, names, f"feature of {field} of {group!r}")
    elif feature is not None:
        raise AnalysisError(f"{field} of {group!r} has one value for each agent, no feature {feature!r}")
    return values, known, class_names


def _feature_column(values: np.ndarray, feature: str | int | None, names: Sequence[str], what: str) -> np.ndarray:
    """One feature `[row, agent]` of `[row, agent, ...]`, by name or index; None: the only one."""
    flat = values.reshape(*values.shape[:2], -1)
    if feature is None and flat.shape[2] == 1:
        return flat[:, :, 0]
    valid = list(dict.fromkeys([*names, *map(str, range(flat.shape[2]))]))
    if feature is None:
        raise AnalysisError(f"which {what}? label=(agent, field, feature), feature one of {', '.join(valid[:40])}")
    if str(feature) not in valid:
        raise AnalysisError(unknown(what, str(feature), valid))
    column = names.index(feature) if feature in names else int(feature)
    return flat[:, :, column]


def _return_to_go(source: RowSource, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Undiscounted sum of rewards from each step to its episode's end, and where that end was recorded, `[row, agent]`.

    It counts rewards at steps that are not among the rows, such as those while an agent waits for its turn, and is NaN
    where one of the rewards is not a finite number.
    """
    all_rows = source.rows(np.unique(rows.episode).tolist())
    episodes, start, number, length = np.unique(
        all_rows.episode, return_index=True, return_inverse=True, return_counts=True
    )
    first_t = all_rows.t[start]
    if not np.array_equal(all_rows.t - first_t[number], np.arange(len(all_rows)) - start[number]):
        raise AnalysisError("return_to_go needs every step of each episode; some steps are missing in this recording")
    reward = source.field("reward", all_rows).astype(np.float64)
    is_finite, episode_end = np.isfinite(reward), (start + length)[number]
    to_go = _sum_until(np.where(is_finite, reward, 0.0), episode_end)
    to_go[_sum_until(~is_finite, episode_end) > 0] = np.nan
    finished = source.recording.episodes.loc[episodes, "finished"].to_numpy(bool)[:, None]
    if not finished.all():  # where the end was not recorded, or only the beginning
        ended = np.zeros(reward.shape, bool)
        for name in {"terminated", "truncated"} & set(source.recording.fields(source.group)):
            ended |= source.field(name, all_rows).astype(bool)
        finished = finished | np.logical_or.reduceat(ended, start)
    position = np.searchsorted(all_rows.index, rows.index)
    return np.asarray(to_go[position]), np.asarray(finished[number[position]])


def _sum_until(values: np.ndarray, end: np.ndarray) -> np.ndarray:
    """`[row, agent]`: the sum of each row and those after it, before the row `end` `[row]`."""
    sum_before = np.concatenate([np.zeros((1, values.shape[1])), values.cumsum(axis=0)])
    return np.asarray(sum_before[end] - sum_before[:-1])


def rows_later(rows: Rows, offset: int) -> np.ndarray:
    """For each row the position of the row `offset` steps later in its episode, `[row]`; -1 where there is none."""
    _, number = np.unique(rows.episode, return_inverse=True)
    max_length = int(rows.t.max()) + 1
    key = number.astype(np.int64) * max_length + rows.t
    order = np.argsort(key, kind="stable")
    nearest = order[np.minimum(np.searchsorted(key[order], key + offset), len(key) - 1)]
    inside = (rows.t + offset >= 0) & (rows.t + offset < max_length)
    return np.where(inside & (key[nearest] == key + offset), nearest, -1)
