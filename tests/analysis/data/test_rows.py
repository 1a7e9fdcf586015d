"""Which rows an analysis reads."""

from __future__ import annotations

import numpy as np
import pytest

from marlnb.analysis.attribution.over_time.attribute import attribute_over_time
from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.data.views import View
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import RecordingError
from marlnb.recording.file.reader import Recording

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
