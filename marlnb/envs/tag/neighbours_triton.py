"""The nearest agents of each agent as one GPU kernel. `neighbours_torch` is its reference; equal to the last bit.

The torch version writes a key for each pair of agents to memory and sorts; here they stay in registers.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from marlnb.envs.tag.neighbours_torch import ID_BITS, NO_AGENT

MAX_KEYS = 2048  # of one program: at most so many pairs of agents are in registers


def is_available() -> bool:
    """Whether Triton is installed; it comes with torch for GPUs."""
    return find_spec("triton") is not None


def nearest(x: Tensor, y: Tensor, is_candidate: Tensor, k: int) -> Tensor:
    """As `neighbours.nearest`."""
    import triton

    n_envs, n = x.shape
    neighbours = torch.empty(n_envs, n, k, dtype=torch.int64, device=x.device)
    columns = triton.next_power_of_2(n)
    rows = max(1, MAX_KEYS // columns)
    grid = (n_envs, triton.cdiv(n, rows))
    # a fused multiply-add would round once where torch rounds twice
    fusion = {} if x.device.type == "cpu" else {"enable_fp_fusion": False}
    with torch.cuda.device_of(x):  # Triton launches on the current device
        _kernel()[grid](
            x.contiguous(), y.contiguous(), is_candidate.contiguous(), neighbours, n,
            K=k, ROWS=rows, COLUMNS=columns, ID_BITS=ID_BITS, NO_AGENT=NO_AGENT, **fusion,
        )  # fmt: skip
    return neighbours


def _kernel() -> Any:
    """Compiled on first use: importing Triton takes a second."""
    global _compiled
    if _compiled is None:
        from marlnb.envs.tag.neighbours_kernel import nearest_kernel

        _compiled = nearest_kernel
    return _compiled


_compiled: Any = None
