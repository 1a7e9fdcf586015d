"""Run folders of which some files are changed at random: opened, shown, listed and followed, never with a traceback.

An input is JSON: a list of (file, change, bytes as Latin-1). A change replaces the bytes, or the file by something that
is no ordinary file: a folder, a pipe, a link to a device, to nothing or to itself, or a file that claims a terabyte.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marlnb.cli import main
from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment
from marlnb.models.hooks.edits import Ablate
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.checkpoints.notes import CheckpointNotes
from marlnb.training.runs.follow import RunFollower
from marlnb.training.runs.run import Run
from marlnb.training.runs.saved_edits import list_edits, load_edits, save_edits
from marlnb.training.train import train
from marlnb.widgets.runs.attach import attach
from tests.fuzz.processes import Outcome, where
from tests.fuzz.values import Generator, changed_bytes, changed_json, json_bytes, pick

TINY = ("env=mpe/simple_tag", "env.max_cycles=4", "frames=64", "n_envs=2", "rollout_steps=8", "model.hidden=[4]")
MORE = ("algorithm=mappo", "evaluate_every=2", "evaluation_episodes=2", "checkpoint_every=2", "seed=1")
INSTEAD = ("nothing", "folder", "pipe", "device", "dangling", "loop", "terabyte")
TERABYTE = 2**40


def make_run(folder: Path) -> Path:
    """A complete training with evaluations, two checkpoints, notes, edits and a request to stop."""
    run = train(Experiment.compose(*TINY, *MORE), folder, progress=False)
    notes = CheckpointNotes(run)
    notes.write("last", "a note")
    notes.keep(evaluate(run, episodes=2))
    save_edits(run, "silent", [Ablate("agent/actor/hidden_1")], note="why")
    (folder / "STOP").write_text("enough")
    return folder


class RunFolders:
    """A target of changed run folders; every input changes the same run."""

    def __init__(self, folder: Path) -> None:
        self.run = make_run(folder / "original")
        self.copy = folder / "run"
        files = [path.relative_to(self.run) for path in sorted(self.run.rglob("*")) if path.is_file()]
        self.contents = {str(path): (self.run / path).read_bytes() for path in files if path.name != "tensors.bin"}
        self.n_inputs = 0

    def draw(self, generator: Generator) -> bytes:
        changes = []
        for _ in range(1 + int(generator.random() < 0.3)):
            name = pick(generator, list(self.contents))
            kind = pick(generator, ("json", "json", "bytes", "bytes", "bytes", "instead"))
            if kind == "instead":
                changes.append((name, pick(generator, INSTEAD), ""))
            else:
                content = self._changed(name, kind, generator)
                changes.append((name, "bytes", content.decode("latin-1")))
        return json.dumps(changes).encode()

    def outcome(self, data: bytes) -> Outcome:
        shutil.rmtree(self.copy, ignore_errors=True)  # what a process left that a hang or a crash ended
        shutil.copytree(self.run, self.copy)
        try:
            for name, kind, text in json.loads(data):
                _replace(self.copy / name, kind, text.encode("latin-1"))
            self.n_inputs += 1
            return self._look(with_widgets=self.n_inputs % 20 == 0)
        finally:
            shutil.rmtree(self.copy)

    def _changed(self, name: str, kind: str, generator: Generator) -> bytes:
        content = self.contents[name]
        if kind == "json" and name.endswith((".json", ".jsonl")):
            lines = content.splitlines() if name.endswith(".jsonl") else [content]
            number = int(generator.integers(len(lines)))
            lines[number] = json_bytes(changed_json(json.loads(lines[number]), generator))
            return b"\n".join(lines) + b"\n"
        return changed_bytes(content, generator)

    def _look(self, *, with_widgets: bool) -> Outcome:
        """Everything that is read of a folder; refused if any of it was."""
        try:
            run = Run.open(self.copy)
        except MarlnbError as error:
            return "refused", str(error)
        refused = ""
        for name, look in _looks(run, with_widgets=with_widgets).items():
            try:
                look()
            except MarlnbError as error:
                refused = f"{name}: {error}"
            except Exception as error:
                return "traceback", f"{name}: {where(error)}"
        return ("refused", refused) if refused else ("accepted", "")


def _looks(run: Run, *, with_widgets: bool) -> dict[str, Callable[[], Any]]:
    def shown() -> None:
        panel = attach(run)
        panel.catch_up()
        for index in range(len(panel.tabs.children)):
            panel.tabs.selected_index = index
        panel.close()

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
    }
    return {**looks, "panel": shown} if with_widgets else looks


def _replace(path: Path, kind: str, content: bytes) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    if kind == "bytes":
        path.write_bytes(content)
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "dangling":
        path.symlink_to("nothing")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "terabyte":
        with open(path, "wb") as file:
            file.truncate(TERABYTE)
