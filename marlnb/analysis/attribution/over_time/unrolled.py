"""A recurrent actor unrolled over several steps, and its integrated gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

from marlnb.analysis.attribution.explain import sum_by_group
from marlnb.analysis.attribution.forward import actor_scalar, as_policy_input
from marlnb.analysis.attribution.gradients import by_sum
from marlnb.analysis.attribution.outputs import Output
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.rollout import next_recurrent
from marlnb.training.collect.threads import torch_threads


class Unrolled(nn.Module):
    """A recurrent actor over several steps: the agents' scalars at the last step, summed.

    No agent reads another agent's input, so the gradient of the sum is each agent's own.
    """

    def __init__(self, policy: Policy, output: Output, members: Sequence[int]) -> None:
        super().__init__()
        self.policy, self.output, self.members = policy, output, list(members)

    def forward(self, *inputs: Any) -> Tensor:
        """The sum over the explained agents, `[row]`; inputs: as `by_agent`."""
        return self.by_agent(*inputs)[:, self.members].sum(1)

    def by_agent(
        self, observation: Tensor, state: Tensor, action: Tensor, mask: Tensor | None, turns: Tensor | None
    ) -> Tensor:
        """The agents' scalars at the last step, `[row, agent]`.

        Args:
            observation: `[row, lag, agent, feature]`, in order of time.
            state: that enters the first step, `[row, agent, layer, unit]`.
            action: of the last step.
            mask: of the last step.
            turns: `[row, lag, agent]` bool, in turn-based environments; an agent that waits keeps its state. None:
                every agent's state moves on, also that of one that is absent, as in `play`.
        """
        shape = self.policy.group.observation.shape
        flat = observation.view(*observation.shape[:3], *shape)
        steps = as_policy_input(self.policy, flat, self.policy.group).unbind(1)
        memory: Tensor | None = state
        for lag, step in enumerate(steps[:-1]):
            _, after = self.policy.logits(step, recurrent=memory)
            memory = next_recurrent(memory, after, None if turns is None else turns[:, lag])
        return actor_scalar(self.policy, self.output, steps[-1], action, memory, mask)


def explain_by_class(
    unrolled: Unrolled,
    windows: dict[str, Tensor | None],
    baselines: Sequence[Tensor],
    index: np.ndarray,
    n_steps: int,
    groups: Tensor | None,
) -> list[np.ndarray]:
    """As `_explain`, each row and agent against the baseline of its class.

    Args:
        index: `[row, agent]`, the class; -1: not explained.
    """
    merged: list[np.ndarray] = []
    for k, baseline in enumerate(baselines):
        of_class = index == k
        if merged and not of_class.any():
            continue
        arrays = _explain(unrolled, windows, baseline, n_steps, groups)
        merged = merged or [np.full_like(array, np.nan) for array in arrays]
        for result, array in zip(merged, arrays):
            result[of_class] = array[of_class]
    return merged


def windows(source: RowSource, rows: Rows, last: np.ndarray, lookback: int) -> dict[str, Tensor | None]:
    """Windows that end at the rows `last`: the arguments of `Unrolled`; `alive` and `acting`, `[row, lag, agent]`."""
    positions = (last[:, None] + np.arange(-lookback, 1)).ravel()
    window_rows = rows.at(positions)
    (batch,) = source.batches(window_rows, len(window_rows))

    def by_lag(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.unflatten(0, (len(last), -1))

    observation = batch.observations[source.group].float()
    state, action, mask = by_lag(batch.recurrent), by_lag(batch.action), by_lag(batch.action_mask)
    acting, alive = by_lag(batch.acting), by_lag(torch.from_numpy(source.alive(source.group, window_rows)))
    assert state is not None and action is not None
    return {
        "observation": observation.reshape(len(last), lookback + 1, batch.acting.shape[1], -1),
        "state": state[:, 0],
        "action": action[:, -1],
        "mask": None if mask is None else mask[:, -1],
        "turns": None if source.env.simultaneous else acting,
        "alive": alive,
        "acting": acting,
    }


@torch_threads(1)
def _explain(
    unrolled: Unrolled, windows: dict[str, Tensor | None], baseline: Tensor, n_steps: int, groups: Tensor | None
) -> list[np.ndarray]:
    """Values `[row, agent, lag, feature]`, the state's `[row, agent]`, scores; NaN where the agent did not act.

    A step at which an agent was absent is the same in its baseline, so what it did not observe contributes nothing.
    """
    x, state, alive, acting = (windows[name] for name in ("observation", "state", "alive", "acting"))
    assert x is not None and state is not None and alive is not None and acting is not None
    extras = (windows["action"], windows["mask"], windows["turns"])
    baselines = (torch.where(alive.unsqueeze(-1), baseline, x), torch.zeros_like(state))
    values, state_values = by_sum(IntegratedGradients(unrolled)).attribute(
        (x, state), baselines, additional_forward_args=extras, n_steps=n_steps, method="gausslegendre"
    )
    with torch.no_grad():
        score, baseline_score = (unrolled.by_agent(*inputs, *extras) for inputs in ((x, state), baselines))  # type: ignore[arg-type]
    by_lag = values.detach().flip(1).transpose(1, 2)
    by_lag = by_lag if groups is None else sum_by_group(by_lag, groups)
    results = [by_lag, state_values.detach().flatten(2).sum(-1), score, baseline_score]
    arrays = [x.float().numpy().copy() for x in results]
    for array in arrays:
        array[~acting[:, -1].numpy()] = np.nan
    return arrays
