"""Names of agents and features: one or several, all of them valid, and never none."""

from __future__ import annotations

import numpy as np
import pytest

from marlnb.analysis.data.labels import label_list
from marlnb.analysis.data.views import View, chosen_names
from marlnb.analysis.representations.embedding import embed
from marlnb.analysis.representations.roles import roles
from marlnb.analysis.representations.similarity import similarity_matrix
from marlnb.errors import AnalysisError, RecordingError
from marlnb.recording.file.reader import Recording

SITE = "agent/actor/gru"


def test_one_name_is_a_list_of_one() -> None:
    assert chosen_names("agent", "fox_0", ["fox_0", "fox_1"]) == ["fox_0"]
    assert chosen_names("agent", ("fox_1", "fox_0"), ["fox_0", "fox_1"]) == ["fox_1", "fox_0"]
    with pytest.raises(AnalysisError, match="no agent 'fox_2' at 'fox/actor'; did you mean"):
        chosen_names("agent at 'fox/actor'", "fox_2", ["fox_0", "fox_1"])
    with pytest.raises(AnalysisError, match=r"an empty list chooses no agent\. Valid: fox_0, fox_1"):
        chosen_names("agent", [], ["fox_0", "fox_1"])


def test_one_label_is_a_list_of_one() -> None:
    values = np.arange(3)
    assert label_list("goal") == ["goal"] and label_list(len) == [len]  # type: ignore[arg-type]
    assert label_list(values)[0] is values and label_list(()) == []
    assert label_list(["goal", ("fox_0", "action")]) == ["goal", ("fox_0", "action")]


def test_a_view_of_a_path_is_that_of_its_recording(team: Recording) -> None:
    for path in (team.path, str(team.path)):
        view = View(path, SITE, "agent_2", episodes=(1, 4))
        np.testing.assert_array_equal(view.open().all(), View(team, SITE, "agent_2", episodes=(1, 4)).open().all())
        assert repr(view) == repr(View(team, SITE, "agent_2", episodes=(1, 4)))
    with pytest.raises(RecordingError, match=r"missing\.h5"):
        View("missing.h5", SITE).open()


def test_analyses_take_one_agent_by_its_name(team: Recording) -> None:
    assert embed(team, site=SITE, agents="agent_2", max_points=50).agents == ("agent_2",)
    matrix = similarity_matrix(team, sites=SITE, agents="agent_2", n_shuffles=1, n_bootstrap=20)
    assert matrix.rows == ("agent_2 actor/gru",)
    for site in (SITE, None):
        with pytest.raises(AnalysisError, match=r"2 or more agents; got \['agent_2'\]"):
            roles(team, site=site, agents="agent_2")
    with pytest.raises(AnalysisError, match=r"an empty list chooses no agent at 'agent/actor/gru'\. Valid: agent_0"):
        embed(team, site=SITE, agents=[])
