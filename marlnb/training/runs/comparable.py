"""What differs between runs, in settings with joined names: whether they are one experiment, and which to average."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marlnb.errors import RunError, TrustError
from marlnb.training.limits import CHANGEABLE
from marlnb.training.runs.code import code_label
from marlnb.training.runs.files import EXPERIMENT, read_json
from marlnb.training.runs.standalone import standalone

if TYPE_CHECKING:
    from marlnb.experiment import Experiment
    from marlnb.training.runs.run_folder import RunFolder

SEED = "seed"
CODE = "code"
"""The code that trained a run, as if it were a setting."""
# settings that change how a training run is stored and where it runs, not what it learns
IRRELEVANT = (
    *("loggers", "wandb_project", "wandb_entity", "checkpoint_every", "keep_checkpoints"),
    *("device", "threads", "compile", "cuda_graphs", "profile", "tuned"),
)
MAX_NAMED = 3
Settings = Mapping[str, Any]


def read_settings(run: Path) -> dict[str, Any]:
    """A run's settings with joined names, such as `algorithm.lr`, and `code`, the code that trained it.

    Raises:
        RunError, OSError: a file cannot be read.
    """
    return {**dict(_flat(read_json(run / EXPERIMENT))), CODE: code_label(run)}


def differences(settings: Sequence[Settings]) -> dict[str, list[Any]]:
    """By setting, its value in each run, None if it has none; only settings that differ.

    `tuned` is left out: it says where settings come from.
    """
    keys = dict.fromkeys(key for each in settings for key in each if key != "tuned")
    values = {key: [each.get(key) for each in settings] for key in keys}
    return {key: row for key, row in values.items() if len({json.dumps(value) for value in row}) > 1}


def check_same(run: RunFolder, experiment: Experiment) -> None:
    """Raises RunError, with the settings that differ, unless the run has this experiment."""
    theirs = run.experiment
    with suppress(TrustError):  # of an earlier version of the code: loading adds the defaults of new options
        theirs = theirs.loaded()
    changed = differences([dict(_flat(each.to_json())) for each in (theirs, standalone(experiment))])
    texts = [f"{key}: {there} there, {here} here" for key, (there, here) in changed.items()]
    if texts:
        names = [key for key in changed if key in CHANGEABLE]
        hint = f"; resume(run, {'=..., '.join(names)}=...) changes {'them' if names[1:] else 'it'}" if names else ""
        raise RunError(f"{run.shown_path} is a run of another experiment; {'; '.join(texts)}{hint}")


def groups_to_average(settings: Mapping[str, Settings], average_over: Sequence[str] = (SEED,)) -> list[list[str]]:
    """Runs, by name, whose settings are the same but for those that are averaged over, and but for their code."""
    ignored = (*average_over, *IRRELEVANT, CODE)
    groups: dict[str, list[str]] = {}
    for name, each in settings.items():
        rest = {key: value for key, value in each.items() if not is_part_of(key, ignored)}
        groups.setdefault(json.dumps(rest, sort_keys=True), []).append(name)
    return list(groups.values())


def reasons_against_average(settings: Mapping[str, Settings], average_over: Sequence[str] = (SEED,)) -> list[str]:
    """Why runs, by name, cannot be averaged; empty if they can."""
    reasons, each = [], list(settings.values())
    refusal = f"{len(each)} runs are not averaged:"
    others = [key for key in differences(each) if not is_part_of(key, (*average_over, *IRRELEVANT, CODE))]
    if others:
        more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
        reasons.append(f"{refusal} they differ in {', '.join(others[:MAX_NAMED])}{more}")
    if len({json.dumps({key: value for key, value in one.items() if key.startswith("env.")}) for one in each}) > 1:
        reasons.append(f"{refusal} their environments differ")
    if len({(one.get("n_envs"), one.get("rollout_steps")) for one in each}) > 1:
        reasons.append(f"{refusal} an iteration has different numbers of frames in them")
    codes = {name: one.get(CODE) or "unknown" for name, one in zip(distinct_names(settings), each)}
    if len(set(codes.values())) > 1:
        by_code = {code: next(name for name in codes if codes[name] == code) for code in codes.values()}
        named = ", ".join(f"{name} with {code}" for code, name in by_code.items())
        reasons.append(f"{refusal} different code trained them: {named}")
    seeds = [str(one.get(SEED)) for one in each]
    if tuple(average_over) == (SEED,) and len(set(seeds)) < len(seeds):
        reasons.append(f"{refusal} some have the same seed, so they are not independent")
    return reasons


def distinct_names(paths: Iterable[str | Path]) -> list[str]:
    """The last parts of each path, as many as tell all different paths apart: `a/run` and `b/run`, not `run` twice."""
    parts = [Path(path).parts for path in paths]
    n_parts = 1
    while len({each[-n_parts:] for each in parts}) < len(set(parts)):
        n_parts += 1
    return [str(Path(*each[-n_parts:])) for each in parts]


def is_part_of(key: str, names: Iterable[str]) -> bool:
    """Whether a setting is one of these or inside one, as `env.max_steps` is inside `env`."""
    return any(key == name or key.startswith(f"{name}.") for name in names)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, dict) and item:
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item
