"""Strata: rows by the classes of given labels, so that like is compared with like."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb.analysis.data.given import Given
from marlnb.analysis.data.labels import Labels, resolve_label
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.errors import AnalysisError

MAX_STRATA = 64


@dataclass(frozen=True)
class Strata:
    """The classes of what is given.

    Attributes:
        index: `[row, agent of the group]`, of the row's stratum; -1 where something given is unknown.
        names: `[stratum]`, such as "goal = red", or "goal = red, action = left" where several labels are given.
        given: names of the labels.
    """

    index: np.ndarray
    names: tuple[str, ...]
    given: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.given)


def strata_of(source: RowSource, rows: Rows, given: Given) -> Strata:
    """Each row's combination of classes, for each agent.

    Raises:
        AnalysisError: an unknown name, a quantity (which has no classes), or more than 64 combinations.
    """
    labels = [resolve_label(source, rows, label) for label in (given if isinstance(given, list) else [given])]
    if not labels:
        raise AnalysisError("given=[] names nothing; leave it out, or give labels or 'action'")
    for label in labels:
        if label.values.dtype.kind not in "iub":
            raise AnalysisError(
                f"given={label.name!r} is a quantity without classes; give a label of classes or 'action', or choose "
                "rows by its value, with rows="
            )
    known = np.logical_and.reduce([label.known for label in labels])
    codes = np.stack([np.where(known, label.values, 0) for label in labels], axis=-1).astype(np.int64)
    present, number = np.unique(codes[known], axis=0, return_inverse=True)
    if len(present) > MAX_STRATA:
        raise AnalysisError(f"given= has {len(present)} combinations of classes; at most {MAX_STRATA} are compared")
    index = np.full(known.shape, -1)
    index[known] = number.reshape(-1)
    names = tuple(", ".join(_name(label, value) for label, value in zip(labels, values)) for values in present)
    return Strata(index, names, tuple(label.name for label in labels))


def _name(label: Labels, value: int) -> str:
    names = label.class_names
    return f"{label.name} = {names[value] if 0 <= value < len(names) else value}"
