"""make: runs a recipe, so that a folder becomes an entry of a gallery: a run, a recording and a card."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from marlnb.config import resolve_config
from marlnb.disk import write_atomically
from marlnb.envs.regroup import build_env
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import ConfigError, RunError
from marlnb.experiment import Experiment
from marlnb.galleries.card import CARD
from marlnb.galleries.entry import RECORDING, Entry
from marlnb.galleries.findings import check_analysis
from marlnb.galleries.folders import entry_folders
from marlnb.galleries.measure import measure, recording_options
from marlnb.galleries.recipe import RECIPE, Recipe
from marlnb.paths import expanded
from marlnb.recording.capture.config import RecordingConfig
from marlnb.recording.capture.plan import recording_path
from marlnb.recording.capture.recorder import record
from marlnb.specs import EnvSpec
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.checkpoints.removal import remove_checkpoint
from marlnb.training.runs.files import EVALUATIONS, EVENTS, EXPERIMENT, LOCK, METRICS, STATUS, is_run, read_json
from marlnb.training.runs.run import Run
from marlnb.training.train import train


def recipe_folder(name_or_folder: str | os.PathLike[str]) -> Path:
    """The folder of an entry by name, or a folder with a recipe.

    Raises:
        ConfigError: neither.
    """
    folder = expanded(name_or_folder)
    if (folder / RECIPE).is_file():
        return folder
    folders = entry_folders()
    if str(name_or_folder) not in folders:
        valid = ", ".join(folders) or "none"
        raise ConfigError(f"no entry and no folder with a {RECIPE}: {name_or_folder}; entries: {valid}")
    return folders[str(name_or_folder)]


def make(name_or_folder: str | os.PathLike[str], folder: str | os.PathLike[str], *, progress: bool = True) -> Entry:
    """Trains what a recipe says, in a new folder, keeps a few checkpoints, records, evaluates and analyses.

    A training run that was stopped is resumed; of a complete one, recording and card are made again.

    Args:
        name_or_folder: an entry, or a folder with a recipe.
        folder: of the new entry; it may be the recipe's.
        progress: show the training's progress.
    Raises:
        ConfigError: the recipe is not valid, or another library runs it; the message has its command.
        RunError: the folder holds something else, such as a run of another experiment.
    """
    source, target = recipe_folder(name_or_folder), expanded(folder)
    recipe = Recipe.read(source)
    _check_options(recipe)
    agents = _agents(recipe, source, target, progress)
    _check_expected(recipe, agents.spec)
    if source.resolve() != target.resolve():
        shutil.copyfile(source / RECIPE, target / RECIPE)
    if isinstance(agents, Run):
        thin(agents, recipe)
    path = recording_path(agents, RECORDING)
    path.unlink(missing_ok=True)
    record(agents, progress=False, **recording_options(recipe, recipe.recording) | {"name": RECORDING}).close()
    (target / CARD).unlink(missing_ok=True)
    measure(recipe, agents, target).write(target)
    return Entry(target)


def thin(run: Run, recipe: Recipe) -> None:
    """Deletes the checkpoints that the recipe does not keep, most rows of the metrics, and which machine trained it.

    Raises:
        ConfigError: a checkpoint that should be kept does not exist.
    """
    present = [checkpoint.iteration for checkpoint in run.checkpoints]
    if missing := sorted(set(recipe.keep) - set(present)):
        raise ConfigError(f"{run.shown_path} has no checkpoint {missing[0]}, which the recipe keeps; it has {present}")
    for iteration in present:
        if recipe.keep and iteration not in recipe.keep:
            remove_checkpoint(run, iteration)
    for name in (METRICS, EVALUATIONS):
        if (run.path / name).exists():
            _keep_rows(run.path / name, recipe.keep_rows)
    for name in (EVENTS, LOCK):
        (run.path / name).unlink(missing_ok=True)
    status = {key: value for key, value in read_json(run.path / STATUS).items() if key not in ("host", "pid")}
    write_atomically(run.path / STATUS, json.dumps(status) + "\n")


def _agents(recipe: Recipe, source: Path, folder: Path, progress: bool) -> PolicySource:
    was_made = (folder / RECIPE).is_file() and (folder / RECIPE).read_bytes() == (source / RECIPE).read_bytes()
    if not was_made and (recipe.circuit is not None or recipe.command):
        _check_unused(folder, recipe, source.name)
    if recipe.circuit is not None:
        from marlnb.galleries.circuits import planted_agents

        folder.mkdir(parents=True, exist_ok=True)
        return planted_agents(recipe.circuit, folder)
    if recipe.command:
        if not (folder / "config.pkl").is_file():
            raise ConfigError(f"{folder} is made by another library; run this first: {recipe.command}")
        from marlnb.training.adapters.benchmarl import agents_from_benchmarl

        return agents_from_benchmarl(folder)
    if was_made and is_run(folder) and Run.open(folder).status()["state"] == "complete":
        return Run.open(folder)  # maybe by older code, whose experiment the recipe composes differently today
    experiment = Experiment.compose(*recipe.overrides)
    _check_expected(recipe, _spec_of(experiment))
    run = train(experiment, folder, resume=True, progress=progress)
    if run.status()["state"] != "complete":
        raise RunError(f"the training in {folder} was stopped before its end; the same command continues it")
    return run


@closing_pools()
def _spec_of(experiment: Experiment) -> EnvSpec:
    with build_env(experiment, 1) as env:
        return env.spec


def _check_options(recipe: Recipe) -> None:
    """Raises ConfigError: there is no such analysis, or no such option of a recording."""
    for question in recipe.findings:
        check_analysis(question)
    for options in (recipe.recording, recipe.analysed):
        resolve_config(RecordingConfig, None, recording_options(recipe, options))


def _check_expected(recipe: Recipe, spec: EnvSpec) -> None:
    recipe.check_expected([*spec.group_names, *spec.agents])


def _check_unused(folder: Path, recipe: Recipe, entry: str) -> None:
    """Raises RunError: the folder holds files, other than those of the library that trains the recipe's agents."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    is_of_library = bool(recipe.command) and not {EXPERIMENT, RECIPE, "recordings"}.intersection(names)
    if names and not is_of_library:
        content = "is a run" if is_run(folder) else f"holds {', '.join(names[:5])}"
        raise RunError(f"{folder} {content}, but not the {RECIPE} of {entry}; choose another folder")


def _keep_rows(file: Path, n_rows: int) -> None:
    """Keeps about `n_rows` evenly spaced lines of a file, the first and the last among them."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    every = max(1, -(-len(lines) // n_rows))
    write_atomically(file, "".join(line for k, line in enumerate(lines) if k % every == 0 or k == len(lines) - 1))
