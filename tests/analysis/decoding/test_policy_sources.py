"""decode and concept_activation on recordings of several checkpoints, and of external agents."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.analysis.concepts.tcav import concept_activation
from marlnb.analysis.decoding.decode import decode
from marlnb.errors import AnalysisError

TRAINED = Path(__file__).parents[3] / "data" / "speaker_listener"
SITE = "listener/actor/hidden_1"
SPEED = ("listener_0", "observation", "velocity_x")


@pytest.fixture(scope="module")
def spanning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mnb.Recording]:
    """Thirty episodes of each of two checkpoints in one file."""
    path = shutil.copytree(TRAINED, tmp_path_factory.mktemp("runs") / "run")
    with mnb.record(path, episodes=30, sites=SITE, checkpoint=[10, 130], progress=False) as opened:
        yield opened


def test_several_checkpoints_are_rejected_unless_one_is_chosen(spanning: mnb.Recording) -> None:
    with pytest.raises(AnalysisError, match=r"spans checkpoints \[10, 130\].*choose one with checkpoint="):
        decode(spanning, site=SITE, label="goal")
    with pytest.raises(AnalysisError, match=r"spans checkpoints \[10, 130\]"):
        concept_activation(spanning, site=SITE, concept="goal", value="red")
    with pytest.raises(AnalysisError, match="no rows of checkpoint 50"):
        decode(spanning, site=SITE, label="goal", checkpoint=50)
    with pytest.raises(AnalysisError, match=r"no rows of episodes=\[3\] at checkpoint=130; valid: 30 to 59"):
        decode(spanning, site=SITE, label="goal", checkpoint=130, episodes=[3])


def test_only_the_chosen_checkpoints_rows_are_read(spanning: mnb.Recording) -> None:
    """At the fourth step only the last checkpoint's listener knows the goal."""
    scores = {}
    for iteration in (10, 130):
        result = decode(spanning, site=SITE, label="goal", at=4, checkpoint=iteration, n_shuffles=1)
        assert result.checkpoint == iteration and result.of(t=4).n_rows == result.of(t=4).n_episodes == 30
        scores[iteration] = result.of(t=4).score
    assert scores[10] < 0.7 and scores[130] > 0.9
    table = spanning.checkpoints.set_index("iteration").loc[130]
    rows = slice(int(table["row_start"]), int(table["row_stop"]))
    alone = spanning[SITE].to_numpy()[rows]
    direction = decode(spanning, site=SITE, label=SPEED, checkpoint=130, n_shuffles=1).direction()
    along = alone[:, 0].astype(np.float64) @ np.asarray(direction.vector)
    assert direction.mean == pytest.approx(along.mean(), abs=1e-4)
    assert direction.scale == pytest.approx(along.std(), rel=1e-3)


def test_external_agents_are_decoded(tmp_path: Path) -> None:
    """Without an experiment there is no untrained network, which draws a warning."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(18, 16), torch.nn.ReLU(), torch.nn.Linear(16, 5))
    agents = mnb.agents_from_module(module, "mpe/simple_spread", path=tmp_path)
    recording = mnb.record(agents, episodes=50, progress=False)
    site = "agent/actor/hidden_1"
    units = recording[site].to_numpy()
    label = units @ np.linspace(-1, 1, units.shape[-1])
    result = decode(recording, site=site, label=label, agent="agent_1", n_shuffles=1)
    assert result.of().score > 0.999 and result.of().untrained is None
    assert any("no untrained network to compare with" in note for note in result.warnings)
    output = units @ module[2].weight[1].detach().numpy()  # the logit is linear in these units
    high = output > np.median(output)
    for concept, share in ((high, 1.0), (~high, 0.0)):
        tcav = concept_activation(
            recording, site=site, concept=concept, to="logit", target=1, n_runs=3, policies=agents.by_group
        )
        assert [score.score for score in tcav.scores] == [share] * 3
    with pytest.raises(AnalysisError, match="pass policies="):
        concept_activation(recording, site=site, concept=high)
