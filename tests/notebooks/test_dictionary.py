"""The tutorial on dictionaries, shorter; it asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.batch.job.execute import execute

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "dictionary.ipynb"


@pytest.mark.timeout(600)
def test_it_runs(tmp_path: Path) -> None:
    execute(NOTEBOOK, tmp_path / "run", {"epochs": 15}, progress=False)
    dictionary = Dictionary.load(tmp_path / "run" / "dictionary.h5")
    assert dictionary.site == "listener/actor/hidden_2" and dictionary.n_features == 128
