"""Which calls that write are tried with which faults, and in which order: groups of calls that do the same.

Why a few calls of a group stand for all of it: calls of one group come from the same lines of code, in a loop over the
blocks of a file, over checkpoints or over players. An error is therefore handled by the same lines. What is on the disk
differs only in how many rounds of the loop are complete: none at the first call, all but one at the last, some between.
`make crash-test ARGS="--every 1"` tries every call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

KINDS = ("kill", "EROFS", "ENOSPC", "torn", "full", "EIO", "EDQUOT", "clock")
WRITES = ("write", "pwrite", "writev", "sendfile")
REMOVES = ("unlink", "unlinkat", "rmdir")
VARYING = re.compile(r"(?<=\.writing-)[^/]+|[0-9a-f]{32,}|\d+")  # names, digests, numbers of checkpoints and processes
PICKS = 4  # of each group
N_PICKS = {"EDQUOT": 1, "clock": 1}  # a quota has the code of a full disk, and no call reads the clock

Attempt = tuple[str, str, int]
"""A scenario, a kind of fault, and the number of the call that meets it."""


def planned(
    calls: Mapping[str, Sequence[str]], kinds: Sequence[str], every: int | None = None, first: int = 1
) -> list[Attempt]:
    """The attempts in the order in which they are made: the first call of each group, the last, two between, others.

    Args:
        calls: of each scenario, as "rename /status.json".
        every: try each k-th call; None: up to `PICKS` calls of each group.
        first: number of the first call to try.
    """
    ranks = {name: ranks_of(of_scenario) for name, of_scenario in calls.items()}
    attempts = [
        (name, kind, at)
        for kind in kinds
        for name, of_scenario in calls.items()
        for at in range(first, len(of_scenario) + 1, every or 1)
        if differs(kind, of_scenario[at - 1]) and (every or ranks[name][at] < N_PICKS.get(kind, PICKS))
    ]
    return sorted(attempts, key=lambda attempt: ranks[attempt[0]][attempt[2]])


def differs(kind: str, call: str) -> bool:
    """Whether this fault at this call does what no other attempt does.

    Half of a call exists for writes only; otherwise "torn" is "kill" and "full" is "ENOSPC". A full or broken disk
    refuses no removal, so there the fault is the same as at the next call.
    """
    operation = call.split(" ")[0]
    if kind in ("torn", "full"):
        return operation in WRITES
    return operation not in REMOVES or kind not in ("ENOSPC", "EDQUOT", "EIO")


def ranks_of(calls: Sequence[str]) -> dict[int, int]:
    """0 for the first call of each group, 1 for the last, 2 and 3 for those between, and `PICKS` for the others.

    Returns:
        ranks by the number of the call, from 1.
    """
    ranks: dict[int, int] = {}
    for group in groups_of(calls):
        n = len(group)
        picks = dict.fromkeys((0, n - 1, n // 3, 2 * n // 3))
        order = {group[pick]: rank for rank, pick in enumerate(picks)}
        ranks |= {number: order.get(number, PICKS) for number in group}
    return ranks


def groups_of(calls: Sequence[str]) -> list[list[int]]:
    """Numbers of the calls that do the same to the same sort of file, after the same other call before."""
    groups: dict[tuple[str, str], list[int]] = {}
    before = last = ""
    for number, call in enumerate(calls, start=1):
        name = VARYING.sub("#", call)
        if name != last:
            before, last = last, name
        groups.setdefault((before, name), []).append(number)
    return list(groups.values())
