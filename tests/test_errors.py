"""Messages of errors."""

from __future__ import annotations

import pickle

import pytest

from marlnb.errors import CheckpointError, DiskError, MarlnbError, TrustError, UnknownNameError


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
