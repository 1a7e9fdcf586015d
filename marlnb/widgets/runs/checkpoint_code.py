"""What a person does with a checkpoint, as code and as commands."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.checkpoint import Checkpoint
from marlnb.training.runs.run import Run
from marlnb.widgets.forms.verb_options import call_of


def code_of(run: Run, checkpoint: Checkpoint, options: Mapping[str, Any], note: str, other: int | None) -> str:
    """A cell that loads, evaluates and notes a checkpoint; how it is deleted stands there as a comment."""
    k = checkpoint.iteration
    both = [k] if other is None else [k, other]
    evaluations = [
        f"evaluation_{one} = mnb.evaluate(run, checkpoint={one}{call_of(evaluate, options)})" for one in both
    ]
    kept = [f"notes.keep(evaluation_{one})" for one in both]
    noted = [f"notes.write({k}, {note!r})"] if note else []
    return "\n".join(
        [
            "import marlnb as mnb",
            "from marlnb.training.runs.checkpoint_notes import CheckpointNotes",
            "from marlnb.training.runs.checkpoint_removal import remove_checkpoint",
            "",
            f"run = mnb.Run.open({str(run.path)!r})",
            f"policies = run.policies({k})",
            *evaluations,
            "notes = CheckpointNotes(run)",
            *kept,
            *noted,
            f"# remove_checkpoint(run, {k})",
        ]
    )


def command_of(run: Run, checkpoint: Checkpoint, options: Mapping[str, Any], other: int | None) -> str:
    """The lines for a terminal that evaluate it and what it is compared with; notes are kept by code only."""
    folder = shlex.quote(str(run.path))
    explore = " --explore" if options.get("explore") else ""
    numbers = f"--episodes {options['episodes']} --seed {options['seed']}{explore}"
    both = [checkpoint.iteration] if other is None else [checkpoint.iteration, other]
    lines = [f"marlnb evaluate {folder} --checkpoint {one} {numbers}" for one in both]
    return "\n".join([*lines, f"# rm -r {shlex.quote(str(checkpoint.path))}"])
