from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.display.formatting import (
    format_bytes,
    format_clock,
    format_count,
    format_duration,
    format_interval,
    format_number,
    marlnb_command,
    short_path,
)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_700, "1 MB"), (29_740_000_000, "29.7 GB"), (5e12, "5 TB")],
)
def test_bytes(size: float, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(("number", "text"), [(999, "999"), (1000, "1.0k"), (12_345, "12.3k"), (1_250_000, "1.25M")])
def test_counts(number: float, text: str) -> None:
    assert format_count(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.012344, "0.01234"),
        (-12.5, "-12.5"),
        (9054.2, "9054"),
        (9999.6, "10000"),
        (-11_634.2, "-11634"),
        (999_999.4, "999999"),
        (1_163_420, "1.163e+06"),
        (1e-7, "1e-07"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_have_no_power_of_ten_below_a_million(number: float, text: str) -> None:
    assert format_number(number) == text


def test_a_number_with_its_interval() -> None:
    assert format_interval(1812.3, -2160.4, 0.51234, signed=True) == "+1812 [-2160, 0.512]"
    assert format_interval(558.0, 99.7, 1e6, 2) == "558 [100, 1e+06]"


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


def test_a_command_can_be_copied_into_a_shell() -> None:
    assert marlnb_command("resume", "runs/first") == "marlnb resume runs/first"
    assert marlnb_command("resume", "my runs/it's") == """marlnb resume 'my runs/it'"'"'s'"""


def test_a_path_below_the_working_folder_is_shown_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert short_path(tmp_path / "runs" / "a") == "runs/a" and short_path(tmp_path) == "."
    assert short_path(tmp_path.parent / "b") == str(tmp_path.parent / "b")
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert short_path(gone / "a") == str(gone / "a")
