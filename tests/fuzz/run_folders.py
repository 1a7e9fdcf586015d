"""Run folders of which some files are changed at random: opened, shown, listed and followed, never with a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marlnb.batch.benchmark.results import evaluate_final, measured
from marlnb.batch.benchmark.spec import BenchmarkRun
from marlnb.cli import main
from marlnb.experiment import Experiment
from marlnb.models.hooks.edits import Ablate
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.checkpoints.notes import CheckpointNotes
from marlnb.training.runs.follow import RunFollower
from marlnb.training.runs.run import Run
from marlnb.training.runs.saved_edits import list_edits, load_edits, save_edits
from marlnb.training.train import train
from marlnb.widgets.runs.attach import attach
from tests.fuzz.changed_folders import FolderTarget

TINY = ("env=mpe/simple_tag", "env.max_cycles=4", "frames=64", "n_envs=2", "rollout_steps=8", "model.hidden=[4]")
MORE = ("algorithm=mappo", "evaluate_every=2", "evaluation_episodes=2", "checkpoint_every=2", "seed=1")


def run_folders(folder: Path) -> FolderTarget:
    """A target of changed run folders."""
    return FolderTarget(make_run(folder / "original"), folder / "run", looks_at_run)


def make_run(folder: Path) -> Path:
    """A complete training run with evaluations, as of a benchmark, two checkpoints, notes, edits, a request to stop."""
    run = train(Experiment.compose(*TINY, *MORE), folder, progress=False)
    evaluate_final(run)
    notes = CheckpointNotes(run)
    notes.write("last", "a note")
    notes.keep(evaluate(run, episodes=2))
    save_edits(run, "silent", [Ablate("agent/actor/hidden_1")], note="why")
    (folder / "STOP").write_text("enough")
    return folder


def show_panel(run: Run) -> None:
    """Opens every tab of a run's panel."""
    panel = attach(run)
    panel.catch_up()
    for index in range(len(panel.tabs.children)):
        panel.tabs.selected_index = index
    panel.close()


def looks_at_run(folder: Path, with_widgets: bool) -> dict[str, Callable[[], Any]]:
    """Everything that is read of an ordinary run."""
    run = Run.open(folder)

    def same() -> None:
        again = Experiment.from_json(json.loads(json.dumps(run.experiment.to_json(), allow_nan=False)), origin="x")
        assert again == run.experiment, "JSON gives another experiment"

    looks: dict[str, Callable[[], Any]] = {
        "experiment": same,
        "text": lambda: (repr(run), repr(run.experiment)),
        "html": lambda: (run._repr_html_(), run.experiment._repr_html_()),
        "status": lambda: json.dumps(run.status()),
        "metrics": lambda: run.metrics().to_csv(),
        "evaluations": run.evaluations,
        "events": run.events,
        "checkpoints": lambda: (run.checkpoints, run.damaged_checkpoints),
        "last": run.checkpoint,
        "best": lambda: run.checkpoint("best:agent"),
        "origin": run.origin,
        "spec": lambda: run.spec,
        "follow": lambda: RunFollower(run).read(),
        "notes": lambda: (CheckpointNotes(run).note(), CheckpointNotes(run).evaluations()),
        "edits": lambda: (list_edits(run), load_edits(run, "silent")),
        "info": lambda: main(["info", str(run.path), "--json"]),
        "policies": run.policies,
        "measured": lambda: measured(BenchmarkRun("task", "mappo", 1), run.path),
    }
    return {**looks, "panel": lambda: show_panel(run)} if with_widgets else looks
