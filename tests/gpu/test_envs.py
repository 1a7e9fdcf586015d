"""Batched environments on a GPU play the games that they play on a CPU."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.by_hand import vector_env
from marlnb.envs.steps import random_actions
from marlnb.envs.tag.neighbours import nearest
from marlnb.envs.tensor.philox import Draws
from marlnb.envs.vector import GroupStep, Step
from marlnb.errors import EnvBuildError
from tests.envs.tag.test_neighbours import positions

DEVICE = "cuda"
NATIVE = [name for name in ENVIRONMENTS.names() if name.startswith(("mpe/", "tag/", "matrix/", "probe/"))]


def test_draws_have_the_same_bits() -> None:
    seeds = torch.arange(1000) * 12345
    on_cpu, on_gpu = Draws(seeds, 3), Draws(seeds.to(DEVICE), 3)
    assert torch.equal(on_cpu.uniform(7, 3), on_gpu.uniform(7, 3).cpu())
    assert torch.equal(on_cpu.integers(11, 7), on_gpu.integers(11, 7).cpu())


@pytest.mark.parametrize("name", NATIVE)
def test_steps_equal_a_cpus(name: str) -> None:
    """Sines and roots differ in the last bit, and collisions amplify that: a few steps."""
    on_cpu, on_gpu = vector_env(name, 64), vector_env(name, 64, device=DEVICE)
    ours, theirs = on_gpu.reset(3), on_cpu.reset(3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        assert_equal(ours, theirs)
        actions = random_actions(on_cpu, theirs, generator)
        ours = on_gpu.step({group: value.to(DEVICE) for group, value in actions.items()})
        theirs = on_cpu.step(actions)


def assert_equal(ours: Step, theirs: Step) -> None:
    """Final observations only count where an episode ended."""
    assert torch.equal(ours.done.cpu(), theirs.done) and torch.equal(ours.episode_seed.cpu(), theirs.episode_seed)
    for name, rows in theirs.groups.items():
        ends = rows.terminated | rows.truncated
        for field in fields(GroupStep):
            value, expected = getattr(ours.groups[name], field.name), getattr(rows, field.name)
            if expected is not None:
                mask = ends if field.name == "final_observation" else torch.ones_like(ends)
                torch.testing.assert_close(value.cpu()[mask], expected[mask], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("n_envs", "n", "corners", "k"), [(4, 7, 3, 6), (64, 105, 30, 10), (7, 33, 0, 5), (16, 1000, 100, 10)]
)
def test_the_kernel_finds_the_nearest_agents(n_envs: int, n: int, corners: int, k: int) -> None:
    case = positions(n_envs, n, corners=corners)
    assert torch.equal(nearest(*(value.to(DEVICE) for value in case), k).cpu(), nearest(*case, k))


def test_too_many_envs_are_an_error_before_anything_is_allocated() -> None:
    before = torch.cuda.memory_allocated()
    with pytest.raises(EnvBuildError, match=r"enough for [\d,]+ envs"):
        vector_env("tag/continuous", 10**8, device=DEVICE)
    assert torch.cuda.memory_allocated() == before
