"""Which runs may be averaged."""

from __future__ import annotations

from pathlib import Path

from marlnb.training.runs.comparable import groups_to_average, read_settings, reasons_against_average
from marlnb.training.runs.run import Run
from tests.training.toys import count_experiment


def test_where_a_run_is_logged_and_how_it_is_executed_does_not_matter(tmp_path: Path) -> None:
    words = {"a": "wandb_project=thesis", "b": "wandb_entity=lab", "c": "cuda_graphs=true"}
    for seed, (name, word) in enumerate(words.items()):
        Run.create(tmp_path / name, count_experiment(word, f"seed={seed}"))
    settings = {name: read_settings(tmp_path / name) for name in words}
    assert groups_to_average(settings) == [["a", "b", "c"]] and reasons_against_average(settings) == []
