"""Checkpoints changed at random: read as they were written, or refused; never another state, never a traceback.

An input is JSON: the manifest and the tensors, as Latin-1, and whether the manifest got a new hash. Without one, every
change has to be noticed. With one, which takes knowledge of the format, an error has to be marlnb's own.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from marlnb.training.runs.checkpoints.checkpoint import Checkpoint
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer
from tests.fuzz.processes import Outcome
from tests.fuzz.run_folders import make_run
from tests.fuzz.values import Generator, changed_bytes, changed_json, json_bytes, pick


class Checkpoints:
    """A target of changed checkpoints of one training run."""

    def __init__(self, folder: Path) -> None:
        self.run = Run.open(make_run(folder / "run"))
        self.path = self.run.checkpoint().path
        for other in self.run.checkpoints[:-1]:
            shutil.rmtree(other.path)
        self.manifest = (self.path / "manifest.json").read_bytes()
        self.tensors = (self.path / "tensors.bin").read_bytes()
        self.state = _plain(Checkpoint.open(self.path).load())

    def draw(self, generator: Generator) -> bytes:
        manifest, tensors, signed = self.manifest, self.tensors, bool(generator.random() < 0.5)
        kind = pick(generator, ("manifest", "tensors", "json", "json", "both"))
        if kind == "json":
            content = json.loads(manifest)
            for _ in range(int(generator.integers(1, 3))):
                content = changed_json(content, generator)
            manifest = json_bytes(content)
        if kind in ("manifest", "both"):
            manifest = changed_bytes(manifest, generator)
        if kind in ("tensors", "both"):
            tensors = changed_bytes(tensors, generator)
        if signed:
            manifest = _signed(manifest, tensors)
        parts = {"manifest": manifest.decode("latin-1"), "tensors": tensors.decode("latin-1"), "signed": signed}
        return json.dumps(parts).encode()

    def outcome(self, data: bytes) -> Outcome:
        given = json.loads(data)
        (self.path / "manifest.json").write_bytes(given["manifest"].encode("latin-1"))
        (self.path / "tensors.bin").write_bytes(given["tensors"].encode("latin-1"))
        repr(self.run), self.run._repr_html_()
        checkpoint = Checkpoint.open(self.path)
        state = checkpoint.load()
        if not given["signed"] and (_plain(state) != self.state or checkpoint.iteration != int(self.path.name)):
            return "changed", "another state without a new hash"
        self.run.policies()
        with Trainer(self.run.experiment, Run.open(self.run.path)) as trainer:
            trainer.report_state("complete")
        return "same" if not given["signed"] else "accepted", ""


def _plain(value: Any) -> Any:
    """A state that can be compared: tensors as types, shapes and bytes."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [_plain(item) for item in value]
    return repr(value)


def _signed(manifest: bytes, tensors: bytes) -> bytes:
    """The manifest with the hashes that its content and the tensors have, if it is a mapping at all."""
    try:
        content = json.loads(manifest)
        del content["sha256"]
        content["files"] = {"tensors.bin": {"sha256": hashlib.sha256(tensors).hexdigest(), "size_bytes": len(tensors)}}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return json.dumps({**content, "sha256": digest}).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return manifest
