"""One side of `benchmarks.capture`: measures a plain pass and a captured one for each line on stdin.

python -m benchmarks.drivers.capture_sides marlnb|hooks|nnsight|transformer_lens
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

N_ENVS, N_AGENTS, N_FEATURES, N_UNITS, N_CHOICES, CALLS = 8, 3, 18, 256, 5, 300
Call = Callable[[], Any]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(N_FEATURES, N_UNITS),
        nn.Tanh(),
        nn.Linear(N_UNITS, N_UNITS),
        nn.Tanh(),
        nn.Linear(N_UNITS, N_CHOICES),
    )


def marlnb(net: nn.Sequential, x: Tensor) -> tuple[Call, Call]:
    """`capture` as a rollout uses it: opened once, its dict read after each pass."""
    from marlnb.models.adapters.module_network import ModuleNetwork
    from marlnb.models.adapters.policy import ExternalPolicy
    from marlnb.models.hooks.capture import capture
    from marlnb.models.policies.distributions import Categorical
    from marlnb.specs import ActionSpec, GroupSpec, ObservationSpec

    agents = tuple(f"agent_{index}" for index in range(N_AGENTS))
    group = GroupSpec("agent", agents, ObservationSpec((N_FEATURES,)), ActionSpec("discrete", (N_CHOICES,)))
    policy = ExternalPolicy(group, ModuleNetwork(net, N_AGENTS, (N_FEATURES,)), Categorical(N_CHOICES))

    def all_calls() -> None:
        with capture(policy, "agent/actor/hidden_*") as activations:
            for _ in range(CALLS):
                net(x)
                activations["agent/actor/hidden_2"]

    return lambda: net(x), all_calls


def hooks(net: nn.Sequential, x: Tensor) -> tuple[Call, Call]:
    """Hand-written code: a forward hook on each layer that keeps its output, detached."""
    kept: dict[int, Tensor] = {}

    def all_calls() -> None:
        handles = [
            net[layer].register_forward_hook(lambda m, i, out, layer=layer: kept.__setitem__(layer, out.detach()))
            for layer in (1, 3)
        ]
        try:
            for _ in range(CALLS):
                net(x)
                kept[3]
        finally:
            for handle in handles:
                handle.remove()

    return lambda: net(x), all_calls


def nnsight(net: nn.Sequential, x: Tensor) -> tuple[Call, Call]:
    from nnsight import NNsight

    model: Any = NNsight(net)

    def seen() -> Any:
        with model.trace(x):
            first = model[1].output.save()
            second = model[3].output.save()
        return first, second

    def all_calls() -> None:
        for _ in range(CALLS // 10):  # it is slow: a tenth of the calls; times are per call
            seen()

    return lambda: net(x), all_calls


def transformer_lens(net: nn.Sequential, x: Tensor) -> tuple[Call, Call]:
    from transformer_lens import HookedRootModule
    from transformer_lens.hook_points import HookPoint

    class Hooked(HookedRootModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net
            self.hidden_1, self.hidden_2 = HookPoint(), HookPoint()
            self.setup()

        def forward(self, x: Tensor) -> Tensor:
            x = self.hidden_1(self.net[1](self.net[0](x)))
            x = self.hidden_2(self.net[3](self.net[2](x)))
            y: Tensor = self.net[4](x)
            return y

    model = Hooked()

    def all_calls() -> None:
        for _ in range(CALLS):
            model.run_with_cache(x, names_filter=["hidden_1", "hidden_2"])

    return lambda: net(x), all_calls


SIDES = {"marlnb": marlnb, "hooks": hooks, "nnsight": nnsight, "transformer_lens": transformer_lens}


def timed(call: Call) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=SIDES)
    side = parser.parse_args().side
    torch.set_num_threads(1)
    plain, seen = SIDES[side](network(), torch.randn(N_ENVS, N_AGENTS, N_FEATURES))
    calls = CALLS // 10 if side == "nnsight" else CALLS
    for call in (plain, seen):
        call()
    for _ in sys.stdin:
        seconds = {
            "plain": min(timed(lambda: [plain() for _ in range(CALLS)]) for _ in range(3)) / CALLS * 1e6,
            "seen": min(timed(seen) for _ in range(3)) / calls * 1e6,
        }
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
