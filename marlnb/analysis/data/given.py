"""`given=`: what an analysis takes as known already, such as the agent's own action or an observed feature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb.analysis.data.labels import Label, Labels, own_action, resolve_label
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.errors import AnalysisError

Given = Label | list[Label]
"""One label, field or observed feature, or a list of them, as `decode` takes a label."""


@dataclass(frozen=True)
class GivenColumns:
    """Quantities as they are, classes one-hot.

    Attributes:
        values: `[row, agent of the group, column]` float64.
        known: `[row, agent of the group]` bool, where all of them have a value.
        names: of what is given.
    """

    values: np.ndarray
    known: np.ndarray
    names: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.names)


def given_columns(source: RowSource, rows: Rows, given: Given | None) -> GivenColumns | None:
    """What is given, as columns for a linear model; None where nothing is.

    Raises:
        AnalysisError: an unknown name (the message suggests the nearest), or an empty list.
    """
    if given is None:
        return None
    names = given if isinstance(given, list) else [given]
    labels = [label for name in names for label in _resolve(source, rows, name)]
    if not labels:
        raise AnalysisError("given=[] names nothing; leave it out, or give labels, 'action', or observed features")
    return GivenColumns(
        np.concatenate([_columns(label) for label in labels], axis=2),
        np.logical_and.reduce([label.known for label in labels]),
        tuple(dict.fromkeys("own action" if label.name == "action" else label.name for label in labels)),
    )


def _resolve(source: RowSource, rows: Rows, label: Label) -> list[Labels]:
    """The label; of the agent's own action, one for each of its components."""
    if isinstance(label, str) and label == "action" and label not in source.recording.labels:
        return own_action(source, rows)
    return [resolve_label(source, rows, label)]


def _columns(label: Labels) -> np.ndarray:
    """`[row, agent, column]`: a quantity is one column; classes have one column each."""
    if label.values.dtype.kind not in "iub":
        return np.where(label.known, label.values, 0.0).astype(np.float64)[..., None]
    classes = np.unique(label.values[label.known])
    return (label.values[..., None] == classes).astype(np.float64)
