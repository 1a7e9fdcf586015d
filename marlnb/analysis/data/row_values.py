"""A value for each of an agent's rows: a label, an observed feature, an action, or the result of a user's function."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from marlnb.analysis.data.labels import Label, resolve_label
from marlnb.analysis.data.missing_labels import MissingLabels, not_a_number
from marlnb.analysis.data.rows import Rows
from marlnb.analysis.data.views import Units
from marlnb.errors import AnalysisError, unknown


@dataclass(frozen=True)
class RowValues:
    """A value for each of an agent's rows.

    Attributes:
        values: `[row]`.
        known: `[row]` bool: there is a value, and it is a number.
        name: of the label.
        names: of the values 0, 1, ...; empty where they have none.
    """

    values: np.ndarray
    known: np.ndarray
    name: str
    names: tuple[str, ...]

    @property
    def is_class(self) -> bool:
        return self.values.dtype.kind in "iub"

    def at(self, rows: np.ndarray) -> RowValues:
        """The values at some of the rows: their indices, or `[row]` bool."""
        return replace(self, values=self.values[rows], known=self.known[rows])

    def missing_labels(self, who: str, missing: MissingLabels | None = None) -> MissingLabels:
        """Messages about the agent's rows without a value, added to those in `missing`."""
        missing = missing or MissingLabels()
        missing.add(who, self.name, np.ones(len(self.values), bool), self.known, not_a_number(self.values))
        return missing

    def class_name(self, value: float) -> str:
        index = int(value)
        return self.names[index] if self.is_class and 0 <= index < len(self.names) else f"{value:g}"


def row_values(units: Units, label: Label) -> RowValues:
    """The label of each row: what `decode` takes as a label, also `t` and the name of an observed feature.

    Raises:
        AnalysisError: no such label; the message names the labels and features. Or a label that holds no numbers.
    """
    recording = units.source.recording
    if isinstance(label, str) and label == "t" and label not in recording.labels:
        return RowValues(units.t, np.ones(len(units), bool), "time (steps)", ())
    resolved: Label = label
    if isinstance(label, str):
        features = recording.feature_names(units.source.group)
        labels = [*recording.labels, "action", "reward", "return_to_go"]
        if label in features and label not in labels:
            resolved = (units.agent, "observation", label)
        elif label not in labels:
            raise AnalysisError(unknown("label or observed feature", label, [*labels, "t", *features]))
    by_agent = resolve_label(units.source, Rows(units.index, units.episode, units.t), resolved)
    values = by_agent.values[:, units.agent_index]
    values = values.astype(np.int8) if values.dtype == bool else values
    name = label if isinstance(label, str) else by_agent.name
    if values.dtype.kind not in "iuf":
        raise AnalysisError(
            f"label {name!r} holds {values.dtype}, not numbers; number the classes with "
            "np.unique(label, return_inverse=True)[1]"
        )
    return RowValues(values, by_agent.known[:, units.agent_index], name, tuple(by_agent.class_names))
