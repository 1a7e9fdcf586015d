"""An experiment for people: what differs from the defaults first."""

from __future__ import annotations

import json

from markupsafe import Markup

from marlnb.composition.composed import Composed
from marlnb.composition.differences import differences, started_values
from marlnb.composition.override_writing import write_value
from marlnb.composition.overrides import overrides_of
from marlnb.display.formatting import count
from marlnb.display.notebook_html import folded_html, note_html, table_html, title_html

MAX_LINE_LENGTH = 110


def experiment_text(experiment: Composed) -> str:
    """At most three lines: the options that were set, as overrides; the size of the training; what it started from."""
    words, lines = overrides_of(experiment), ["Experiment:"]
    while words:
        if len(lines[-1]) + len(words[0]) < MAX_LINE_LENGTH:
            lines[-1] += f" {words.pop(0)}"
        elif len(lines) == 1:
            lines.append(f"  {words.pop(0)[: MAX_LINE_LENGTH - 2]}")
        else:
            lines[-1] += f" and {len(words)} more"
            break
    if len(lines) == 1:
        return "\n".join([*lines, f"  {_size(experiment)}", f"  {shortened_tuned_text(experiment)}"])
    return "\n".join([*lines, f"  {_size(experiment)}; {_tuned_for(experiment)}"])


def experiment_html(experiment: Composed) -> Markup:
    """A table of the options that were set; the size; what it started from; all options folded."""
    rows = [(key, write_value(value), write_value(default)) for key, value, default in differences(experiment)]
    started = [(key, write_value(value), write_value(own)) for key, (value, own) in started_values(experiment).items()]
    everything = json.dumps(experiment.to_json(), indent=2)
    return (
        title_html(f"Experiment on {experiment.env.name}")
        + table_html(("option", "value", "default"), rows)
        + note_html(_size(experiment))
        + note_html(_tuned_for(experiment))
        + (table_html(("tuned or derived", "value", "option's default"), started) if started else Markup(""))
        + (folded_html("how the tuned values were found", tuned_text(experiment)) if experiment.tuned else Markup(""))
        + folded_html("all options", everything)
    )


def tuned_text(experiment: Composed) -> str:
    """What the other options started from: `tuned for mpe/simple_spread, found by ...`, or `untuned`."""
    if not experiment.tuned:
        return _tuned_for(experiment)
    searches = dict.fromkeys(str(settings.found_by) for settings in experiment.tuned)
    return f"{_tuned_for(experiment)}, found by {' and by '.join(searches)}"


def _tuned_for(experiment: Composed) -> str:
    if experiment.tuned is None:
        return "untuned: tuned=false, all other options have their defaults"
    algorithms = dict.fromkeys((experiment.algorithm.name, *(part.name for part in experiment.algorithms.values())))
    tuned = dict.fromkeys(settings.algorithm for settings in experiment.tuned)
    untuned = " and ".join(name for name in algorithms if name not in tuned)
    if not tuned:
        return f"untuned: no tuned settings for {untuned} on {experiment.env.name}"
    names = f" with {' and '.join(tuned)}" if len(algorithms) > 1 else ""
    return f"tuned for {experiment.env.name}{names}{f', {untuned} untuned' if untuned else ''}"


def shortened_tuned_text(experiment: Composed) -> str:
    """`tuned_text` without the details in brackets if the line would be too long."""
    text = tuned_text(experiment)
    return text if len(text) <= MAX_LINE_LENGTH else f"{text.partition(' (')[0]} (details: experiment.tuned)"


def _size(experiment: Composed) -> str:
    parts = f"{experiment.algorithm.name} with {experiment.model.name}"
    iterations = f"in {count(experiment.iterations, 'iteration')}"
    if experiment.evolution is not None:
        iterations = f"with evaluations, in at most {count(experiment.iterations, 'iteration')}"
    steps = f"{count(experiment.n_envs, 'environment')} × {count(experiment.rollout_steps, 'step')}"
    return f"{parts}, {experiment.frames:,} frames {iterations} of {steps}, seed {experiment.seed}"
