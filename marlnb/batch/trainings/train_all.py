"""Several training runs by one command: `marlnb train algorithm=ippo,mappo seed=0..4`, as Hydra's multirun."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from marlnb.allocations import usable_cores
from marlnb.batch.sweep.sweep import Sweep
from marlnb.batch.trainings.launch import check_runs, run_in_turn, run_side_by_side
from marlnb.batch.trainings.progress_display import TrainingsProgress, frames_done
from marlnb.errors import ConfigError, RunError
from marlnb.experiment import Experiment
from marlnb.paths import expanded
from marlnb.training.runs.files import METRICS, is_run, write_atomically
from marlnb.training.runs.metrics_rows import read_rows
from marlnb.training.runs.status import read_status, scores_by_mode

FILE = "trainings.json"  # in the common folder: the overrides
MAX_TRAININGS = 10_000
_RANGE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?")


@dataclass(frozen=True)
class SweptTraining:
    """One training run of a sweep over overrides.

    Attributes:
        folder: its folder in the common one, `algorithm=mappo,seed=0`.
        swept: its values of the swept overrides.
        experiment: what is trained.
    """

    folder: str
    swept: Mapping[str, Any]
    experiment: Experiment

    def __str__(self) -> str:
        return self.folder


@dataclass(frozen=True)
class Trainings:
    """What `train_all` did.

    Attributes:
        path: the common folder.
        training runs: all training runs, in the order of the values.
        failed: by training, why it failed.
        stopped: whether it was stopped before its end.
    """

    path: Path
    trainings: tuple[SweptTraining, ...]
    failed: Mapping[str, str]
    stopped: bool

    def rows(self) -> list[dict[str, Any]]:
        """One row per training: swept values, state, frames and minutes of training, and each group's two mean returns.

        The exploring return is that of recent training episodes, the greedy one that of the last evaluation; a return
        that is not known yet is left out. Players of one group that play against each other have an exploring return
        each, of the last iteration.
        """
        return [{**each.swept, **_results(self.path / each.folder)} for each in self.trainings]


def swept_values(overrides: Sequence[str]) -> dict[str, list[str]]:
    """The values of each override that has several, by key: `seed=0..4` or `seed=range(0,5)`, `algorithm=ippo,mappo`.

    Raises:
        ConfigError: not in Hydra's grammar, a duplicate key or value, or a sweep without a list of values.
    """
    axes: dict[str, list[str]] = {}
    for text in overrides:
        key, _, value = text.partition("=")
        try:
            override = OverridesParser.create().parse_override(f"{key}={_expand_ranges(key, value)}")
            values = [str(each) for each in override.sweep_string_iterator()] if override.is_sweep_override() else []
        except (HydraException, ValueError) as error:
            raise ConfigError(f"cannot read {text!r}: {error}") from error
        if values and key in axes:
            raise ConfigError(f"{key}= is given twice; write its values in one list")
        if values:
            axes[key] = values
    return axes


def expand_seeds(overrides: Sequence[str]) -> tuple[list[str], bool]:
    """Overrides with `seeds=N` written as `seed=FIRST..LAST`, and whether it was there. `seed=` gives the first seed.

    Raises:
        ConfigError: N is not a whole number of at least 2, or `seed=` has several values.
    """
    texts = [text.partition("=")[2] for text in overrides if text.startswith("seeds=")]
    if not texts:
        return list(overrides), False
    first = next((text.partition("=")[2] for text in overrides if text.startswith("seed=")), "0")
    if not first.isdecimal():
        raise ConfigError(f"seeds={texts[-1]} needs one first seed; got seed={first}")
    if not texts[-1].isdecimal() or not 2 <= int(texts[-1]) <= MAX_TRAININGS:
        raise ConfigError(
            f"seeds={texts[-1]}: expected the number of seeds, from 2 to {MAX_TRAININGS:,}; for one run give seed="
        )
    others = [text for text in overrides if not text.startswith(("seeds=", "seed="))]
    return [*others, f"seed={first}..{int(first) + int(texts[-1]) - 1}"], True


def plan_trainings(overrides: Sequence[str], *, config_dir: str | None = None) -> list[SweptTraining]:
    """One training run for each combination of values, the last override varying fastest; each is composed and checked.

    Raises:
        ConfigError: an override cannot be read or composed, or has no effect in any training run; the message names the
            training.
        BatchError: a value is given twice.
    """
    axes = swept_values(overrides)
    fixed = [text for text in overrides if text.partition("=")[0] not in axes]
    names = Sweep({key: tuple(_named(value) for value in values) for key, values in axes.items()}, {})
    if len(names) > MAX_TRAININGS:
        raise ConfigError(f"these values make {len(names):,} training runs; at most {MAX_TRAININGS:,}")
    trainings, unused = [], []
    for (name, swept), values in zip(names.jobs(), itertools.product(*axes.values()), strict=True):
        words = [f"{key}={value}" for key, value in zip(axes, values, strict=True)]
        try:
            experiment = Experiment.compose(*fixed, *words, config_dir=config_dir)
            experiment.check_without_env()
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}", at=error.at) from error
        trainings.append(SweptTraining(name, swept, experiment))
        unused.append(experiment.unused_overrides([*fixed, *words]))
    if all(unused):
        raise ConfigError(f"{trainings[0]}: {'; '.join(unused[0])}")
    return trainings


def common_folder(trainings: Sequence[SweptTraining]) -> Path:
    """Where the runs are without another choice: `runs/simple_spread-algorithm-seed`."""
    keys = [re.sub(r"\W", "_", key) for key in trainings[0].swept]
    env = [] if "env" in keys else [re.split("[/:]", trainings[0].experiment.env.name)[-1]]
    return Path("runs", "-".join([*env, *keys]))


def train_all(
    trainings: Sequence[SweptTraining],
    folder: str | os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    together: bool = False,
    progress: bool = True,
) -> Trainings:
    """Trains each in its own folder below a common one. If one fails, the others continue.

    Complete runs are skipped, interrupted and failed ones resume from their last checkpoint, missing ones start: the
    same call continues an earlier one.

    Args:
        training runs: as `plan_trainings` returns them.
        folder: the common folder; None: `common_folder`.
        jobs: parallel processes, each with its share of the cores and GPUs; 1: all in this process. None:
            `default_jobs`.
        together: those that differ in their seed only advance together, in one batched product.
        progress: show progress.
    Raises:
        RunError: the folder holds something else, or a run of another experiment.
        ConfigError, EnvBuildError: some training runs cannot advance together.
    """
    if jobs is None:
        jobs = default_jobs(trainings, together=together)
    if jobs < 1:
        raise ConfigError(f"jobs: expected at least 1; got {jobs}")
    path = common_folder(trainings) if folder is None else expanded(folder)
    check_folder(path, trainings)
    launch = run_in_turn if jobs == 1 else partial(run_side_by_side, jobs=jobs)
    if together:
        from marlnb.batch.trainings.launch_together import groups_together, run_together
        from marlnb.training.together.joinable import check_builds_joinable

        for group in groups_together(trainings):
            check_builds_joinable(group[0].experiment)
        launch = partial(run_together, jobs=jobs)
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / FILE, json.dumps({"trainings": [each.folder for each in trainings]}, indent=2) + "\n")
    frames = {each.folder: frames_done(path / each.folder, each) for each in trainings}
    display = TrainingsProgress(trainings, frames, None if progress else io.StringIO())
    pending = []
    for each in trainings:
        if _state(path / each.folder) == "complete":
            display.end(each, "already complete")
        else:
            pending.append(each)
    try:
        outcomes = launch(path, pending, display)
    finally:
        display.close()
    failed = {str(outcome.run): outcome.message for outcome in outcomes if outcome.end == "failed"}
    is_stopped = any(outcome.end == "stopped" for outcome in outcomes) or len(outcomes) < len(pending)
    return Trainings(path, tuple(trainings), failed, is_stopped)


def default_jobs(trainings: Sequence[SweptTraining], *, together: bool) -> int:
    """1, but one for each player of a league, since they must meet, and one for each core where seeds train together.

    A batch of seeds keeps one core busy: its operations are small, or, with large minibatches, not joined.
    """
    if all(is_league_player(each.experiment) for each in trainings):
        return len(trainings)
    on_cpu = all(each.experiment.device == "cpu" for each in trainings)
    return usable_cores() if together and on_cpu else 1


def is_league_player(experiment: Experiment) -> bool:
    """Whether it trains one player of a league, which meets those of other training runs."""
    return experiment.league is not None and bool(experiment.league.learner)


def check_folder(path: Path, trainings: Sequence[SweptTraining]) -> None:
    """Raises RunError if the folder holds something else than these training runs and others of their kind."""
    names = sorted(os.listdir(path)) if path.is_dir() else []
    if path.exists() and (not path.is_dir() or (names and FILE not in names)):
        raise RunError(
            f"{path} already exists and does not hold several runs: it has {', '.join(names[:5]) or 'no entries'} "
            f"but no {FILE}; give run= a new folder"
        )
    check_runs(path, trainings)


def _expand_ranges(key: str, value: str) -> str:
    """`0..4` as `0,1,2,3,4`; anything else unchanged."""
    parts = value.split(",")
    if not any(_RANGE.fullmatch(part) for part in parts):
        return value
    texts: list[str] = []
    for part in parts:
        match = _RANGE.fullmatch(part)
        if match is None:
            texts.append(part)
            continue
        first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
        numbers = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
        if not 0 < len(numbers) <= MAX_TRAININGS:
            raise ConfigError(
                f"{key}={part}: expected FIRST..LAST or FIRST..LAST..STEP with 1 to {MAX_TRAININGS:,} values"
            )
        texts += map(str, numbers)
    return ",".join(texts)


def _named(text: str) -> Any:
    """A value as it is in folders and tables: numbers as numbers, and a name without slashes."""
    try:
        return json.loads(text)
    except ValueError:
        return text.replace("/", ".")


def _state(folder: Path) -> str:
    return str(read_status(folder)["state"]) if is_run(folder) else "missing"


def _results(folder: Path) -> dict[str, Any]:
    if not is_run(folder):
        return {"state": "missing", "trained_frames": 0, "minutes": 0.0}
    status = read_status(folder)
    facts = {"state": status["state"], "trained_frames": int(status.get("frames", 0))}
    try:
        rows = read_rows(folder / METRICS)
    except RunError:  # one damaged line hides no other run; resuming this one says which line
        return {**facts, "minutes": None}
    return {
        **facts,
        "minutes": rows[-1].get("seconds", 0.0) / 60 if rows else 0.0,
        **{
            f"{mode} return of {name}": value
            for mode, returns in scores_by_mode(status).items()
            for name, value in returns.items()
        },
    }
