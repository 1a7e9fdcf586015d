"""Evaluations of many runs in marl-eval's JSON layout, which BenchMARL writes too: `raw[env][task][algorithm][seed]`.

Each run holds `step_<k>`: `step_count` (frames), `elapsed_time` (seconds, left out by BenchMARL) and for each metric
the values of all episodes; `absolute_metrics` holds the same metrics of its best policy over ten times the episodes.
BenchMARL's `absolute_metrics` differ: one number, the largest return of any single episode.

Source: Gorsane et al. 2022, "Towards a Standardised Performance Evaluation Protocol for Cooperative MARL"
(arXiv:2209.10485), and marl-eval's README; BenchMARL 1.5's `JsonWriter`.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from marlnb.errors import AnalysisError, shown, unknown
from marlnb.paths import expanded
from marlnb.text_files import read_text
from marlnb.training.shared_return import earn_differently
from marlnb.values import MAX_INTEGER

MAX_DIGITS = 18  # of a seed
RETURN = "return"
ABSOLUTE = "absolute_metrics"
ScoreKind = Literal["final", "best", "absolute"]
SCORE_KINDS = ("final", "best", "absolute")


@dataclass(frozen=True, repr=False)
class EvaluatedRun:
    """The evaluations of one run.

    Attributes:
        task: environment and task, for example `mpe/simple_spread`.
        algorithm: its name.
        seed: of the training.
        frames: at each evaluation, ascending.
        seconds: of training at each evaluation; None where unknown.
        metrics: by name, for each evaluation the value of each episode, in units of reward. `<group>_return` is that of
            one agent of a group; `return` is that of one agent where all groups share their reward.
        absolute: by name, the episodes of the final, long evaluation of the best policy.
    """

    task: str
    algorithm: str
    seed: int
    frames: tuple[int, ...]
    seconds: tuple[float | None, ...]
    metrics: Mapping[str, tuple[tuple[float, ...], ...]]
    absolute: Mapping[str, tuple[float, ...]]

    def curve(self, metric: str = RETURN) -> np.ndarray:
        """`[evaluation]`: the mean over episodes at each of `frames`.

        Raises:
            AnalysisError: the run has no such metric.
        """
        return np.array([float(np.mean(episodes)) for episodes in self._of(self.metrics, metric)])

    def score(self, metric: str = RETURN, which: ScoreKind = "final") -> float:
        """One number: the mean of the last evaluation, of the best one (biased upwards), or of the absolute one.

        Raises:
            AnalysisError: unknown metric or choice; no evaluation; or an absolute metric of a single episode.
        """
        if which not in SCORE_KINDS:
            raise AnalysisError(unknown("score", which, SCORE_KINDS))
        if which != "absolute":
            curve = self.curve(metric)
            return float(curve[-1] if which == "final" else np.nanmax(curve))
        episodes = self._of(self.absolute, metric)
        if len(episodes) < 2:
            raise AnalysisError(
                f"{self}: its absolute {metric} is one number, as BenchMARL writes it: the largest single episode, "
                "which cannot be compared with means; use 'final' or 'best'"
            )
        return float(np.mean(episodes))

    def __str__(self) -> str:
        return f"{self.task}, {self.algorithm}, seed {self.seed}"

    def __repr__(self) -> str:
        return f"<{self}: {len(self.frames)} evaluations of {', '.join(self.metrics)}>"

    def _of(self, metrics: Mapping[str, Any], metric: str) -> Any:
        if metric not in metrics or not len(metrics[metric]):
            why = ": its groups are rewarded differently" if metric == RETURN and metrics else ""
            raise AnalysisError(f"{self}: {unknown('metric', metric, metrics)}{why}")
        return metrics[metric]


def to_layout(runs: Iterable[EvaluatedRun]) -> dict[str, Any]:
    """Plain JSON in marl-eval's layout."""
    raw: dict[str, Any] = {}
    for run in runs:
        entry: dict[str, Any] = {}
        for k, (frames, seconds) in enumerate(zip(run.frames, run.seconds)):
            entry[f"step_{k + 1}"] = {
                "step_count": frames,
                **({} if seconds is None else {"elapsed_time": seconds}),
                **{name: _plain(episodes[k]) for name, episodes in run.metrics.items()},
            }
        entry[ABSOLUTE] = {name: _plain(episodes) for name, episodes in run.absolute.items()}
        env, task = _split(run.task)
        raw.setdefault(env, {}).setdefault(task, {}).setdefault(run.algorithm, {})[f"seed_{run.seed}"] = entry
    return raw


def from_layout(raw: Mapping[str, Any], source: str = "marl-eval JSON") -> list[EvaluatedRun]:
    """The runs of a JSON object in marl-eval's layout.

    Raises:
        AnalysisError: the object is not in that layout; the message says where.
    """
    return [
        _evaluated_run(_join(env, task), algorithm, seed, entry, f"{source}: {env}/{task}/{algorithm}/{seed}")
        for env, tasks in _items(raw, source)
        for task, algorithms in _items(tasks, f"{source}: {env}")
        for algorithm, seeds in _items(algorithms, f"{source}: {env}/{task}")
        for seed, entry in _items(seeds, f"{source}: {env}/{task}/{algorithm}")
    ]


def read_marl_eval(
    path: str | os.PathLike[str], *, label: str = "", tasks: Mapping[str, str] | None = None
) -> list[EvaluatedRun]:
    """Every run in a JSON file, or in all of the JSON files in and below a folder, as BenchMARL leaves them.

    Args:
        label: added to the algorithms' names in brackets, to distinguish them from other runs.
        tasks: new names of the runs' tasks, for example `{"pettingzoo/simple_spread": "mpe/simple_spread"}`.
    Raises:
        AnalysisError: no such files, a file in another layout, a run twice, or a task in `tasks` that no run has.
    """
    root = expanded(path)
    files = sorted(root.rglob("*.json")) if root.is_dir() else [root]
    files = [file for file in files if "wandb" not in file.name]  # W&B's own summaries
    loaded = [run for file in files for run in from_layout(_read(file), str(file))]
    if not loaded:
        raise AnalysisError(f"{root}: no JSON file with runs in marl-eval's layout")
    names = dict(tasks or {})
    for task in names:
        if task not in {run.task for run in loaded}:
            raise AnalysisError(f"{root}: {unknown('task', task, sorted({run.task for run in loaded}))}")
    suffix = f" ({label})" if label else ""
    runs = [replace(run, algorithm=run.algorithm + suffix, task=names.get(run.task, run.task)) for run in loaded]
    check_unique(runs)
    return runs


def check_unique(runs: Sequence[EvaluatedRun]) -> None:
    """Raises AnalysisError when two runs are of the same task, algorithm and seed."""
    for run, count in Counter(map(str, runs)).items():
        if count > 1:
            raise AnalysisError(f"there are two runs of {run}; use label= to distinguish runs of different sources")


def _evaluated_run(task: str, algorithm: str, seed: str, entry: Any, where: str) -> EvaluatedRun:
    number = seed.removeprefix("seed_")
    if not (number.isascii() and number.isdecimal()) or len(number) > MAX_DIGITS:
        raise AnalysisError(f"{where}: expected seed_<number>; got {seed!r}")
    steps = [
        (f"{where}/{name}", dict(_items(step, f"{where}/{name}")))
        for name, step in _items(entry, where)
        if name != ABSOLUTE
    ]
    for at, step in steps:
        frames, seconds = step.get("step_count"), step.get("elapsed_time")
        if not isinstance(frames, int) or isinstance(frames, bool) or not 0 <= frames <= MAX_INTEGER:
            raise AnalysisError(f"{at}: step_count must be a number of frames; got {shown(frames, 60)}")
        if seconds is not None and not _is_number(seconds):
            raise AnalysisError(f"{at}: elapsed_time must be a number of seconds; got {shown(seconds, 60)}")
    steps.sort(key=lambda step: int(step[1]["step_count"]))
    names = [name for name in (steps[0][1] if steps else {}) if name not in ("step_count", "elapsed_time")]
    for at, step in steps:
        missing = [name for name in names if name not in step]
        if missing:
            raise AnalysisError(f"{at}: missing {', '.join(missing)}, which other steps have")
    metrics = {name: tuple(_episodes(step[name], f"{at}/{name}") for at, step in steps) for name in names}
    final = dict(_items(entry.get(ABSOLUTE, {}), f"{where}/{ABSOLUTE}"))
    absolute = {name: _episodes(value, f"{where}/{ABSOLUTE}/{name}") for name, value in final.items()}
    if _groups_earn_differently(metrics):  # BenchMARL averages over them
        metrics.pop(RETURN, None)
        absolute.pop(RETURN, None)
    return EvaluatedRun(
        task=task,
        algorithm=algorithm,
        seed=int(number),
        frames=tuple(int(step["step_count"]) for _, step in steps),
        seconds=tuple(_finite(step.get("elapsed_time")) for _, step in steps),
        metrics=metrics,
        absolute=absolute,
    )


def _groups_earn_differently(metrics: Mapping[str, tuple[tuple[float, ...], ...]]) -> bool:
    suffix = f"_{RETURN}"
    groups = {name: [x for episodes in evaluations for x in episodes] for name, evaluations in metrics.items()}
    return earn_differently({name: float(np.mean(x)) for name, x in groups.items() if name.endswith(suffix) and x})


def _episodes(value: Any, where: str) -> tuple[float, ...]:
    if not isinstance(value, list) or not value or not all(item is None or _is_number(item) for item in value):
        raise AnalysisError(
            f"{where}: a metric must be a list of numbers, one for each episode; got {shown(value, 60)}"
        )
    return tuple(math.nan if (number := _finite(item)) is None else number for item in value)


def _finite(value: float | None) -> float | None:
    """A number from JSON; None if it is not finite."""
    return None if value is None or not math.isfinite(value) else float(value)


def _is_number(value: Any) -> bool:
    """Whether a value from JSON is a number that a float can hold."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= sys.float_info.max
    return isinstance(value, float)


def _items(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise AnalysisError(f"{where}: expected a JSON object, as in marl-eval's layout; got {type(value).__name__}")
    yield from value.items()


def _plain(episodes: Sequence[float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in episodes]


def _read(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise AnalysisError(f"{path} cannot be read as JSON: {error}") from error


def _split(task: str) -> tuple[str, str]:
    env, slash, name = task.partition("/")
    return (env, name) if slash else (task, task)


def _join(env: str, task: str) -> str:
    return task if env == task else f"{env}/{task}"
