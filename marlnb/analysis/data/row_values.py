"""What an agent's rows are told apart by: a label, a feature that it observes, what it does, or a function of yours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marlnb.analysis.data.labels import Label, resolve_label
from marlnb.analysis.data.missing_labels import LeftOut, not_a_number
from marlnb.analysis.data.rows import Rows
from marlnb.analysis.data.views import Units
from marlnb.errors import AnalysisError, unknown


@dataclass(frozen=True)
class RowValues:
    """A value for each of an agent's rows.

    Attributes:
        values: `[row]`; known: `[row]` bool: there is such a value, and it is a number.
        names: of the values 0, 1, ...; empty where they have none.
    """

    values: np.ndarray
    known: np.ndarray
    name: str
    names: tuple[str, ...]

    @property
    def is_class(self) -> bool:
        return self.values.dtype.kind in "iub"

    def left_out(self, who: str) -> LeftOut:
        """What is to be said of an agent's rows that have no value."""
        found = LeftOut()
        found.add(who, self.name, np.ones(len(self.values), bool), self.known, not_a_number(self.values))
        return found

    def class_name(self, value: float) -> str:
        index = int(value)
        return self.names[index] if self.is_class and 0 <= index < len(self.names) else f"{value:g}"


def row_values(units: Units, by: Label) -> RowValues:
    """By what `by` says: what `decode` takes as a label, besides `t` and the name of a feature the agent observes.

    Raises:
        AnalysisError: there is no such; the message names the labels and features.
    """
    if isinstance(by, str) and by == "t" and by not in units.source.recording.labels:
        return RowValues(units.t, np.ones(len(units), bool), "time (steps)", ())
    rows = Rows(units.index, units.episode, units.t)
    label: Label = by
    if isinstance(by, str):
        features = _features(units)
        known = [*units.source.recording.labels, "action", "reward", "return_to_go"]
        if by in features and by not in known:
            label = (units.agent, "observation", by)
        elif by not in known:
            raise AnalysisError(unknown("label or observed feature", by, [*known, "t", *features]))
    found = resolve_label(units.source, rows, label)
    values = found.values[:, units.place]
    values = values.astype(np.int8) if values.dtype == bool else values
    name = by if isinstance(by, str) else found.name
    if values.dtype.kind not in "iuf":
        raise AnalysisError(
            f"label {name!r} holds {values.dtype} and no numbers; give whole numbers for classes, as "
            "np.unique(label, return_inverse=True)[1]"
        )
    return RowValues(values, found.known[:, units.place], name, tuple(found.class_names))


def _features(units: Units) -> Sequence[str]:
    return units.source.recording.feature_names(units.source.group)
