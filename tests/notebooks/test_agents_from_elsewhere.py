"""The notebook on agents from elsewhere, with small parameters."""

from __future__ import annotations

from pathlib import Path

from marlnb.batch.job.execute import execute
from marlnb.recording.file.reader import Recording

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "agents_from_elsewhere.ipynb"
SMALL = {"episodes": 6, "intervention_episodes": 6, "n_units": 8}


def test_it_runs(tmp_path: Path) -> None:
    execute(NOTEBOOK, tmp_path / "run", SMALL, progress=False)
    with Recording.open(tmp_path / "run" / "recordings" / "recording.h5") as recording:
        assert recording.source == "BenchMARL mappo checkpoint_60000.pt"
        assert len(recording) == 600 and "agent/critic/hidden_2" in recording.sites
