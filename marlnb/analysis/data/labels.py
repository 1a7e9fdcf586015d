"""What is decoded: labels of the recording, of agents' doing, or of a user's function; now, earlier or later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np

from marlnb.analysis.data.missing_labels import not_a_number
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.stats.linear_models import Kind
from marlnb.errors import AnalysisError, unknown

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

OfAgent = tuple[str, str] | tuple[str, str, str | int]
Label = str | np.ndarray | OfAgent | Callable[["Recording"], np.ndarray]
FEW_VALUES = 10
OWN = ("action", "reward", "return_to_go")


@dataclass(frozen=True)
class Labels:
    """One label of one group's agents at chosen rows.

    Attributes:
        values: `[row, agent of the group]`; known: the same, bool: False where there is no such value, or no number.
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
        place = rows_later(rows, offset)
        there = place >= 0
        return Labels(self.values[place], self.known[place] & there[:, None], self.name, self.class_names)

    @property
    def missing(self) -> np.ndarray:
        """`[row, agent]` bool: where the value is not a number."""
        return not_a_number(self.values)


@dataclass(frozen=True)
class Classes:
    """How labels become what a model is fitted to: class indices or quantities.

    Attributes:
        note: what must be known of the choice between the two; empty where nothing must.
    """

    kind: Kind
    present: np.ndarray
    names: tuple[str, ...]
    note: str = ""

    @staticmethod
    def of(labels: Sequence[Labels], kind: Kind | None) -> Classes:
        """Whole numbers, booleans and words are classes, unless said otherwise."""
        if kind not in (None, *get_args(Kind)):
            raise AnalysisError(unknown("kind of decoding", str(kind), get_args(Kind)))
        whole = labels[0].values.dtype.kind in "iub"
        found: Kind = kind or ("classification" if whole else "regression")
        if found == "regression":
            if labels[0].values.dtype.kind not in "iubf":
                raise AnalysisError(
                    f"label {labels[0].name!r} holds {labels[0].values.dtype} and no numbers; for classes, give whole "
                    "numbers or words, or kind='classification'"
                )
            return Classes(found, np.empty(0), (), "" if kind else _few_whole_values(labels))
        present = np.unique(np.concatenate([label.values[label.known] for label in labels]))
        given = labels[0].class_names
        names = tuple(given[int(v)] if whole and 0 <= int(v) < len(given) else str(v) for v in present)
        return Classes(found, present, names)

    def encode(self, values: np.ndarray) -> np.ndarray:
        if self.kind == "regression":
            return values.astype(np.float64)
        return np.minimum(np.searchsorted(self.present, values), max(0, len(self.present) - 1))


def resolve_label(source: RowSource, rows: Rows, label: Label) -> Labels:
    """The label of each agent of the source's group.

    Raises:
        AnalysisError: no such label, agent, field or feature; an array or a function's result of another shape.
    """
    if callable(label):
        name = getattr(label, "__name__", type(label).__name__)
        return _array(source, rows, np.asarray(label(source.recording)), name)
    if isinstance(label, tuple):
        return _of_agent(source, rows, label)
    if isinstance(label, str) and label in OWN and label not in source.recording.labels:
        values, known, names = _field(source, rows, label, None)
        return Labels(values, known & ~not_a_number(values), label, names)
    if not isinstance(label, str):
        return _array(source, rows, np.asarray(label), "label")
    values, name, names = source.label(label, rows)
    return _all_known(source, values, name, names)


def _few_whole_values(labels: Sequence[Labels]) -> str:
    """What is said of a quantity that looks like classes, as whole numbers beside NaN do; empty where it does not."""
    present = np.unique(np.concatenate([label.values[label.known] for label in labels]))
    if not 2 <= len(present) <= FEW_VALUES or (present % 1 != 0).any():
        return ""
    told = ", ".join(f"{value:g}" for value in present)
    return f"{labels[0].name!r} holds {told} as floats and is taken as a quantity; kind='classification' makes classes"


def _plain(values: np.ndarray, name: str) -> tuple[np.ndarray, Sequence[str]]:
    """Words as whole numbers with names; Python's objects as the numbers or words that they are.

    Raises:
        AnalysisError: objects that are neither, or words of which some are missing.
    """
    if values.dtype.kind == "O":
        if all(isinstance(value, str) for value in values.flat):
            values = values.astype(str)
        elif any(isinstance(value, str) for value in values.flat):
            odd = sum(not isinstance(value, str) for value in values.flat)
            raise AnalysisError(f"label {name!r} is a word at some rows and none at {odd}: give those a word too")
        else:
            try:
                values = values.astype(np.float64)  # None becomes NaN
            except (TypeError, ValueError) as error:
                raise AnalysisError(f"label {name!r} holds objects that are neither numbers nor words") from error
    if values.dtype.kind not in "US":
        return values, ()
    present, place = np.unique(values.astype(str), return_inverse=True)
    return place.reshape(values.shape), present.tolist()


def _array(source: RowSource, rows: Rows, values: np.ndarray, name: str) -> Labels:
    if len(values) != len(source.recording):
        raise AnalysisError(
            f"a label has a value for each of the recording's {len(source.recording)} rows; {name!r} got {len(values)}"
        )
    values, names = _plain(values, name)
    return _all_known(source, values[rows.index], name, names)


def _all_known(source: RowSource, values: np.ndarray, name: str, names: Sequence[str]) -> Labels:
    n_agents = source.env.group(source.group).n_agents
    if values.ndim == 1:
        values = np.repeat(values[:, None], n_agents, axis=1)
    if values.shape[1:] != (n_agents,):
        raise AnalysisError(
            f"label {name!r} is {list(values.shape)}; group {source.group!r} needs [row] or [row, {n_agents} agents]"
        )
    return Labels(values, ~not_a_number(values), name, names)


def _of_agent(source: RowSource, rows: Rows, label: OfAgent) -> Labels:
    """What another agent (or the same) does, sees, is given, or bears as a label: the same for all who are decoded."""
    if len(label) not in (2, 3):
        raise AnalysisError(f"a label of an agent is (agent, field) or (agent, field, feature); got {label}")
    agent, what = label[0], label[1]
    which = label[2] if len(label) == 3 else None
    if agent not in source.recording.agents:
        raise AnalysisError(unknown("recorded agent", agent, source.recording.agents))
    group = next(group for group in source.env.groups if agent in group.agents)
    theirs = RowSource(source.recording, group.name)
    if what in source.recording.labels:
        values, _, names = theirs.label(what, rows)
        found = _all_known(theirs, values, what, names)
        values, known = found.values, found.known
    else:
        values, known, names = _field(theirs, rows, what, which)
    place = group.agents.index(agent)
    n_agents = source.env.group(source.group).n_agents
    name = " ".join(str(part) for part in (agent, what, which) if part is not None)
    column, there = values[:, [place]], (known & ~not_a_number(values))[:, [place]]
    return Labels(column.repeat(n_agents, axis=1), there.repeat(n_agents, axis=1), name, names)


def _field(
    source: RowSource, rows: Rows, what: str, which: str | int | None
) -> tuple[np.ndarray, np.ndarray, Sequence[str]]:
    """A field `[row, agent]` of a group, where it is known, and the names of its classes."""
    group, recording = source.group, source.recording
    spec = source.env.group(group)
    names: Sequence[str] = ()
    known = source.field("acting" if what == "action" else "alive", rows).astype(bool)
    if what == "return_to_go":
        return _return_to_go(source, rows), known, ()
    if what == "recurrent":
        values = source.recurrent_state(rows)
        return _column(values, which, (), f"unit of the recurrent state of {group!r}"), known, ()
    if what not in recording.fields(group):
        valid = [*recording.fields(group), "return_to_go", "recurrent", *recording.labels]
        raise AnalysisError(unknown(f"field of {group!r}, or label,", what, valid))
    values = source.field(what, rows)
    if what == "action" and spec.action.kind == "discrete":
        names = spec.action.names
    if values.ndim > 2:
        features = list(recording.feature_names(group)) if what == "observation" else []
        values = _column(values, which, features, f"feature of {what} of {group!r}")
    elif which is not None:
        raise AnalysisError(f"{what} of {group!r} has one value for each agent, no feature {which!r}")
    return values, known, names


def _column(values: np.ndarray, which: str | int | None, names: Sequence[str], what: str) -> np.ndarray:
    """One feature `[row, agent]` of `[row, agent, ...]`, by name or index."""
    flat = values.reshape(*values.shape[:2], -1)
    valid = [*names, *map(str, range(flat.shape[2]))]
    if which is None:
        raise AnalysisError(f"which {what}? label=(agent, field, feature), feature one of {', '.join(valid[:40])}")
    if str(which) not in valid:
        raise AnalysisError(unknown(what, str(which), valid))
    place = names.index(which) if which in names else int(which)
    return flat[:, :, place]


def _return_to_go(source: RowSource, rows: Rows) -> np.ndarray:
    """The sum of rewards from each step to its episode's end, `[row, agent]`, without discount, also of those given at
    steps that are not among the rows, as while an agent waits."""
    whole = source.rows(np.unique(rows.episode).tolist())
    if not source.keeps_every_step(whole):
        raise AnalysisError("the return to go needs every step of each episode; this recording leaves steps out")
    reward = source.field("reward", whole).astype(np.float64)
    _, start, number, length = np.unique(whole.episode, return_index=True, return_inverse=True, return_counts=True)
    before = np.concatenate([np.zeros((1, reward.shape[1])), reward.cumsum(axis=0)])
    end = (start + length)[number]
    to_go = before[end] - before[np.arange(len(reward))]
    return np.asarray(to_go[np.searchsorted(whole.index, rows.index)])


def rows_later(rows: Rows, offset: int) -> np.ndarray:
    """For each row where the row `offset` steps later in its episode lies, `[row]`; -1 where there is none."""
    _, number = np.unique(rows.episode, return_inverse=True)
    span = int(rows.t.max()) + 1
    key = number.astype(np.int64) * span + rows.t
    order = np.argsort(key, kind="stable")
    place = np.minimum(np.searchsorted(key[order], key + offset), len(key) - 1)
    found = order[place]
    inside = (rows.t + offset >= 0) & (rows.t + offset < span)
    return np.where(inside & (key[found] == key + offset), found, -1)
