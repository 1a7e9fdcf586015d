"""What can be recorded, as options of a form, as code and as a command; defaults and help are those of `record`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from marlnb.recording.capture.recorder import record
from marlnb.recording.file.layout import DTYPES
from marlnb.training.runs.run import Run
from marlnb.widgets.forms.verb_options import call_of, options_of

RecordingOptions = options_of(
    record,
    {
        "name": (str, {}),
        "episodes": (int, {"ge": 1}),
        "seed": (int, {"ge": 0}),
        "every": (int, {"ge": 1}),
        "dtype": (str, {"choices": DTYPES}),
        "values": (bool, {}),
        "frames": (int, {"ge": 0}),
        "explore": (bool, {}),
        "agents": (tuple[str, ...] | None, {}),
        "n_envs": (int | None, {"ge": 1}),
    },
)


def code_of(run: Run, choices: Mapping[str, Any], labels: Sequence[str] = ()) -> str:
    """A cell that plans and makes the recording."""
    own = f", labels={{{', '.join(f'{name!r}: {_variable(name)}' for name in labels)}}}" if labels else ""
    call = call_of(record, {name: _plain(value) for name, value in choices.items() if name != "labels"}) + own
    return "\n".join(
        [
            "import marlnb as mnb",
            "",
            f"run = mnb.Run.open({str(run.path)!r})",
            f"print(mnb.plan_recording(run{call}))",
            f"recording = mnb.record(run{call})",
            "mnb.microscope(recording)",
        ]
    )


def command_of(run: Run, choices: Mapping[str, Any], labels: Sequence[str] = ()) -> str:
    """The line for a terminal; labels of one's own are functions, which it cannot be given."""
    words = ["marlnb", "record", str(run.path)]
    sites, checkpoint = choices["sites"], choices["checkpoint"]
    words += ["--sites", *([sites] if isinstance(sites, str) else sites)]
    words += ["--checkpoint", *map(str, [checkpoint] if isinstance(checkpoint, int | str) else checkpoint)]
    for name in ("episodes", "seed", "every", "dtype", "name"):
        words += [f"--{name}", str(choices[name])]
    words += ["--no-values"] * (not choices["values"]) + ["--explore"] * bool(choices["explore"])
    words += ["--frames", str(choices["frames"])] if choices["frames"] else []
    words += ["--agents", *choices["agents"]] if choices["agents"] else []
    words += ["--n-envs", str(choices["n_envs"])] if choices["n_envs"] else []
    line = " ".join(map(shlex.quote, words))
    return line + (f"\n# without {', '.join(labels)}: labels of one's own need code" if labels else "")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _variable(name: str) -> str:
    return name.rpartition("/")[2] if name.rpartition("/")[2].isidentifier() else "..."
