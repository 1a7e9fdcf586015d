"""Messages of errors."""

from __future__ import annotations

import pickle

import pytest

from marlnb.errors import CheckpointError, DiskError, MarlnbError, TrustError, UnknownNameError, printable, unknown


@pytest.mark.parametrize("kind", [MarlnbError, CheckpointError, DiskError, UnknownNameError])
def test_a_message_is_bounded_whatever_it_shows(kind: type[MarlnbError]) -> None:
    error = kind(f"the manifest is malformed: {'x' * 1_000_000}; valid: a dict")
    assert 3_900 < len(str(error)) <= 4_000
    assert str(error).startswith("the manifest is malformed: xxx") and str(error).endswith("xxx; valid: a dict")
    assert "characters left out" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(kind("a request")) == "a request"


def test_a_long_list_of_code_is_shown_whole() -> None:
    text = "\n".join(f"algorithms.agent_{number}: imports package.module{number}:Learner" for number in range(500))
    assert str(TrustError(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, ß 漢 é\n\tindented", "plain, ß 漢 é\n\tindented"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[?25lgone", "\ufffd[2J\ufffd[?25lgone"),
        ("100%\rdone", "100%\ufffddone"),
        ("\x1b]8;;http://x\x1b\\link", "\ufffd]8;;http://x\ufffd\\link"),
        ("a\N{RIGHT-TO-LEFT OVERRIDE}b\N{ZERO WIDTH SPACE}", "a\ufffdb\ufffd"),
        ("\udcff\x9b31m\x7f", "\ufffd\ufffd31m\ufffd"),
    ],
)
def test_a_message_cannot_control_a_terminal(text: str, expected: str) -> None:
    assert printable(text) == expected
    assert str(MarlnbError(text)) == expected and MarlnbError(7, text).args == (7, expected)


def test_a_name_that_is_none_is_an_error_with_the_valid_ones() -> None:
    """As `recording[0]`, or `for site in recording`, asks for."""
    assert unknown("recorded site", 0, ["b", "a"]) == "no recorded site 0. Valid: a, b"
