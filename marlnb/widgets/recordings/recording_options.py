"""What the recording panel has chosen, as code and as a command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from marlnb.composition.override_writing import write_arguments, write_command_options
from marlnb.recording.capture.config import RecordingConfig
from marlnb.training.runs.run import Run

FORM_OPTIONS = ("name", "episodes", "seed", "every", "dtype", "values", "frames", "explore", "agents", "n_envs")


def code_of(run: Run, choices: Mapping[str, Any], labels: Sequence[str] = ()) -> str:
    """A cell that plans and makes the recording."""
    arguments = write_arguments(RecordingConfig, {name: x for name, x in choices.items() if name != "labels"})
    if labels:
        arguments += f", labels={{{', '.join(f'{name!r}: {_variable(name)}' for name in labels)}}}"
    lines = [
        "import marlnb as mnb",
        "",
        f"run = mnb.Run.open({run.shown_path!r})",
        f"print(mnb.plan_recording(run{arguments}))",
        f"recording = mnb.record(run{arguments})",
        "mnb.microscope(recording)",
    ]
    return "\n".join(lines)


def command_of(run: Run, choices: Mapping[str, Any], labels: Sequence[str] = ()) -> str:
    """The line for a terminal. Custom labels are functions, so a command cannot have them."""
    options = write_command_options(RecordingConfig, {name: x for name, x in choices.items() if name != "labels"})
    line = shlex.join(["marlnb", "record", run.shown_path, *options])
    return line + (f"\n# without the labels {', '.join(labels)}: custom labels need code" if labels else "")


def _variable(label: str) -> str:
    name = label.rpartition("/")[2]
    return name if name.isidentifier() else "..."
