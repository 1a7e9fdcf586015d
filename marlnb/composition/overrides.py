"""The overrides that compose a given Experiment, which forms show as code and as a command."""

from __future__ import annotations

import shlex
from typing import Any

from marlnb.codec import defaults_json, to_json
from marlnb.composition.composed import Composed
from marlnb.composition.differences import differences
from marlnb.composition.override_writing import write_override

MAX_LINE_LENGTH = 100


def overrides_of(experiment: Composed) -> list[str]:
    """The shortest list of overrides from which `Experiment.compose` makes an equal experiment.

    Names of default parts, and options with the values with which composing starts, are omitted.
    """
    return [write_override(key, value) for key, value, _ in differences(experiment)]


def as_code(experiment: Composed, run: str | None = None, *, stop_after_s: float | None = None) -> str:
    """A notebook cell that composes the experiment and trains it, optionally for a limited time."""
    lines = "".join(f"    {_literal(word)},\n" for word in overrides_of(experiment))
    folder = f", run={run!r}, resume=True" if run else ""
    composed = f"import marlnb as mnb\n\nexperiment = mnb.Experiment.compose(\n{lines})\n"
    if stop_after_s is None:
        return f"{composed}run = mnb.train(experiment{folder})"
    return (
        f"{composed}training = mnb.start(experiment{folder})\n"
        f"training.wait(timeout_s={stop_after_s:g})\n"
        "training.stop()  # saves the training if it has not ended\n"
        "run = training.wait()"
    )


def as_command(experiment: Composed, run: str | None = None, *, stop_after_s: float | None = None) -> str:
    """The command that trains it, optionally for a limited time; long commands are split into lines."""
    limit = [] if stop_after_s is None else ["timeout", f"{stop_after_s:g}"]  # a training run saves and ends at SIGTERM
    words = [*limit, "marlnb", "train", *map(shlex.quote, overrides_of(experiment))]
    if run:
        words += [shlex.quote(f"run={run}"), "--resume"]
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) < MAX_LINE_LENGTH:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return " \\\n  ".join(lines)


def part_overrides(path: str, config: Any, *, named: bool = True) -> list[str]:
    """Overrides of the part at `path`, as "algorithm" or "models.agent": its name (if `named`) and changed options."""
    options, defaults = to_json(config), defaults_json(type(config))
    name = [f"{path}={options.pop('name')}"]
    changed = {key: value for key, value in options.items() if key not in defaults or value != defaults[key]}
    return (name if named else []) + [write_override(f"{path}.{key}", value) for key, value in changed.items()]


def _literal(text: str) -> str:
    return f'"{text}"' if '"' not in text and "\\" not in text and text.isprintable() else repr(text)
