"""One training run under a budget of seconds or of frames, scored at given marks."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.drivers.pace import cpu_seconds
from benchmarks.tune.scoring import Scores, scores
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

Clock = Literal["cpu", "wall", "frames"]
UNLIMITED_FRAMES = 10**9
WARM_UP_ITERATIONS = 3  # import what a training run imports when it first needs it


@dataclass(frozen=True)
class Point:
    """The scores at one mark.

    Attributes:
        seconds: of training so far, at the end of the iteration in which the mark was reached; of the clock "frames":
            CPU-seconds.
        frames: trained so far.
        greedy: scores with the most likely actions.
        exploring: scores with sampled actions.
    """

    seconds: float
    frames: int
    greedy: Scores
    exploring: Scores

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def learning_curve(experiment: Experiment, marks: Sequence[float], *, clock: Clock, episodes: int) -> Iterator[Point]:
    """Trains until each mark in turn; the training ends when the caller has read the last point.

    Args:
        experiment: what to train; its own length is ignored. With compile=auto nothing is compiled, as in training runs
            of the lengths that tuned settings have.
        marks: ascending seconds or frames of training. Set-up and scoring do not count.
        clock: of the marks. "cpu": CPU-seconds of this process and its workers; "wall": seconds; "frames", which do not
            depend on what else the machine does.
        episodes: of each scoring.
    Raises:
        DivergedError: losses or weights are not finite.
    """
    experiment = _without_end(experiment)
    with tempfile.TemporaryDirectory() as folder:
        with Trainer(experiment, Run.create(Path(folder) / "run", experiment)) as trainer:
            spent_s = 0.0
            for mark in marks:
                start_s = _now(clock)
                while (trainer.frames if clock == "frames" else spent_s + _now(clock) - start_s) < mark:
                    next(trainer)
                spent_s += _now(clock) - start_s
                greedy, exploring = (
                    scores(experiment, trainer.policies, episodes=episodes, explore=explore)
                    for explore in (False, True)
                )
                yield Point(round(spent_s, 2), trainer.frames, _rounded(greedy), _rounded(exploring))


def warm_up(experiment: Experiment) -> None:
    """A few iterations of a training run, so that the next one need not import anything."""
    experiment = _without_end(experiment)
    with tempfile.TemporaryDirectory() as folder:
        with Trainer(experiment, Run.create(Path(folder) / "run", experiment)) as trainer:
            for _ in range(WARM_UP_ITERATIONS):
                next(trainer)


def _without_end(experiment: Experiment) -> Experiment:
    compiling = "never" if experiment.compile == "auto" else experiment.compile
    return replace(experiment, frames=UNLIMITED_FRAMES, compile=compiling)


def _now(clock: Clock) -> float:
    return time.perf_counter() if clock == "wall" else cpu_seconds()


def _rounded(values: Scores) -> Scores:
    return {name: round(value, 3) for name, value in values.items()}
