"""The base class of results: what a notebook shows, and JSON that every reader accepts."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import marlnb.analysis
from marlnb.analysis.results import Result, few_episodes_warning, grid_table


@dataclass(frozen=True)
class Score:
    value: float


@dataclass(frozen=True, eq=False, repr=False)
class Example(Result):
    values: np.ndarray
    score: Score = Score(1.0)
    weights: object = None
    warnings: tuple[str, ...] = ()

    NOT_IN_JSON = ("weights",)
    MAX_HTML_ROWS = 2

    def table(self) -> pd.DataFrame:
        return pd.DataFrame({"unit": self.values})

    @property
    def verdict(self) -> str:
        return "The <b>unit</b> is above chance."

    def _repr_table(self) -> pd.DataFrame:
        return self.table()


def test_a_notebook_shows_the_words_the_warnings_and_the_table() -> None:
    html = Example(np.array([0.12345]), warnings=("few: 3 < 20",))._repr_html_()
    assert html.startswith("<p><b>The &lt;b&gt;unit&lt;/b&gt; is above chance.</b></p>")
    assert "NOT TO BE TRUSTED:</b> few: 3 &lt; 20</p>" in html and "0.123<" in html
    assert "NOT TO" not in Example(np.zeros(1))._repr_html_()


def test_text_starts_with_the_verdict_and_shows_a_small_table() -> None:
    lines = repr(Example(np.arange(9), warnings=("few",))).splitlines()
    assert lines[0] == "The <b>unit</b> is above chance." and lines[1].strip() == "unit"
    assert len(lines) == 1 + 1 + 6 + 1 + 1 and lines[-2] == "... and 3 more rows: table()"
    assert lines[-1] == "NOT TO BE TRUSTED: few"


def test_a_notebook_shows_the_columns_of_the_text_and_not_a_table_wider_than_the_page() -> None:
    class Wide(Example):
        def table(self) -> pd.DataFrame:
            return pd.DataFrame({f"column_{k}": self.values for k in range(20)})

        def _repr_table(self) -> pd.DataFrame:
            return self.table()[["column_3"]]

    html = Wide(np.zeros(1))._repr_html_()
    assert html.count("<th>column_") == 1 and "column_3" in html


def test_a_long_table_states_how_many_of_its_rows_are_shown() -> None:
    html = Example(np.arange(5))._repr_html_()
    assert "the first 2 of 5 rows" in html and "<td>1</td>" in html and "<td>2</td>" not in html
    assert "rows" not in Example(np.arange(2))._repr_html_()


def test_json_is_strict_and_whole() -> None:
    result = Example(np.array([1.5, np.nan, -np.inf]), Score(float("nan")), object(), ("few",))
    expected = {"values": [1.5, None, None], "score": {"value": None}, "warnings": ["few"], "notes": []}
    assert result.to_json() == expected
    assert json.loads(json.dumps(result.to_json(), allow_nan=False)) == expected


def result_classes() -> Iterator[type[Result]]:
    for module in pkgutil.walk_packages(marlnb.analysis.__path__, "marlnb.analysis."):
        importlib.import_module(module.name)
    pending = [Result]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind.__module__.startswith("marlnb.") and kind is not Result:
            yield kind


@pytest.mark.parametrize("kind", sorted(result_classes(), key=str))
def test_every_result_states_its_own_verdict_first(kind: type[Result]) -> None:
    """A dataclass without `repr=False` would print its fields instead of the verdict and the warnings."""
    assert kind.__repr__ is Result.__repr__ and "verdict" in vars(kind)
    assert not getattr(kind, "__abstractmethods__", None)


def test_a_grid_has_a_line_for_each_cell() -> None:
    table = grid_table({"site": ("s", "s"), "agent": ("a", "b")}, {"t": [0, 3, 6]}, {"x": np.arange(6.0).reshape(2, 3)})
    assert table.columns.tolist() == ["site", "agent", "t", "x"] and len(table) == 6
    assert table.iloc[4].tolist() == ["s", "b", 3, 4.0]


def test_few_episodes_draw_a_warning() -> None:
    assert few_episodes_warning(20) == () and few_episodes_warning(29, 30) != ()
    assert few_episodes_warning(19) == ("only 19 episodes: intervals are rough below 20",)
