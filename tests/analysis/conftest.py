"""A short run and its recording, made once: the analyses' tests ask how they read it, not how good its agents are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from marlnb.experiment import Experiment
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.collect.episodes import TimeStep
from marlnb.training.runs.run import Run
from marlnb.training.train import train


def goal_dx(time_step: TimeStep) -> torch.Tensor:
    """Offset from listener to goal along x: features 2, 4 and 6 of its observation are those to the landmarks."""
    offsets = time_step.observation["listener"][:, 0, [2, 4, 6]]
    return offsets.gather(1, time_step.labels["goal"].long().unsqueeze(1)).squeeze(1)


def make_run(path: Path, env: str, *overrides: str) -> Run:
    fixed = ("n_envs=16", "rollout_steps=25", "frames=400", "threads=1", "tuned=false")
    return train(Experiment.compose(f"env={env}", "algorithm=mappo", *fixed, *overrides), run=path, progress=False)


def copy_with(recording: Recording, path: Path, group: str, **fields: np.ndarray) -> Recording:
    """A copy of a recording, in the same folder under the name of `path`, with other fields `[row, agent, ...]`."""
    path = recording.path.with_name(path.name)
    shutil.copy(recording.path, path)
    with h5py.File(path, "r+") as file:
        steps = file[f"steps/{group}"]
        for name, values in fields.items():
            if name in steps:
                steps[name][...] = values
            else:
                steps[name] = values
    return Recording.open(path)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Speaker and listener, hardly trained."""
    return make_run(tmp_path_factory.mktemp("runs") / "talk", "mpe/simple_speaker_listener")


@pytest.fixture(scope="session")
def recording(run: Run) -> Iterator[Recording]:
    with record(run, episodes=60, sites="*", labels={"goal_dx": goal_dx}, progress=False) as opened:
        yield opened


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """Three agents of one group with recurrent policies; only the first and the last are recorded."""
    path = tmp_path_factory.mktemp("runs") / "team"
    made = make_run(path, "mpe/simple_spread", "model=gru", "critic=mlp", "algorithm.sequence_length=25")
    with record(made, episodes=12, agents=["agent_0", "agent_2"], values=False, progress=False) as opened:
        yield opened
