"""Values on their way to a notebook: plain JSON, or refused."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from marlnb.batch.sweep.json_values import to_json_value
from marlnb.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "json_text"),
    [
        ((64, (1, 2)), "[64, [1, 2]]"),
        (np.float32(0.5), "0.5"),
        (np.int64(7), "7"),
        (np.bool_(True), "true"),
        (np.str_("a"), '"a"'),
        (np.arange(3), "[0, 1, 2]"),
        (torch.tensor([1, 2]), "[1, 2]"),
        (range(2), "[0, 1]"),
        (Path("a b/c"), '"a b/c"'),
        ({"a": (None, True, 1.5)}, '{"a": [null, true, 1.5]}'),
        ("emoji 🎉, tab\t, line\n", json.dumps("emoji 🎉, tab\t, line\n")),
    ],
)
def test_becomes_json(value: Any, json_text: str) -> None:
    made = to_json_value(value, "x")
    assert json.dumps(made) == json_text
    assert json.loads(json_text) == made and type(json.loads(json_text)) is type(made)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "x must be a finite number, since JSON has no nan"),
        ([1.0, float("-inf")], r"x\[1\] must be a finite number, since JSON has no -inf"),
        (np.float32("inf"), "x must be a finite number"),
        ("a\0b", "x must not contain a NUL character"),
        ("half \ud83d", "x must be valid Unicode"),
        ({1: "a"}, "x: every key must be a text; got 1"),
        ({"a": {"b\0": 1}}, r"a key of x\.a must not contain a NUL"),
        ({1, 2}, r"x must be a text, a number, .*; got \{1, 2\} of set"),
        (Fraction(1, 3), "of Fraction"),
        (b"bytes", "of bytes"),
        (1j, "of complex"),
    ],
)
def test_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        to_json_value(value, "x")


def test_a_list_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ConfigError, match="nested more than"):
        to_json_value(value, "x")
