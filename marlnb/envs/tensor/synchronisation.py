"""Finds the lines of a game that would wait for a GPU, without a GPU.

A GPU works asynchronously. A line that needs a tensor's value in Python waits until the GPU has computed it, so the
step is slow and cannot be captured as a CUDA graph. The check runs on a CPU: it sees each call on tensors before it
happens.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from marlnb.envs.steps import random_actions
from marlnb.envs.vector import VectorEnv
from marlnb.errors import EnvError

BRANCH = "decides by a tensor's value in Python, so it waits for the device; torch.where selects without a branch"
VALUE = "reads a tensor's value in Python, so it waits for the device; keep it as a tensor"
SIZE = "gives a shape that depends on values, so it waits for the device; use torch.where, a mask, or gather"
CREATE = "copies from the host to the device at every step; compute it from tensors, or use torch.full(..., device=...)"
ON_HOST = "creates a tensor on the CPU; give it device=, that of `draw` or of a tensor of the state"
RANDOM = "draws numbers that are no function of the episode's seed; use draw.uniform or draw.integers"

_ADVICE_BY_NAME: Mapping[str, str] = {
    **dict.fromkeys(("__bool__", "equal", "allclose", "is_nonzero"), BRANCH),
    **dict.fromkeys(
        ("item", "tolist", "numpy", "__array__", "cpu", "__int__", "__float__", "__index__", "__format__"), VALUE
    ),
    **dict.fromkeys(("nonzero", "argwhere", "unique", "unique_consecutive", "masked_select", "masked_scatter"), SIZE),
    **dict.fromkeys(("tensor", "as_tensor", "from_numpy"), CREATE),
    **dict.fromkeys(("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"), RANDOM),
    **dict.fromkeys(("multinomial", "bernoulli", "normal", "uniform_", "normal_", "random_", "bernoulli_"), RANDOM),
}
_FACTORIES = ("zeros", "ones", "full", "empty", "arange", "eye", "linspace")
_ADVICE_BY_OPERATION: Mapping[str, str] = {
    "_local_scalar_dense": VALUE, "nonzero": SIZE, "masked_select": SIZE, "_unique2": SIZE, "repeat_interleave": SIZE,
    "is_nonzero": BRANCH, "equal": BRANCH,
}  # fmt: skip
_LIBRARIES = ("/torch/", "/marlnb/envs/tensor/synchronisation.py")


class SynchronisationError(EnvError):
    """A line needs a tensor's value on the host, so that it waits for the device."""


def check_synchronisation(env: VectorEnv, *, seed: int = 0, steps: int = 2) -> None:
    """Plays a few steps, as a GPU would run them, and raises at the first line that waits for the device.

    Args:
        env: one that can restart by mask.
    Raises:
        SynchronisationError: names file, line, call and what to use instead.
    """
    by_mask, env.restarts_by_mask = env.restarts_by_mask, True
    generator = torch.Generator().manual_seed(seed)
    try:
        step = env.reset(seed)
        for _ in range(steps):
            actions = random_actions(env, step, generator)
            with no_synchronisation():
                step = env.step(actions)
    finally:
        env.restarts_by_mask = by_mask
        env.reset(seed)


@contextmanager
def no_synchronisation(*, random: bool = False) -> Iterator[None]:
    """Code in this `with` raises SynchronisationError where it would wait for a GPU; tensors may be on the CPU.

    Args:
        random: allow random numbers of torch's generators.
    """
    operations = _Operations()
    with operations, _Functions(operations, random):
        yield


class _Functions(TorchFunctionMode):
    """Sees calls by their Python names."""

    def __init__(self, operations: _Operations, random: bool) -> None:
        super().__init__()
        self._operations, self._random = operations, random

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if (advice := self._advice(name, func, args, kwargs)) is not None:
            raise _error(resolve_name(func) or name, advice)
        if name == "one_hot" and (len(args) > 1 or "num_classes" in kwargs):
            with self._operations.pause():  # on a CPU it reads the values to check them; on a GPU it does not
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def _advice(self, name: str, func: Any, args: Any, kwargs: Any) -> str | None:
        if name in _FACTORIES and "device" not in kwargs:
            return ON_HOST
        if name == "where" and len(args) + len(kwargs) == 1:
            return SIZE
        if name == "to" and any(value == "cpu" for value in (*args[1:], *kwargs.values()) if isinstance(value, str)):
            return VALUE
        advice = _ADVICE_BY_NAME.get(name)
        return None if advice is RANDOM and self._random else advice


class _Operations(TorchDispatchMode):
    """Sees the operations that calls are made of, also those inside of torch's own functions."""

    def __init__(self) -> None:
        super().__init__()
        self._paused = False

    @contextmanager
    def pause(self) -> Iterator[None]:
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        advice = _ADVICE_BY_OPERATION.get(name)
        if name in ("index", "index_put_", "index_put") and any(_is_mask(index) for index in args[1]):
            name, advice = "a boolean index", SIZE
        if name == "lift_fresh" and args[0].ndim:
            name, advice = "an index that is a list", CREATE
        if advice is not None and not self._paused:
            raise _error(name, advice)
        return func(*args, **(kwargs or {}))


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _error(call: str, advice: str) -> SynchronisationError:
    frame = _source(sys._getframe(1))
    path, number = frame.f_code.co_filename, frame.f_lineno
    line = linecache.getline(path, number).strip()
    where = f"{path}, line {number}, in {frame.f_code.co_name}"
    return SynchronisationError(f"{where}: {call} {advice}:\n    {line}")


def _source(frame: FrameType) -> FrameType:
    """The innermost call that is neither in torch nor here."""
    current: FrameType | None = frame
    while current is not None:
        if not any(part in current.f_code.co_filename for part in _LIBRARIES):
            return current
        current = current.f_back
    return frame
