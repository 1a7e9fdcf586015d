"""`Result`, the base class of what every analysis returns, and the statistical constants that all analyses share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from math import isfinite
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from markupsafe import Markup

from marlnb.display.formatting import count, format_number
from marlnb.display.notebook_html import frame_html, joined, title_html

ALPHA = 0.05
"""Level of every test, after its correction (Fisher 1925, Statistical Methods for Research Workers, section 12)."""
CONFIDENCE = 1 - ALPHA
"""Coverage of every interval."""
MIN_EPISODES_FOR_INTERVALS = 20
"""Fewer episodes draw a warning that bootstrap intervals are too narrow. A percentile interval is to a t interval as
1.96 sqrt((n - 1) / n) is to the t quantile: 9% narrower at n = 20 and 18% at n = 10 (Hesterberg 2015, What Teachers
Should Know About the Bootstrap, section 3.2)."""
MIN_EPISODES_FOR_T_TESTS = 30
"""Fewer episodes draw a warning that t intervals are rough: for skewed differences their coverage is close to nominal
from about 30 on (Boos and Hughes-Oliver 2000, How Large Does n Have to be for Z and t Intervals?)."""
MAX_TEXT_ROWS = 6
WARNING_COLOR = "var(--jp-error-color1, #d32f2f)"
"""JupyterLab's own red, which is readable on its light and dark themes; elsewhere a red that is readable on both."""


@dataclass(frozen=True, eq=False, repr=False)
class Result(ABC):
    """What an analysis returns: a verdict first, then the numbers behind it.

    Subclasses are frozen dataclasses with `repr=False` that state `warnings` as a field or compute them.

    Attributes:
        NOT_IN_JSON: fields that `to_json` leaves out, since they are large or are no data.
        MAX_HTML_ROWS: lines of the table that a notebook shows; None: all.
    """

    NOT_IN_JSON: ClassVar[tuple[str, ...]] = ()
    MAX_HTML_ROWS: ClassVar[int | None] = None

    @property
    @abstractmethod
    def verdict(self) -> str:
        """One sentence: what the result says against all its controls, with effect, interval, n and corrected p."""

    @property
    @abstractmethod
    def warnings(self) -> tuple[str, ...]:
        """Reasons not to trust the result; empty if there is none."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Facts that a reader needs and that are no reason for distrust, such as rows without a label."""
        return ()

    @abstractmethod
    def table(self) -> pd.DataFrame:
        """The result as a table."""

    def to_json(self) -> dict[str, Any]:
        """All fields but `NOT_IN_JSON`, with the warnings and notes, as strict JSON: NaN and infinities become None."""
        names = (field.name for field in fields(self) if field.name not in self.NOT_IN_JSON)
        return self._selected_json(*names, "warnings", "notes")

    def _selected_json(self, *names: str, **more: Any) -> dict[str, Any]:
        """Some of the fields and properties by name, and whatever `more` there is, as strict JSON."""
        return dict(strict_json({name: getattr(self, name) for name in names} | more))

    @property
    def remarks(self) -> str:
        """Notes and warnings as they follow the result in its `repr`, a line each; empty if there are none."""
        labelled = [("note", note) for note in self.notes] + list(self._labelled_warnings())
        return "".join(f"\n{label}: {text}" for label, text in labelled)

    def _labelled_warnings(self) -> Iterator[tuple[str, str]]:
        """(label, warning) of each warning; subclasses with other kinds of warnings add theirs."""
        for warning in self.warnings:
            yield "NOT TO BE TRUSTED", warning

    def _repr_table(self) -> pd.DataFrame | None:
        """The few columns that `repr` prints below the verdict, their first rows; None: no table."""
        return None

    def _html_table(self) -> pd.DataFrame | None:
        """The table that a notebook shows: the columns of `repr`, which fit its width; else all; None: no table."""
        small = self._repr_table()
        return self.table() if small is None else small

    def __repr__(self) -> str:
        """The verdict, a small table, then a line for each note and each warning."""
        table = self._repr_table()
        lines = [self.verdict, *([] if table is None else [_text_table(table, MAX_TEXT_ROWS)])]
        return "\n".join(lines) + self.remarks

    def _repr_html_(self) -> str:
        """The verdict, the notes, each warning in red, and the first lines of the table."""
        table, rows, shown = self._html_table(), self.MAX_HTML_ROWS, Markup("")
        if table is not None:
            has_row_names = not isinstance(table.index, pd.RangeIndex)
            shown = frame_html(table.head(rows or len(table)), index=has_row_names)
            if rows is not None and rows < len(table):
                shown += Markup("<p>the first {} of {} rows: table()</p>").format(rows, len(table))
        notes = joined(Markup("<p>{}</p>").format(note) for note in self.notes)
        warnings = joined(
            Markup("<p style='color:{}'><b>{}:</b> {}</p>").format(WARNING_COLOR, label, warning)
            for label, warning in self._labelled_warnings()
        )
        return title_html(self.verdict) + notes + warnings + shown


def _text_table(table: pd.DataFrame, max_rows: int) -> str:
    has_row_names = not isinstance(table.index, pd.RangeIndex)
    number = partial(format_number, digits=3)
    text = table.head(max_rows).to_string(index=has_row_names, float_format=number, na_rep="")
    n_more = len(table) - max_rows
    return text if n_more <= 0 else f"{text}\n... and {n_more} more rows: table()"


def few_episodes_warning(n_episodes: int, minimum: int = MIN_EPISODES_FOR_INTERVALS) -> tuple[str, ...]:
    """A warning if intervals over this many episodes are unreliable; else nothing."""
    if n_episodes >= minimum:
        return ()
    return (f"only {count(n_episodes, 'episode')}: intervals are rough below {minimum}",)


def mean_of_finite(values: np.ndarray) -> np.ndarray:
    """`[row, ...]` -> `[...]`, the mean over the rows with a finite value; NaN where there is none."""
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(finite, values, 0).sum(0) / finite.sum(0))


def grid_table(
    rows: Mapping[str, Sequence[Any] | np.ndarray],
    columns: Mapping[str, Sequence[Any] | np.ndarray],
    values: Mapping[str, np.ndarray],
) -> pd.DataFrame:
    """One line for each cell of a grid: the labels of its row and column, and its values.

    Args:
        rows: by name, `[row]`.
        columns: by name, `[column]`.
        values: by name, `[row, column]`.
    """
    n_rows, n_columns = next(iter(values.values())).shape
    return pd.DataFrame(
        {
            **{name: np.repeat(np.asarray(labels), n_columns) for name, labels in rows.items()},
            **{name: np.tile(np.asarray(labels), n_rows) for name, labels in columns.items()},
            **{name: array.ravel() for name, array in values.items()},
        }
    )


def strict_json(value: Any) -> Any:
    """Mappings, dataclasses, sequences, arrays and scalars as `json.dumps(..., allow_nan=False)` takes them.

    NaN and infinities become None, tuples and arrays lists, dataclasses mappings.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: strict_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return strict_json(value.tolist())
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
