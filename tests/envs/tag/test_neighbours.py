"""The nearest agents, with the ties of agents in one corner, against a sort in plain Python and against the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor

from marlnb.envs.tag.neighbours import nearest

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton: make triton-test")


def positions(n_envs: int, n: int, *, corners: int = 0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Agents on a square of side 20, some of them in two corners, a fifth not to be found."""
    generator = torch.Generator().manual_seed(seed)
    x, y = (20 * torch.rand(2, n_envs, n, generator=generator)).unbind()
    x[:, :corners], y[:, :corners] = 0.0, 20.0
    x[:, corners : 2 * corners], y[:, corners : 2 * corners] = 20.0, 20.0
    return x, y, torch.rand(n_envs, n, generator=generator) > 0.2


def sorted_in_python(x: Tensor, y: Tensor, is_candidate: Tensor, k: int) -> list[list[list[int]]]:
    """By (float32 distance, id)."""
    result = []
    for row_x, row_y, candidates in zip(x.numpy(), y.numpy(), is_candidate.numpy()):
        env = []
        for i in range(len(row_x)):
            gaps = np.sqrt((row_x - row_x[i]) ** 2 + (row_y - row_y[i]) ** 2)
            others = sorted((gap, j) for j, gap in enumerate(gaps) if candidates[j] and j != i)
            env.append(([j for _, j in others] + [-1] * k)[:k])
        result.append(env)
    return result


@pytest.mark.parametrize(("n", "corners", "k"), [(7, 2, 3), (7, 3, 6), (105, 30, 10), (33, 0, 5)])
def test_equals_a_sort_by_distance_and_id(n: int, corners: int, k: int) -> None:
    case = positions(4, n, corners=corners)
    assert nearest(*case, k).tolist() == sorted_in_python(*case, k)


def test_a_thousand_agents() -> None:
    case = positions(5, 1000, corners=100)  # more than one chunk of envs
    neighbours = nearest(*case, 10)
    rows = slice(4, 5)
    assert neighbours[rows].tolist() == sorted_in_python(*(value[rows] for value in case), 10)


def test_agents_out_of_the_game_are_not_neighbours() -> None:
    x, y, _ = positions(1, 4)
    assert (
        nearest(x, y, torch.tensor([[False, True, False, False]]), 2)[0]
        == torch.tensor([[1, -1], [-1, -1]] + [[1, -1]] * 2)
    ).all()


@needs_triton
@pytest.mark.parametrize(("n", "corners", "k"), [(7, 2, 3), (7, 3, 6), (40, 15, 10)])
def test_kernel_finds_the_same_agents(n: int, corners: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Triton's interpreter, which runs the kernel on a CPU; on a GPU as it is compiled."""
    from marlnb.envs.tag import neighbours_triton

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(neighbours_triton, "MAX_KEYS", 16 * 4 if n > 8 else 8 * 4)  # several programs for each env
    case = positions(4, n, corners=corners)
    neighbours = neighbours_triton.nearest(*(value.to(device) for value in case), k)
    assert neighbours.tolist() == nearest(*case, k).tolist()


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from marlnb.envs.tag.neighbours_kernel import nearest_kernel

constants = {"K": 10, "ROWS": 16, "COLUMNS": 128, "ID_BITS": 20, "NO_AGENT": 1 << 62}
signature = {"x": "*fp32", "y": "*fp32", "is_candidate": "*i1", "neighbours": "*i64", "n": "i32"}
source = ASTSource(nearest_kernel, signature | dict.fromkeys(constants, "constexpr"), constants)
compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": False})
assert compiled.asm["cubin"] and "ld.local" not in compiled.asm["ptx"]
"""


@needs_triton
def test_kernel_is_compiled_for_a_gpu_that_is_not_here() -> None:
    """Triton's interpreter accepts Python that its compiler refuses."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, "-c", COMPILE], check=True, env=environment)
