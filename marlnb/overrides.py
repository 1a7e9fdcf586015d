"""From an Experiment back to the words that compose it: what a form shows "as code" and "as a command"."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

from marlnb.codec import defaults_json, to_json
from marlnb.experiment import Experiment
from marlnb.override_parsing import DEFAULTS
from marlnb.wording import write_override

PARTS = ("env", "algorithm", "model", "critic")
PARTS_OF_EACH = ("algorithms", "models", "critics")
LINE = 100


def overrides_of(experiment: Experiment) -> list[str]:
    """The shortest list of overrides from which `Experiment.compose` makes an equal experiment.

    Names of parts that are the default are left out, and so are options that have their default.
    """
    words: list[str] = []
    for part in PARTS:
        config = getattr(experiment, part)
        if config is not None:
            words += part_overrides(part, config, named=part == "env" or config.name != DEFAULTS.get(part))
    for several in PARTS_OF_EACH:
        for name, config in getattr(experiment, several).items():
            words += part_overrides(f"{several}.{name}", config)
    defaults = defaults_json(Experiment)
    for item in fields(Experiment):
        if item.name not in (*PARTS, *PARTS_OF_EACH):
            value = to_json(getattr(experiment, item.name))
            if value != defaults.get(item.name):
                words.append(write_override(item.name, value))
    return words


def as_code(experiment: Experiment, run: str | None = None, *, stop_after_s: float | None = None) -> str:
    """A cell that composes the experiment and trains it, for so many seconds at most."""
    lines = "".join(f"    {_literal(word)},\n" for word in overrides_of(experiment))
    folder = f", run={run!r}, resume=True" if run else ""
    composed = f"import marlnb as mnb\n\nexperiment = mnb.Experiment.compose(\n{lines})\n"
    if stop_after_s is None:
        return f"{composed}run = mnb.train(experiment{folder})"
    return (
        f"{composed}training = mnb.start(experiment{folder})\n"
        f"training.wait(timeout_s={stop_after_s:g})\n"
        "training.stop()  # saved, if it has not ended by itself\n"
        "run = training.wait()"
    )


def as_command(experiment: Experiment, run: str | None = None, *, stop_after_s: float | None = None) -> str:
    """The line for a terminal that trains it, for so many seconds at most; broken where it is long."""
    limit = [] if stop_after_s is None else ["timeout", f"{stop_after_s:g}"]  # at SIGTERM a training saves and ends
    words = [*limit, "marlnb", "train", *map(shlex.quote, overrides_of(experiment))]
    if run:
        words += [shlex.quote(f"run={run}"), "--resume"]
    return " \\\n  ".join(_filled(words))


def part_overrides(path: str, config: Any, *, named: bool = True) -> list[str]:
    """A part at `path`, as "algorithm" or "models.agent": its name (if `named`), and what is not default."""
    options, defaults = to_json(config), defaults_json(type(config))
    name = [f"{path}={options.pop('name')}"]
    changed = {key: value for key, value in options.items() if key not in defaults or value != defaults[key]}
    return (name if named else []) + [write_override(f"{path}.{key}", value) for key, value in changed.items()]


def _literal(text: str) -> str:
    return f'"{text}"' if '"' not in text and "\\" not in text and text.isprintable() else repr(text)


def _filled(words: list[str]) -> list[str]:
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) < LINE:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
