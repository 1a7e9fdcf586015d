"""The checkpoints panel without a browser: list, evaluate, compare, annotate, load, delete."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from marlnb.errors import CheckpointError
from marlnb.experiment import Experiment
from marlnb.recording.capture.recorder import record
from marlnb.training.background import start
from marlnb.training.collect.episodes import EpisodeTable
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.checkpoints.notes import NOTES, CheckpointNotes
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from marlnb.widgets.runs.checkpoint_evaluation import _columns
from marlnb.widgets.runs.checkpoint_rows import CheckpointRows
from marlnb.widgets.runs.checkpoints_panel import CheckpointsPanel
from tests.widgets.trained import SMALL, original, run, text_of, until  # noqa: F401


def _agents(table: EpisodeTable) -> pd.DataFrame:
    """The return of each agent in each episode."""
    return table.to_frame().drop(columns=["seed", "length"])


def test_what_is_listed_is_what_lies_in_the_folder(run: Run) -> None:  # noqa: F811
    panel = CheckpointsPanel(run)
    assert panel.table.content["names"] == ["3", "6", "9"]
    for name, cells in zip(panel.table.content["names"], panel.table.content["rows"]):
        folder = run.path / "checkpoints" / name
        size = sum(path.stat().st_size for path in folder.iterdir())
        (manifest,) = [json.loads(path.read_text()) for path in folder.glob("*.json")]
        assert cells[0] == name and cells[1] == f"{int(name) * 100}"  # 4 copies of 25 steps an iteration
        assert cells[2].startswith(f"{manifest['score']:.2f}") and cells[4] == f"{size / 1000:.3g} kB"
    scores = {name: run.checkpoint(int(name)).score for name in panel.table.content["names"]}
    (best,) = [cells[0] for cells in panel.table.content["rows"] if "best" in cells[2]]
    assert best == max(scores, key=lambda name: scores[name] or -np.inf)
    assert panel.curves.markers == [[300, "3", False], [600, "6", False], [900, "9", False]]


def test_a_damaged_checkpoint_is_named(run: Run) -> None:  # noqa: F811
    (run.path / "checkpoints" / "6" / "manifest.json").write_text("{")
    panel = CheckpointsPanel(run)
    assert panel.table.content["names"] == ["3", "9"]
    assert text_of(panel._damaged) == f"not listed: {run.damaged_checkpoints[6]}"
    panel.close()


def test_an_evaluation_equals_mnb_evaluate_and_is_stored(run: Run) -> None:  # noqa: F811
    panel = CheckpointsPanel(run)
    panel.choose(6)
    panel.evaluation.form.set({"episodes": 12, "seed": 5})
    panel.evaluation.evaluate().wait(60)
    expected = evaluate(run, checkpoint=6, episodes=12, seed=5)
    (stored,) = CheckpointNotes(run).evaluations(6)
    assert stored["return_mean"] == expected.return_mean and stored["return_se"] == expected.return_se
    mean, error = expected.return_mean["listener"], expected.return_se["listener"]
    again = CheckpointsPanel(Run.open(run.path))
    again.choose(6)
    assert f"{mean:.3f} ± {error:.3f}" in text_of(again.evaluation._stored)
    assert again.table.content["rows"][1][5].startswith(f"{expected.score:.3f} ±")


def test_a_comparison_is_paired_by_episode(run: Run) -> None:  # noqa: F811
    panel = CheckpointsPanel(run)
    panel.choose(3)
    panel.evaluation.form.set({"episodes": 20})
    panel.evaluation._other.value = "9"
    assert "not been evaluated on the same episodes" in text_of(panel.evaluation._comparison)
    assert [label for _, label, strong in panel.curves.markers if strong] == ["3", "9"]
    panel.evaluation.evaluate(3, 9).wait(60)
    first, second = (evaluate(run, checkpoint=k, episodes=20).table for k in (3, 9))
    assert first is not None and second is not None
    difference = second.to_frame()["listener_0"] - first.to_frame()["listener_0"]
    expected = f"{difference.mean():.3f} ± {difference.sem():.3f}"
    assert expected in text_of(panel.evaluation._comparison)


def test_players_of_one_group_have_a_return_each(tmp_path: Path) -> None:
    poker = ("env=tree/kuhn_poker", "algorithm=ippo", "n_envs=4", "rollout_steps=8", "frames=64", "threads=1")
    played = train(Experiment.compose(*poker, "checkpoint_every=1"), tmp_path / "run", progress=False)
    panel = CheckpointsPanel(played)
    panel.choose(1)
    panel.evaluation.form.set({"episodes": 20, "explore": True})
    panel.evaluation._other.value = "2"
    panel.evaluation.evaluate(1, 2).wait(60)
    first, second = (evaluate(played, checkpoint=k, episodes=20, explore=True).table for k in (1, 2))
    assert first is not None and second is not None
    agents = [f"{agent} {values.mean():.3f} ± {values.sem():.3f}" for agent, values in _agents(first).items()]
    assert len(agents) == 2 and panel.table.content["rows"][0][5] == "; ".join(agents)
    stored, comparison = text_of(panel.evaluation._stored), text_of(panel.evaluation._comparison)
    for agent, values in _agents(first).items():
        difference = _agents(second)[agent] - values
        assert f"return of {agent}" in stored and f"{values.mean():.3f} ± {values.sem():.3f}" in stored
        assert f"{difference.mean():.3f} ± {difference.sem():.3f}" in comparison


def test_games_without_a_winner_are_compared_with_others_player_by_player() -> None:
    decided = {"returns": {"player": [0.0, 0.0]}, "opponent_returns": {"player": {"a": [1.0, -1.0], "b": [-1.0, 1.0]}}}
    drawn = {"returns": {"player": [0.0, 0.0]}, "opponent_returns": {}}
    penalised = {"returns": {"player": [0.0, -0.5]}, "opponent_returns": {}}
    players = [("player", "a"), ("player", "b")]
    assert _columns([drawn, decided]) == _columns([decided, drawn]) == players
    assert _columns([drawn]) == _columns([penalised, decided]) == [("player", "player")]


def test_an_evaluation_that_cannot_be_stored_is_shown(run: Run) -> None:  # noqa: F811
    panel = CheckpointsPanel(run)
    panel.choose(6)
    (run.path / ".checkpoint_notes.json.lock").mkdir()  # as in a folder that may only be read
    panel.evaluation.form.set({"episodes": 4})
    panel.evaluation.evaluate().wait(60)
    mean = evaluate(run, checkpoint=6, episodes=4).return_mean["speaker"]
    line = text_of(panel.evaluation._line)
    assert f"return of 6: {mean:.3f} ± " in line and "not stored: " in line and ", stored" not in line


def test_an_evaluation_that_is_stopped_leaves_nothing(run: Run) -> None:  # noqa: F811
    panel = CheckpointsPanel(run)
    panel.choose(9)
    panel.evaluation.form.set({"episodes": 1_000_000})
    work = panel.evaluation.evaluate()
    until(lambda: "of 1,000,000 episodes" in text_of(panel.evaluation._line))
    panel.evaluation._other.value = "3"
    assert panel.evaluation._both.disabled  # it would do nothing
    panel.evaluation.stop()
    work.wait(60)
    assert not work.is_alive and "stopped" in text_of(panel.evaluation._line) and not panel.evaluation._both.disabled
    assert not (run.path / NOTES).exists()


def test_an_invalid_number_is_a_problem_of_its_field(run: Run) -> None:  # noqa: F811
    panel = CheckpointsPanel(run)
    panel.choose(9)
    panel.evaluation.form.fields["episodes"].enter("0")
    assert "at least 1" in panel.evaluation.form.problems["episodes"]
    panel.evaluation._try()
    assert "at least 1" in text_of(panel.evaluation._line) and panel.evaluation.task is None


def test_the_shown_code_does_the_same(run: Run) -> None:  # noqa: F811
    panel = CheckpointsPanel(run)
    panel.choose(3)
    panel.evaluation.form.set({"episodes": 4, "seed": 11})
    panel.save_note("it's \\ the first")
    made: dict[str, object] = {}
    exec(text_of(panel._code), made)
    notes = CheckpointNotes(run)
    assert notes.note(3) == "it's \\ the first"
    assert [(entry["episodes"], entry["seed"]) for entry in notes.evaluations(3)] == [(4, 11)]
    panel.load()
    until(lambda: panel.policies is not None)
    assert panel.policies is not None
    theirs = made["policies"]["listener"].state_dict()  # type: ignore[index]
    assert all(torch.equal(value, theirs[name]) for name, value in panel.policies["listener"].state_dict().items())
    line = text_of(panel._command).splitlines()[0]
    assert line == f"marlnb evaluate {run.path} --checkpoint 3 --episodes 4 --seed 11"


def test_deleting_asks_first_and_lists_consequences(run: Run) -> None:  # noqa: F811
    record(run, episodes=2, checkpoint=6, name="of six", progress=False).close()
    panel = CheckpointsPanel(run)
    panel.choose(6)
    panel.delete()  # not confirmed
    assert (run.path / "checkpoints" / "6").is_dir()
    panel.ask_to_delete()
    assert "Recordings made with it: of six." in text_of(panel._question) and panel._confirmation.layout.display == ""
    panel._no.click()
    assert panel._confirmation.layout.display == "none" and (run.path / "checkpoints" / "6").is_dir()
    panel.ask_to_delete()
    panel._yes.click()
    assert not (run.path / "checkpoints" / "6").exists()
    assert panel.table.content["names"] == ["3", "9"] and panel.table.chosen == ""
    panel.choose(9)
    panel.ask_to_delete()
    assert "No recording" in text_of(panel._question)
    with pytest.raises(CheckpointError, match="no checkpoint 6"):
        panel.choose(6)


def test_checkpoints_of_a_training_appear_and_its_only_one_stays(tmp_path_factory: pytest.TempPathFactory) -> None:
    experiment = Experiment.compose(*SMALL, "frames=100_000_000", "checkpoint_every=1_000_000")
    training = start(experiment, tmp_path_factory.mktemp("alive") / "run")
    panel = CheckpointsPanel(training.run)
    try:
        assert panel.table.content["names"] == []
        until(lambda: training.run.status()["state"] == "running")  # requests before the start are dropped
        training.save()
        until(lambda: len(panel.table.content["names"]) == 1)
        panel.choose(int(panel.table.content["names"][0]))
        panel.ask_to_delete()
        assert "is the only one" in text_of(panel._line) and panel._confirmation.layout.display == "none"
    finally:
        training.stop()
        training.wait(60)
        panel.close()


def test_each_group_that_is_rewarded_differently_has_a_best_checkpoint() -> None:
    notes = CheckpointNotes(Path(__file__).parents[3] / "data" / "simple_tag")
    rows = CheckpointRows(notes)
    cells = rows.of(rows.measured(notes.run.checkpoints))
    assert [line[2] for line in cells.values() if "best" in line[2]] == [
        "adversary 31.50, best; agent -41.11", "adversary 15.50; agent -22.22, best",
    ]  # fmt: skip
    with pytest.raises(CheckpointError, match=r"valid: 'best:adversary' or 'best:agent'"):
        notes.run.checkpoint("best")
