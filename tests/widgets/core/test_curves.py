"""Live curves without a browser: the messages to a page add up to all points, however many there are."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from marlnb.widgets.core.curves import MAX_POINTS, Line, LiveCurves


class Page(LiveCurves):
    """Curves, and the points that a page has: those sent when it was opened, and those of every message since."""

    def __init__(self) -> None:
        self.received: dict[str, list[list[float]]] = {}
        self.messages = 0
        super().__init__()
        self.observe(lambda change: self._take_all(change["new"]), "lines")

    def send(self, content: dict[str, Any], buffers: Any = None) -> None:
        self.messages += 1
        for name, (x, y) in content["add"].items():
            assert len(self.received[name][0]) == content["after"][name]  # otherwise a page requests all points
            self.received[name][0].extend(x)
            self.received[name][1].extend(y)

    def open(self) -> None:
        self._take_all(self.get_state("lines")["lines"])

    def _take_all(self, lines: dict[str, list[list[float]]]) -> None:
        self.received = {name: [list(x), list(y)] for name, (x, y) in lines.items()}


def test_a_page_has_all_points() -> None:
    page, chance = Page(), random.Random(0)
    expected: dict[str, list[float]] = {"a": [], "b": [], "c": []}
    for step in range(300):
        name, n = chance.choice("abc"), chance.randrange(1, 5)
        values = [chance.random() for _ in range(n)]
        x = [float(len(expected[name]) + k) for k in range(n)]
        expected[name] += values
        page.add({name: (x, values)})
        if step == 150:
            page.open()  # reloaded: no point is lost or duplicated
        assert page.received == page.get_state("lines")["lines"]
    assert page.messages > 290  # one for each add: the first points of a line come with the state
    assert {name: y for name, (_, y) in page.received.items()} == expected
    assert page.received["a"][0] == [float(k) for k in range(len(expected["a"]))]


def test_a_page_that_is_opened_later_has_the_points_since_the_last_settling() -> None:
    page = Page()
    page.add({"a": ([0.0], [1.0])})
    page.add({"a": ([1.0], [2.0])})
    assert page.lines == {"a": [[0.0], [1.0]]}  # what is saved with the notebook until it settles
    assert page.get_state()["lines"] == {"a": [[0.0, 1.0], [1.0, 2.0]]}
    page.settle()
    assert page.lines == {"a": [[0.0, 1.0], [1.0, 2.0]]}
    page.clear()
    assert page.lines == {} and page.received == {}


@pytest.mark.parametrize("n", [MAX_POINTS, MAX_POINTS + 1, 2 * MAX_POINTS, 16 * MAX_POINTS])
def test_putting_neighbours_together_keeps_means(n: int) -> None:
    y = np.random.default_rng(0).normal(size=n)
    line = Line()
    line.add(list(range(n)), y.tolist())
    assert len(line.x) <= MAX_POINTS
    if n % 2 == 0:
        width = n // len(line.x)
        assert np.allclose(line.y, y.reshape(-1, width).mean(axis=1))
        assert np.allclose(line.x, np.arange(n).reshape(-1, width).mean(axis=1))
        assert np.isclose(np.mean(line.y), y.mean())
    else:
        assert line.x[-1] == n - 1 and line.y[-1] == y[-1]  # an odd last one stays
        assert np.isclose(line.y[0], y[:2].mean())


def test_many_points_are_few_and_a_page_has_them_too() -> None:
    page = Page()
    for start in range(0, 3 * MAX_POINTS, 100):
        page.add({"a": ([float(k) for k in range(start, start + 100)], [5.0] * 100)})
    x, y = page.received["a"]
    assert page.received == page.get_state("lines")["lines"] and len(x) <= MAX_POINTS
    assert set(y) == {5.0} and x == sorted(x) and x[-1] > 3 * MAX_POINTS - 100


def test_marks_are_in_the_order_of_x() -> None:
    curves = LiveCurves()
    curves.mark({"20": 400.0, "10": 200.0}, strong=["20"])
    assert curves.markers == [[200.0, "10", False], [400.0, "20", True]]
