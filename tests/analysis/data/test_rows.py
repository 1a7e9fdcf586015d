"""Which rows an analysis reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from marlnb.analysis.attribution.over_time.attribute import attribute_over_time
from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.data.views import View
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import AnalysisError, ConfigError, RecordingError
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.edits import Ablate
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.extract import extract
from marlnb.recording.tools.merge import merge
from marlnb.training.policies.agents import Agents
from marlnb.training.runs.run import Run

SITE = "listener/actor/hidden_1"


def test_a_mask_selects_the_episodes_at_which_it_is_true(recording: Recording) -> None:
    mask = np.arange(60) % 20 == 7
    rows = RowSource(recording, "listener").rows(mask)
    assert rows.episode.tolist() == [7] * 25 + [27] * 25 + [47] * 25
    view = View(recording, SITE, episodes=tuple(mask.tolist()))
    assert sorted(set(view.open().episode)) == [7, 27, 47] and ", 3 episodes>" in repr(view)
    result = tuning(recording, site=SITE, label="goal", episodes=mask, n_shuffles=20, n_bootstrap=20)
    assert result.n_episodes == 3


def test_booleans_are_no_numbers(recording: Recording, team: Recording) -> None:
    source = RowSource(recording, "listener")
    with pytest.raises(RecordingError, match="a mask of 60 booleans; got 2 values such as True"):
        source.rows([True, False])
    with pytest.raises(RecordingError, match=r"steps takes integers.*got 25 values such as False"):
        source.rows(None, steps=np.arange(25) > 20)
    with pytest.raises(RecordingError, match="no episode 99 in this recording; valid: 0 to 59"):
        source.rows([5, 99])
    with pytest.raises(RecordingError, match="t takes integers"):
        attribute_over_time(team, group="agent", lookback=2, t=np.arange(25) > 20)


def test_networks_of_one_number_are_not_analysed_together(run: Run, tmp_path: Path) -> None:
    """Agents from elsewhere number their weights 0. Merged, those before and after learning are two networks."""
    agents = Agents(run.policies(), run.experiment.env, tmp_path)
    parts = []
    for seed in (0, 100):
        parts.append(record(agents, name=f"from_{seed}", episodes=4, seed=seed, sites=SITE, progress=False))
        with torch.no_grad():
            for parameter in agents.by_group["listener"].parameters():
                parameter += 0.1
    edit = Ablate(SITE, "mean", source=str(tmp_path / "merged.h5"))
    with merge(parts, tmp_path / "merged.h5") as merged:
        source = RowSource(merged, "listener")
        for select in (source.resolve_checkpoint, lambda: source.rows(None, checkpoint=0)):
            with pytest.raises(AnalysisError, match=r"merged.h5 holds 2 networks of checkpoint 0, .*mnb\.extract"):
                select()
        with pytest.raises(ConfigError, match=r"spans checkpoints \[0, 0\]"), edited(run.policies(), [edit]):
            pass
        with extract(merged, tmp_path / "second.h5", episodes=range(4, 8)) as second:
            assert RowSource(second, "listener").resolve_checkpoint() == 0
            assert second.checkpoint == parts[1].checkpoint
    for part in parts:
        part.close()
