"""The check that `sequence` of a network is its `forward` step by step."""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.models.networks.building.dry_run import largest_difference, shown
from marlnb.models.networks.network import Network

N_STEPS = 3
TOLERANCE = 1e-4


def sequence_problem(network: Network, x: Tensor, *, compare_values: bool) -> str:
    """What is wrong with the network's `sequence`; empty if nothing is.

    A recurrent network starts from the zero state, then from another one, then episodes begin and agents wait: the
    first case that differs shows what `sequence` leaves out.

    Args:
        x: `[row, agent, in]`.
        compare_values: False: shapes are checked, and no values, as of a network that is random.
    """
    x = torch.stack([x.roll(t, 0) for t in range(N_STEPS)], dim=1)
    rows, _, n_agents, _ = x.shape
    row_and_time = torch.arange(rows, device=x.device)[:, None] + torch.arange(N_STEPS, device=x.device)
    is_init = row_and_time % 3 == 1
    acting = (row_and_time[..., None] + torch.arange(n_agents, device=x.device)) % 2 == 0
    never, everyone, state = torch.zeros_like(is_init), torch.ones_like(acting), network(x[:, 0])[1]
    cases = (
        ("from the zero state", None, never, everyone),
        ("from another state (`recurrent`)", state, never, everyone),
        ("where episodes begin (`is_init`): the state is zero before these steps", state, is_init, everyone),
        ("where agents wait (`acting` is False): their state stays unchanged", state, is_init, acting),
    )
    for case, recurrent, begins, acts in cases if state is not None else cases[-1:]:
        expected, expected_states = network.step_by_step(x, recurrent, begins, acts)
        returned = network.sequence(x.clone(), recurrent, begins, None if acts is everyone else acts)
        if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], Tensor)):
            return f"must return (outputs, states), with None as the states if it has none; got {shown(returned)}"
        outputs, states = returned
        if outputs.shape != expected.shape:
            return f"must return outputs [env, time, agent, feature] = {list(expected.shape)}; got {shown(outputs)}"
        if expected_states is None and states is not None:
            return f"must return None as its second value, as forward does; got {shown(states)}"
        if expected_states is not None and not (isinstance(states, Tensor) and states.shape == expected_states.shape):
            return (
                "must return the state after each step, [env, time, agent, layer, unit] = "
                f"{list(expected_states.shape)}, as its second value; got {shown(states)}"
            )
        compared = [("outputs", outputs[acts], expected[acts])]
        if states is not None and expected_states is not None:
            compared.append(("states", states, expected_states))
        for what, values, expected_values in compared if compare_values else ():
            if (difference := largest_difference(values, expected_values)) > TOLERANCE:
                where = f" {case}" if states is not None else ""
                return (
                    "must return what forward returns step by step; its "
                    f"{what} differ by up to {difference:.1%}{where}. Without a `sequence` of its own, a network is "
                    "run step by step"
                )
    return ""
