from __future__ import annotations

import pytest

from marlnb.display.formatting import format_bytes, format_clock, format_count, format_duration


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_700, "1 MB"), (29_740_000_000, "29.7 GB"), (5e12, "5 TB")],
)
def test_bytes(size: float, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(("number", "text"), [(999, "999"), (1000, "1.0k"), (12_345, "12.3k"), (1_250_000, "1.25M")])
def test_counts(number: float, text: str) -> None:
    assert format_count(number) == text


@pytest.mark.parametrize(("seconds", "text"), [(41.6, "0:42"), (725, "12:05"), (11_220, "3:07:00")])
def test_clock(seconds: float, text: str) -> None:
    assert format_clock(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.34, "0.34 s"),
        (9.97, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (7500, "2 h 05 min"),
        (359_999.9, "100 h"),
        (4_320_000, "1,200 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
