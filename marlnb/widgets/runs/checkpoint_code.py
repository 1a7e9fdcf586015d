"""What the checkpoints panel does, as code and as commands."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from marlnb.composition.override_writing import write_arguments
from marlnb.display.formatting import short_path
from marlnb.training.policies.evaluation import EvaluationOptions
from marlnb.training.runs.checkpoints.checkpoint import Checkpoint
from marlnb.training.runs.run import Run


def code_of(run: Run, checkpoint: Checkpoint, options: Mapping[str, Any], note: str, other: int | None) -> str:
    """A cell that loads a checkpoint, evaluates it and writes its note; deleting it is a comment.

    Args:
        options: of the evaluation.
        other: the iteration of a checkpoint to compare with.
    """
    k = checkpoint.iteration
    arguments = write_arguments(EvaluationOptions, options)
    both = [k] if other is None else [k, other]
    lines = [
        "import marlnb as mnb",
        "from marlnb.training.runs.checkpoints.notes import CheckpointNotes",
        "from marlnb.training.runs.checkpoints.removal import remove_checkpoint",
        "",
        f"run = mnb.Run.open({run.shown_path!r})",
        f"policies = run.policies({k})",
        *(f"evaluation_{n} = mnb.evaluate(run, checkpoint={n}{arguments})" for n in both),
        "notes = CheckpointNotes(run)",
        *(f"notes.keep(evaluation_{n})" for n in both),
        *([f"notes.write({k}, {note!r})"] if note else []),
        f"# remove_checkpoint(run, {k})",
    ]
    return "\n".join(lines)


def command_of(run: Run, checkpoint: Checkpoint, options: Mapping[str, Any], other: int | None) -> str:
    """Commands that evaluate the checkpoint and the one to compare with. Notes can only be written by code."""
    folder = shlex.quote(run.shown_path)
    explore = " --explore" if options.get("explore") else ""
    arguments = f"--episodes {options['episodes']} --seed {options['seed']}{explore}"
    both = [checkpoint.iteration] if other is None else [checkpoint.iteration, other]
    lines = [f"marlnb evaluate {folder} --checkpoint {n} {arguments}" for n in both]
    return "\n".join([*lines, f"# rm -r {shlex.quote(short_path(checkpoint.path))}"])
