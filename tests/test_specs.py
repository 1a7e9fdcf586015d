"""Specs: names that do not fit are errors."""

from __future__ import annotations

import pytest

from marlnb.errors import ConfigError
from marlnb.specs import ActionSpec

NAMES = ("a", "b", "c", "d", "e")


@pytest.mark.parametrize(
    ("kind", "options", "valid", "expected"),
    [
        ("discrete", {"n": (3,)}, (3,), "3 choices"),
        ("multi_discrete", {"n": (2, 3)}, (2, 5), "5 choices or 2 components"),
        ("continuous", {"low": (0.0, 0.0), "high": (1.0, 1.0)}, (2,), "2 components"),
    ],
)
def test_an_action_has_a_name_for_each_choice_or_component(
    kind: str, options: dict[str, tuple[float, ...]], valid: tuple[int, ...], expected: str
) -> None:
    for n in range(1, 6):
        if n in valid:
            assert ActionSpec(kind, **options, names=NAMES[:n]).names == NAMES[:n]  # type: ignore[arg-type]
        else:
            with pytest.raises(ConfigError, match=f"got {n} action names for {expected}; give one for each"):
                ActionSpec(kind, **options, names=NAMES[:n])  # type: ignore[arg-type]
