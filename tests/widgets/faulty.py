"""An environment that raises after some steps."""

from __future__ import annotations

from typing import Any

from mpe2 import simple_spread_v3
from pettingzoo.utils import BaseParallelWrapper


class Faulty(BaseParallelWrapper):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.steps = 0

    def step(self, actions: Any) -> Any:
        self.steps += 1
        if self.steps > 20:
            raise ValueError("Boom")
        return super().step(actions)


def make() -> Any:
    return Faulty(simple_spread_v3.parallel_env(max_cycles=25))
