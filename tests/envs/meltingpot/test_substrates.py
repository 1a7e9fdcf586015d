"""MeltingPot's substrates, run by `python -m tests.envs.meltingpot`, which installs them in a folder of their own."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torchrl.envs import check_env_specs

import marlnb
from marlnb.config import ENVIRONMENTS
from marlnb.envs.contract import check_vector_env
from marlnb.envs.steps import random_actions
from marlnb.envs.vector import VectorEnv
from marlnb.errors import EnvError

COOKING, ROCK_PAPER_SCISSORS = "collaborative_cooking__cramped", "running_with_scissors_in_the_matrix__repeated"


def build(name: str, n_envs: int = 1, **options: Any) -> VectorEnv:
    return ENVIRONMENTS.get(f"meltingpot/{name}")(**options).build(n_envs)


@pytest.mark.parametrize("name", [COOKING, "coins"])
def test_contract(name: str) -> None:
    check_vector_env(lambda n_envs: build(name, n_envs, max_steps=4))


def test_what_is_registered_can_be_had() -> None:
    """49 substrates in the list of MeltingPot 2.4; other modules in their folder are left out."""
    names = [name for name in ENVIRONMENTS.names() if name.startswith("meltingpot/")]
    assert len(names) == 49 and "meltingpot/clean_up" in names and "meltingpot/the_matrix" not in names


def test_numbers_next_to_the_image_are_channels() -> None:
    with build(ROCK_PAPER_SCISSORS) as plain, build(ROCK_PAPER_SCISSORS, observations=("RGB", "INVENTORY")) as more:
        image, both = (env.reset(3).groups["agents"].observation for env in (plain, more))
    assert image.dtype == torch.uint8 and image.shape == (1, 2, 40, 40, 3) and image.float().std() > 10
    assert both.dtype == torch.float32 and both.shape == (1, 2, 40, 40, 6)
    assert torch.allclose(both[..., :3], image / 255)
    assert (both[..., 3:] == 1).all()  # one of each to begin with: Vezhnevets et al. 2020, section 4.1


def test_time_truncates() -> None:
    """1000 frames (maxEpisodeLengthFrames of the substrate), which no ending of its own precedes."""
    with build(COOKING) as env:
        env.reset(0)
        idle = {"agents": torch.zeros(1, 2, dtype=torch.int64)}
        ends = [
            (t, step.groups["agents"].truncated.all().item()) for t in range(1, 1002) if (step := env.step(idle)).done
        ]
    assert ends == [(1000, True)]


def test_a_picture_of_the_world() -> None:
    with build(COOKING, n_envs=2) as env:
        env.reset(0)
        assert env.render(1).shape == (40, 72, 3) and env.render(1).std() > 10


def digest(seed: int) -> str:
    with build(COOKING) as env:
        step, generator, seen = env.reset(seed), torch.Generator().manual_seed(0), hashlib.md5()
        for _ in range(30):
            step = env.step(random_actions(env, step, generator))
            seen.update(step.groups["agents"].observation.numpy().tobytes())
        return seen.hexdigest()


def test_an_episode_is_its_seeds_in_another_process() -> None:
    code = "from tests.envs.meltingpot.test_substrates import digest; print(digest(5))"
    root = Path(__file__).parents[3]
    there = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert there.stdout.split()[-1] == digest(5) != digest(6)


def test_refusals() -> None:
    with pytest.raises(EnvError, match=r"no observation \['SMELL'\]; env.observations can be \[.*'RGB'"):
        build(COOKING, observations=("SMELL",))


def test_as_torchrl() -> None:
    with build(COOKING, n_envs=2, max_steps=3) as env:
        check_env_specs(marlnb.as_torchrl(env))
