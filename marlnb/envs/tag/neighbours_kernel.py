"""The Triton kernel of `neighbours_triton`. Importing this module needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def nearest_kernel(  # type: ignore[no-untyped-def]  # Triton reads annotations, and refuses those of Python
    x,
    y,
    is_candidate,
    neighbours,
    n,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ID_BITS: tl.constexpr,
    NO_AGENT: tl.constexpr,
):
    """ROWS agents of one env: one key for each pair, the bits of the distance and then the id; K times the minimum."""
    env = tl.program_id(0).to(tl.int64)
    agent = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    other = tl.arange(0, COLUMNS)
    start = env * n
    own_x = tl.load(x + start + agent, mask=agent < n, other=0.0)
    own_y = tl.load(y + start + agent, mask=agent < n, other=0.0)
    other_x = tl.load(x + start + other, mask=other < n, other=0.0)
    other_y = tl.load(y + start + other, mask=other < n, other=0.0)
    candidate = tl.load(is_candidate + start + other, mask=other < n, other=0) != 0
    dx = other_x[None, :] - own_x[:, None]
    dy = other_y[None, :] - own_y[:, None]
    distance = tl.sqrt_rn(dx * dx + dy * dy)
    bits = distance.to(tl.int32, bitcast=True).to(tl.int64)
    keys = (bits << ID_BITS) + other[None, :]
    keys = tl.where(candidate[None, :] & (other[None, :] != agent[:, None]), keys, NO_AGENT)
    for slot in range(K):
        smallest = tl.min(keys, axis=1)
        nearest_id = tl.where(smallest < NO_AGENT, smallest & ((1 << ID_BITS) - 1), -1)
        tl.store(neighbours + (start + agent) * K + slot, nearest_id, mask=agent < n)
        keys = tl.where(keys == smallest[:, None], NO_AGENT, keys)
