"""An experiment for people: what differs from the defaults first."""

from __future__ import annotations

import json
from typing import Any

from marlnb.codec import defaults_json
from marlnb.composition.composed import Composed
from marlnb.composition.override_parsing import DEFAULTS
from marlnb.composition.override_writing import write_value
from marlnb.composition.overrides import PARTS, PARTS_BY_GROUP, overrides_of
from marlnb.display.formatting import count
from marlnb.display.notebook_html import folded_html, note_html, table_html

MAX_LINE_LENGTH = 110


def experiment_text(experiment: Composed) -> str:
    """At most three lines: the options that differ from their defaults, as overrides, then the size of the training."""
    words, lines = overrides_of(experiment), ["Experiment:"]
    while words:
        if len(lines[-1]) + len(words[0]) < MAX_LINE_LENGTH:
            lines[-1] += f" {words.pop(0)}"
        elif len(lines) == 1:
            lines.append(f"  {words.pop(0)[: MAX_LINE_LENGTH - 2]}")
        else:
            lines[-1] += f" and {len(words)} more"
            break
    return "\n".join([*lines, f"  {_size(experiment)}; everything else is the default"])


def experiment_html(experiment: Composed) -> str:
    """A table of the options that differ from their defaults, then the size, and all options folded."""
    pairs = (override.partition("=") for override in overrides_of(experiment))
    rows = [(key, _readable(value), _default(experiment, key)) for key, _, value in pairs]
    everything = json.dumps(experiment.to_json(), indent=2)
    return (
        f"<p><b>Experiment on {experiment.env.name}</b></p>"
        f"{table_html(('option', 'value', 'default'), rows)}"
        f"{note_html(_size(experiment))}{folded_html('all options', everything)}"
    )


def _size(experiment: Composed) -> str:
    parts = f"{experiment.algorithm.name} with {experiment.model.name}"
    iterations = count(experiment.iterations, "iteration")
    steps = f"{experiment.n_envs} environments × {experiment.rollout_steps} steps"
    return f"{parts}, {experiment.frames:,} frames in {iterations} of {steps}, seed {experiment.seed}"


def _readable(value: str) -> str:
    return f"{int(value):_}" if value.isdigit() else value


def _default(experiment: Composed, key: str) -> str:
    """The default of one override's option, in words; empty if it has none."""
    first, *rest = key.split(".")
    if first in PARTS_BY_GROUP:
        if len(rest) == 1:
            return f"as {first.removesuffix('s')}"
        config: Any = getattr(experiment, first)[".".join(rest[:-1])]
    elif first in PARTS:
        if not rest:
            return str(DEFAULTS.get(first, ""))
        config = getattr(experiment, first)
    else:
        config = experiment
    defaults = defaults_json(type(config))
    name = rest[-1] if rest else first
    return write_value(defaults[name]) if name in defaults else ""
