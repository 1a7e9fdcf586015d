"""What is kept of checkpoints with a run: notes, evaluations; and checkpoints removed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from marlnb.errors import CheckpointError, RunError
from marlnb.experiment import Experiment
from marlnb.models.hooks.edits import Ablate
from marlnb.training.background import start
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.checkpoints.notes import CheckpointNotes, is_comparable
from marlnb.training.runs.checkpoints.removal import remove_checkpoint
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from tests.widgets.trained import SMALL, original, run, until  # noqa: F401


def test_notes_and_evaluations_are_read_by_another_process(run: Run) -> None:  # noqa: F811
    notes = CheckpointNotes(run)
    assert notes.note(3) == "" and notes.evaluations(3) == []
    notes.write(3, 'wanders "about" ☂')
    evaluation = evaluate(run, checkpoint=3, episodes=5, seed=7)
    notes.keep(evaluation)
    ask = "import json, sys; from marlnb.training.runs.checkpoints.notes import CheckpointNotes as N\n"
    script = "n = N(sys.argv[1]); print(json.dumps([n.note(3), n.evaluations(3), n.note(6)]))"
    answer = subprocess.run([sys.executable, "-c", ask + script, str(run.path)], capture_output=True, check=True)
    note, (stored,), other = json.loads(answer.stdout)
    assert note == 'wanders "about" ☂' and other == ""
    table = evaluation.table
    assert stored["return_mean"] == evaluation.return_mean and stored["return_se"] == evaluation.return_se
    assert stored["returns"]["speaker"] == table.returns["speaker"].mean(axis=1).tolist()


def test_the_same_episodes_are_kept_once_and_others_are_added(run: Run) -> None:  # noqa: F811
    notes = CheckpointNotes(run)
    for seed in (1, 2, 1):
        notes.keep(evaluate(run, checkpoint=6, episodes=2, seed=seed))
    assert [entry["seed"] for entry in notes.evaluations(6)] == [2, 1]
    with pytest.raises(RunError, match="does not belong to a checkpoint"):
        notes.keep(evaluate(run, policy="random", episodes=1))


def test_evaluations_in_environments_with_other_options_are_kept_apart(run: Run) -> None:  # noqa: F811
    notes = CheckpointNotes(run)
    longer = replace(run.experiment.env, max_cycles=50)
    for env in (None, longer, run.experiment.env):
        notes.keep(evaluate(run, checkpoint=6, episodes=2, seed=5, env=env))
    stored = [entry for entry in notes.evaluations(6) if entry["seed"] == 5]
    assert [entry["env_options"]["max_cycles"] for entry in stored] == [50, 25]
    assert not is_comparable(*stored)


def test_writers_at_once_lose_nothing(run: Run) -> None:  # noqa: F811
    def write(iteration: int) -> None:
        for k in range(20):
            CheckpointNotes(run).write(iteration, f"{iteration}: {k}")

    threads = [threading.Thread(target=write, args=(one.iteration,)) for one in run.checkpoints]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [CheckpointNotes(run).note(one) for one in run.checkpoints] == [
        f"{one.iteration}: 19" for one in run.checkpoints
    ]


def test_notes_are_of_the_weights_not_of_the_number(run: Run, tmp_path: Path) -> None:  # noqa: F811
    notes = CheckpointNotes(run)
    notes.write(9, "the first nine")
    other = train(Experiment.compose(*SMALL, "frames=900", "seed=1"), tmp_path / "other")
    nine = run.path / "checkpoints" / "9"
    nine.rename(tmp_path / "aside")
    other.checkpoint(9).path.rename(nine)
    assert notes.note(9) == ""
    notes.write(9, "another nine")
    nine.rename(tmp_path / "another")
    (tmp_path / "aside").rename(nine)
    assert notes.note(9) == "the first nine"


def test_a_removed_checkpoint_is_gone_and_the_run_continues_from_the_one_before(run: Run) -> None:  # noqa: F811
    remove_checkpoint(run, 9)
    assert [one.iteration for one in run.checkpoints] == [3, 6]
    assert sorted(path.name for path in (run.path / "checkpoints").iterdir()) == ["3", "6"]
    assert "checkpoint 9 was deleted" in run.events()[-1]
    with pytest.raises(CheckpointError, match="valid: last, best or one of: 3, 6"):
        remove_checkpoint(run, 9)


def test_the_only_checkpoint_of_a_training_is_not_removed(tmp_path: Path) -> None:
    training = start(Experiment.compose(*SMALL, "frames=100_000_000", "checkpoint_every=1_000_000"), tmp_path / "run")
    try:
        until(lambda: training.run.status()["state"] == "running")  # what is asked before it begins is forgotten
        training.save()
        until(lambda: training.run.checkpoints)
        with pytest.raises(CheckpointError, match="which is being trained: if the training"):
            remove_checkpoint(training.run, "last")
        assert len(training.run.checkpoints) == 1
    finally:
        training.stop()
        training.wait(120)
    remove_checkpoint(training.run, "best" if training.run.checkpoints[0].score is not None else "last")


def test_stored_evaluations_of_other_types_are_damage(run: Run) -> None:  # noqa: F811
    notes = CheckpointNotes(run)
    notes.keep(evaluate(run, checkpoint=3, episodes=3))
    stored = json.loads(notes.path.read_text())
    (sha256,) = stored
    whole = stored[sha256]["evaluations"][0]
    returns, means = whole["returns"], whole["return_mean"]
    wrong = [
        *({**whole, "return_se": {**means, "speaker": value}} for value in ({}, [], "0.1", True, float("inf"))),
        *({**whole, "return_mean": value} for value in ({}, {"speaker": 1.0}, None, [1.0], {**means, "speaker": None})),
        *({**whole, "returns": {**returns, "speaker": value}} for value in ({}, [1.0, 2.0], [1.0, "a", 2.0], None)),
        *({**whole, "opponent_returns": value} for value in ({"x": {}}, {"speaker": {"speaker_0": [1.0]}}, None)),
        *({**whole, "made": value} for value in (1e30, -1, {}, None, "now")),
        *({key: value for key, value in whole.items() if key != missing} for missing in ("made", "episodes", "edits")),
        *({**whole, "episodes": value} for value in (None, [], 4)),
    ]
    for evaluation in (*wrong, None, [], 3):
        notes.path.write_text(json.dumps({sha256: {**stored[sha256], "evaluations": [evaluation]}}))
        with pytest.raises(RunError, match=r"checkpoint_notes\.json.* is damaged: "):
            notes.evaluations(3)
    other_groups = {
        **whole,
        **{name: {"x": whole[name]["speaker"]} for name in ("return_mean", "return_se", "returns")},
    }
    notes.path.write_text(json.dumps({sha256: {**stored[sha256], "evaluations": [whole, other_groups]}}))
    with pytest.raises(
        RunError, match=r"expected evaluations of the same groups; got \[\['listener', 'speaker'\], \['x'\]\]"
    ):
        notes.evaluations(3)
    notes.path.write_text(json.dumps(stored))
    assert notes.evaluations(3) == [whole]


def test_an_evaluation_with_edits_replaces_the_one_of_the_same_episodes(run: Run) -> None:  # noqa: F811
    notes, edit = CheckpointNotes(run), Ablate("listener/actor/hidden_1", units=(0, 3))
    for _ in range(2):
        notes.keep(evaluate(run, checkpoint=3, episodes=2, edits=[edit]))
    assert len(notes.evaluations(3)) == 1
