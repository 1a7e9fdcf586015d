"""The two analyses of dictionaries share what they look at, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from marlnb.groundtruth.analyses import dictionary


def test_the_dictionaries_of_a_recording_are_shared_and_those_of_another_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(dictionary, "_look", lambda case: looked.append(case.recording.path) or iter(()))
    monkeypatch.setattr(dictionary, "_LAST", {})
    for path in ("recording-20.h5", "recording-20.h5", "recording-40.h5"):
        question, recording = SimpleNamespace(key_sha256="one"), SimpleNamespace(path=path)
        dictionary._used(SimpleNamespace(question=question, recording=recording, agents=SimpleNamespace(path="agents")))
    assert looked == ["recording-20.h5", "recording-40.h5"]
