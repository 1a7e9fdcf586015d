"""Claims are asserted with the parameters they were made for; otherwise the reason is printed."""

from __future__ import annotations

import pytest

from marlnb.batch.claims import Claims


def test_a_claim_is_asserted_with_its_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    claim = Claims(frames=(10_000, 8192), algorithm=("mappo", "mappo"), seeds=([0, 1], [0, 1]), seed=(0, {0}))
    claim(True, "it learns")
    with pytest.raises(AssertionError, match="it learns"):
        claim(False, "it learns")
    assert capsys.readouterr().out == ""


def test_with_other_parameters_it_says_why_it_does_not_apply(capsys: pytest.CaptureFixture[str]) -> None:
    claim = Claims(frames=(800, 8192), algorithm=("ippo", "mappo"), episodes=(200, 100), seed=(1, {0}))
    claim(True, "it learns")
    claim(False, "it listens")
    reasons = "frames=800 (needs 8,192), algorithm='ippo' (needs 'mappo'), seed=1 (needs 0)"
    assert capsys.readouterr().out == f"not claimed with {reasons}: it listens\n"


def test_flags_missing_values_and_mixed_choices_have_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    Claims(flag=(False, True), limit=(None, 100), n=(3, {None, 1}))(False, "it learns")
    reasons = "flag=False (needs True), limit=None (needs 100), n=3 (needs 1 or None)"
    assert capsys.readouterr().out == f"not claimed with {reasons}: it learns\n"
