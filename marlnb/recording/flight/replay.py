"""replay_training: plays iterations of a run again, from the checkpoint before them, and records any of its envs.

A checkpoint holds everything that the next iteration depends on. So on a CPU each later iteration can be repeated bit
for bit, until the next checkpoint and beyond. The hash of every env that a `FlightRecorder` wrote proves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from marlnb.algorithms.rollout import Rollout
from marlnb.config import accepts_options, option, resolve_config
from marlnb.envs.regroup import build_env
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import ConfigError, RecordingError, RunError
from marlnb.experiment import Experiment
from marlnb.recording.capture.config import ActivationOptions
from marlnb.recording.capture.plan import recording_path
from marlnb.recording.file.reader import Recording
from marlnb.recording.flight.hashes import HashFile, rollout_hashes
from marlnb.recording.flight.labels import LabelledEnv
from marlnb.recording.flight.recorder import Flight, FlightOptions
from marlnb.recording.flight.rows import RolloutRows
from marlnb.training.collect.threads import torch_threads
from marlnb.training.compilation import compile_long_training
from marlnb.training.loop import Loop
from marlnb.training.runs.checkpoints.checkpoint import Checkpoint
from marlnb.training.runs.run import Origin, Run, opened_run
from marlnb.training.train import RunLike

FLIGHT = FlightOptions().name


@dataclass(frozen=True)
class ReplayOptions(ActivationOptions):
    """The options of `replay_training`."""

    name: str | None = option(None, help="name of the file; none: replay-<iteration>")
    iterations: int = option(1, help="iterations that are recorded", ge=1)
    flight: str = option(FLIGHT, help="name of the FlightRecorder's recording, whose hashes are compared")
    verify: bool = option(True, help="compare with the hashes; without hashes, replay only with verify=false")


@closing_pools()
@accepts_options(ReplayOptions)
def replay_training(
    run: RunLike,
    iteration: int,
    envs: Sequence[int],
    config: ReplayOptions | None = None,
    *,
    trust: bool = False,
    **overrides: Any,
) -> Recording:
    """Plays an iteration of a training run again on the CPU, and records some of its envs as the training saw them.

    It starts from the last checkpoint before the iteration, or from the beginning, and trains up to it: at most
    `checkpoint_every` iterations where all checkpoints were kept. Episodes that begin before the first recorded
    iteration, or end after the last one, are partial and marked unfinished.

    Args:
        run: the run or its folder.
        iteration: number of the first recorded one, as in the run's metrics: 1 is the first.
        envs: numbers of the envs, 0 to n_envs - 1.
        config: the options; None: the defaults.
        trust: allow the code that another person's run folder names.
        overrides: options that replace those of `config`.
    Raises:
        RunError: the run has not been trained so far, is a league or a population, has a schedule, or was trained on a
            GPU, whose random numbers a CPU cannot draw.
        RecordingError: the file exists; there are no hashes; a site of a recurrent critic; or an env differs from the
            training: the message names the iteration and the first such env.
        ConfigError: there is no such env or iteration.
        SiteError: a pattern matches no site.
        CheckpointError: a checkpoint is damaged.
    """
    options = resolve_config(ReplayOptions, config, overrides)
    opened = opened_run(run, trust=trust)
    experiment = opened.experiment.loaded()
    last = iteration + options.iterations - 1
    chosen = _checked(opened, experiment, iteration, last, envs)
    path = recording_path(opened, options.name or f"replay-{iteration}")
    if path.exists():
        raise RecordingError(f"{path} already exists; give another name")
    expected = _expected_hashes(opened, experiment, options, last)
    checkpoints = {item.iteration: item for item in opened.checkpoints if item.iteration < iteration}
    start = max(checkpoints, default=0)
    origins = {item.iteration: Origin(item.iteration, item.sha256) for item in opened.checkpoints}
    with torch_threads(experiment.threads), _loop(experiment, checkpoints.get(start), chosen) as loop:
        rows = RolloutRows(loop.env.spec, loop.policies, torch.tensor(chosen), options)
        _play(loop, range(start + 1, iteration), expected)
        flight = Flight(opened, loop, rows, path, None)
        complete = False
        try:
            _play(loop, range(iteration, last + 1), expected, flight, origins)
            complete = True
        finally:
            flight.close(complete=complete, quiet=not complete)
            if not complete:
                path.unlink(missing_ok=True)
    return Recording.open(path)


def _play(
    loop: Loop,
    iterations: range,
    expected: Mapping[int, np.ndarray],
    flight: Flight | None = None,
    origins: Mapping[int, Origin] | None = None,
) -> None:
    """Trains these iterations.

    Raises:
        RecordingError: an env's hash differs from the training's.
    """
    for number in iterations:

        def on_rollout(rollout: Rollout, number: int = number) -> None:
            hashes = rollout_hashes(rollout, loop.env.spec).numpy()
            if number in expected and (differing := np.flatnonzero(hashes != expected[number])).size:
                can_be_saved = loop.env.state_dict() is not None
                reset = "" if can_be_saved else "the training was resumed, which reset this environment; "
                raise RecordingError(
                    f"the replay of iteration {number} differs from the training in {len(differing)} of {len(hashes)} "
                    f"envs, first in env {differing[0]}. Possible causes: {reset}the code, the versions of torch or "
                    "the processor have changed; the environment does not follow its seed"
                )
            labels = loop.env.take() if isinstance(loop.env, LabelledEnv) else {}
            if flight is not None:
                flight.add(rollout, number - 1, (origins or {}).get(number - 1), labels)

        loop.on_rollout[:] = [on_rollout]
        loop.advance()
        if loop.env.state_dict() is None and number % loop.experiment.checkpoint_every == 0:
            loop.begin(number)  # an environment that cannot be saved is reset at each checkpoint


@contextmanager
def _loop(experiment: Experiment, checkpoint: Checkpoint | None, envs: Sequence[int]) -> Iterator[Loop]:
    with closing(build_env(experiment, experiment.n_envs, device="cpu")) as env:
        loop = Loop(experiment, LabelledEnv(env, envs), torch.device("cpu"))
        compile_long_training(experiment, loop.learners)  # as the training did
        if checkpoint is None:
            loop.begin(0)
        else:
            loop.load_state_dict(checkpoint.load(), checkpoint.iteration)
        yield loop


def _checked(run: Run, experiment: Experiment, iteration: int, last: int, envs: Sequence[int]) -> list[int]:
    """The envs, once each and in order."""
    if experiment.league is not None or experiment.evolution is not None or experiment.schedule:
        raise RunError(
            f"{run.shown_path} is a league or a population, or has a schedule; replay_training plays runs with "
            "one policy per group"
        )
    if not experiment.device.startswith("cpu"):
        raise RunError(
            f"{run.shown_path} was trained on {experiment.device}, and a CPU cannot draw the random numbers of a GPU's "
            "generator. FlightRecorder(every_envs=...) records the envs that you need while the training runs"
        )
    saved = max((checkpoint.iteration for checkpoint in run.checkpoints), default=0)
    trained = run.status().get("iteration") or saved  # a lost node can leave the status empty
    if not trained:
        raise RunError(f"{run.shown_path} has not been trained yet, so nothing of it can be played again")
    if not 1 <= iteration <= last <= trained:
        raise ConfigError(f"{run.shown_path} has iterations 1 to {trained}; got {iteration} to {last}")
    numbers = sorted({int(number) for number in envs})
    if not numbers or numbers[0] < 0 or numbers[-1] >= experiment.n_envs:
        raise ConfigError(f"{run.shown_path} trained in envs 0 to {experiment.n_envs - 1}; got envs={list(envs)}")
    return numbers


def _expected_hashes(run: Run, experiment: Experiment, options: ReplayOptions, last: int) -> dict[int, np.ndarray]:
    if not options.verify:
        return {}
    path = recording_path(run, options.flight).with_suffix(".hashes")
    hashes = HashFile(path, experiment.n_envs).read()
    if last not in hashes:
        raise RecordingError(
            f"{path} has no hashes of iteration {last}, so the replay cannot be verified; train with "
            "callbacks=[FlightRecorder()], or replay with verify=False"
        )
    return hashes
