"""Lines that would wait for a GPU are found on a CPU, and named."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from marlnb.envs.contract import check_vector_env
from marlnb.envs.tensor.synchronisation import SynchronisationError, check_synchronisation
from tests.envs.phases import Phases
from tests.examples.batched_environment import Chase

WAITING: dict[str, Callable[[Any, Any], object]] = {
    "torch.Tensor.__bool__": lambda x, a: 1 if x.max() > 2 else 0,
    "torch.Tensor.item": lambda x, a: x.sum().item(),
    "torch.Tensor.tolist": lambda x, a: x.tolist(),
    "torch.Tensor.numpy": lambda x, a: x.numpy(),
    "torch.Tensor.cpu": lambda x, a: x.cpu(),
    "torch.Tensor.to": lambda x, a: x.to("cpu"),
    "torch.Tensor.__float__": lambda x, a: float(x[0, 0, 0]),
    "a boolean index": lambda x, a: x[x > 0.5],
    "torch.Tensor.nonzero": lambda x, a: (x > 0.5).nonzero(),
    "an index that is a list": lambda x, a: x[:, [0, 1]],
    "torch.where": lambda x, a: torch.where(x > 0.5),
    "torch.tensor": lambda x, a: torch.tensor([1.0, 2.0]),
    "torch.zeros": lambda x, a: torch.zeros(2),
    "torch.rand": lambda x, a: torch.rand(2),
    "_local_scalar_dense": lambda x, a: torch.nn.functional.one_hot(a),
}
ALLOWED: list[Callable[[Any, Any], object]] = [
    lambda x, a: torch.where(x > 0.5, x, 0),
    lambda x, a: torch.nn.functional.one_hot(a, 5),
    lambda x, a: torch.zeros(2, device=x.device),
    lambda x, a: x.to(torch.float64),
    lambda x, a: torch.eye(5, device=x.device)[a],
    lambda x, a: [row.sum() for row in x],
]


@dataclass(frozen=True)
class Faulty(Chase):
    name: ClassVar[str] = "test/faulty"
    line: Callable[[Any, Any], object] = lambda x, a: None

    def step(self, state, action, draw):
        self.line(state["position"], action["seeker"])
        return super().step(state, action, draw)


class FixedStart(Phases):
    """Episodes start in phase 0."""

    name = "test/fixed_start"
    fixed_start = True


@pytest.mark.parametrize("call", WAITING)
def test_points_to_the_line(call: str) -> None:
    with pytest.raises(SynchronisationError) as error:
        check_synchronisation(Faulty(line=WAITING[call]).build(2))
    number = inspect.getsourcelines(WAITING[call])[1]
    assert f"{__file__}, line {number}, in <lambda>: {call} " in str(error.value)
    assert "lambda x, a:" in str(error.value)


@pytest.mark.parametrize("line", ALLOWED)
def test_lets_pass_what_does_not_wait(line: Callable[[Any, Any], object]) -> None:
    check_synchronisation(Faulty(line=line).build(2))


def test_a_fixed_start_stays_as_it_is() -> None:
    env = FixedStart(max_steps=3).build(2)
    env.reset(0)
    env.reset(0)
    check_synchronisation(env)
    env.reset(0)
    assert env.state["time"].tolist() == [0, 0]


def test_is_part_of_the_contract() -> None:
    with pytest.raises(SynchronisationError, match=r"torch\.where selects"):
        check_vector_env(Faulty(line=WAITING["torch.Tensor.__bool__"]).build)
