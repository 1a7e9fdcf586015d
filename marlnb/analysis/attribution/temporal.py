"""attribute_over_time: what an output owes to the observations of the steps before, through a recurrent state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

from marlnb.analysis.attribution.feature_groups import Features, feature_names, group_features, numbers
from marlnb.analysis.attribution.forward import actor_scalar, as_read
from marlnb.analysis.attribution.methods import added
from marlnb.analysis.attribution.outputs import Output, Target, To, resolve_output
from marlnb.analysis.attribution.setup import chosen_policy, members_of, tolerance
from marlnb.analysis.attribution.temporal_result import TemporalAttribution
from marlnb.analysis.data.rows import RowBatch, Rows, RowSource
from marlnb.errors import AnalysisError, ShapeError
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.threads import torch_threads

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

_EXAMPLES = 16384  # rows times quadrature points that go through the network at once


class Unrolled(nn.Module):
    """`[row, lag, agent, feature]` and the state that enters the first step -> `[row]`: the agents' scalars at the last
    step, added; no agent reads another's, so each one's gradient is its own."""

    def __init__(self, policy: Policy, output: Output, members: Sequence[int]) -> None:
        super().__init__()
        self.policy, self.output, self.members = policy, output, list(members)

    def forward(
        self, observation: Tensor, state: Tensor, action: Tensor, mask: Tensor | None, acting: Tensor
    ) -> Tensor:
        """state `[row, agent, layer, unit]`; action, mask of the last step; acting `[row, lag, agent]`: the state of an
        agent that does not act stays."""
        return self.by_agent(observation, state, action, mask, acting)[:, self.members].sum(1)

    def by_agent(
        self, observation: Tensor, state: Tensor, action: Tensor, mask: Tensor | None, acting: Tensor
    ) -> Tensor:
        """`[row, agent]`."""
        shape = self.policy.group.observation.shape
        seen = as_read(self.policy, observation.view(*observation.shape[:3], *shape), self.policy.group)
        steps = seen.unbind(1)
        for step, takes in zip(steps[:-1], acting.unbind(1)):
            _, after = self.policy.logits(step, recurrent=state)
            assert after is not None
            state = torch.where(takes[..., None, None], after, state)
        return actor_scalar(self.policy, self.output, steps[-1], action, state, mask)


def attribute_over_time(
    recording: Recording,
    *,
    group: str,
    to: To = "action",
    target: Target = None,
    agent: str | None = None,
    t: int | Sequence[int] | None = None,
    lookback: int = 8,
    baseline: Literal["mean", "start"] | np.ndarray = "mean",
    features: Features = "each",
    n_steps: int = 50,
    policies: Mapping[str, Policy] | None = None,
    episodes: Sequence[int] | None = None,
    checkpoint: int | None = None,
) -> TemporalAttribution:
    """Integrated gradients of an output at one step by the observations of that step and of the `lookback` before it.

    The network is unrolled from the recorded state that entered the first of these steps; what that state itself
    contributes, compared with the zero state of an episode's beginning, stands beside, so that all adds up.

    Args:
        t: the step explained, or several; None: each episode's last. Episodes that are shorter, and steps that come
            before `lookback`, are left out.
        baseline: what each step's observation is compared with: the mean over the recording, the mean of episodes'
            first steps, or an array that broadcasts to `[agent, feature]`.
        Others as for `attribute`.
    Returns:
        values `[row, agent, lag, feature]`, lag 0 the step itself, and the state's share `[row, agent]`.
    Raises:
        AnalysisError: a feed-forward policy, agents that hear one another, an output of the critic, a recording without
            every step, or no step that is late enough.
    """
    source = RowSource(recording, group)
    spec = source.env.group(group)
    output = resolve_output(spec.action, to, target)
    policy = chosen_policy(policies if policies is not None else source.policies(checkpoint), group, output, source)
    _check(policy, output, lookback, n_steps)
    rows = source.rows(episodes, checkpoint)
    if not source.keeps_every_step(rows):
        raise AnalysisError(f"{recording.path.name} lacks steps (it was recorded with every=): nothing can be unrolled")
    members = members_of(spec, agent, policy, output, None)
    last = _explained(rows, t, lookback)
    recorded = source.rows(None, checkpoint)
    reference = _reference(source, recorded, baseline, spec.n_agents, spec.observation.size)
    groups = None if features == "each" else group_features(feature_names(spec), features)
    names = feature_names(spec) if groups is None else tuple(groups)
    places = None if groups is None else torch.from_numpy(numbers(groups, spec.observation.size))
    unrolled, parts = Unrolled(policy, output, members), []
    at_once = max(1, _EXAMPLES // (n_steps * spec.n_agents))
    for start in range(0, len(last), at_once):
        windows = _windows(source, rows, last[start : start + at_once], lookback)
        parts.append(_explain(unrolled, windows, reference, n_steps, places))
    values, state, score, before = (np.concatenate(found) for found in zip(*parts))
    chosen = list(members)
    return TemporalAttribution(
        values=values[:, chosen], state_values=state[:, chosen], score=score[:, chosen],
        baseline_score=before[:, chosen], episode=rows.episode[last], t=rows.t[last],
        agents=tuple(spec.agents[k] for k in chosen), feature_names=names, group=group, to=to,
        target=output.describe(spec.action), units=output.units, n_steps=n_steps,
        baseline_name=baseline if isinstance(baseline, str) else "given", tolerance=tolerance(policy, output),
        origin=source.origin(),
    )  # fmt: skip


def _check(policy: Policy, output: Output, lookback: int, n_steps: int) -> None:
    name = policy.group.name
    if lookback < 1 or n_steps < 1:
        raise AnalysisError(f"lookback and n_steps must be at least 1; got {lookback} and {n_steps}")
    if output.of_critic:
        raise AnalysisError("what is unrolled is the actor: to must be action, logit, log_prob or a unit of the actor")
    if policy.recurrent_shape is None:
        raise AnalysisError(
            f"the policy of {name!r} remembers nothing: its output depends on the step's own observation alone, which "
            "attribute explains"
        )
    if policy.cross_agent:
        raise AnalysisError(f"the agents of {name!r} hear one another: their states cannot be unrolled one by one")


def _explained(rows: Rows, t: int | Sequence[int] | None, lookback: int) -> np.ndarray:
    """Places of the rows explained: each with `lookback` rows of its episode before it."""
    if t is None:
        _, first, count = np.unique(rows.episode, return_index=True, return_counts=True)
        places = first + count - 1
    else:
        places = np.flatnonzero(np.isin(rows.t, np.atleast_1d(t)))
    late = places[rows.t[places] >= lookback]
    if not len(late):
        longest = int(rows.t.max())
        asked = "" if t is None else f" t={t}"
        raise AnalysisError(f"no step{asked} with {lookback} steps before it; episodes have t from 0 to {longest}")
    absent = sorted({int(x) for x in ([] if t is None else np.atleast_1d(t))} - set(rows.t[late].tolist()))
    if absent:
        longest = int(rows.t.max())
        raise AnalysisError(
            f"no episode has the steps t={absent} with {lookback} before them; episodes have t from 0 to {longest}"
        )
    return late


def _reference(source: RowSource, rows: Rows, baseline: Any, n_agents: int, n_features: int) -> Tensor:
    if isinstance(baseline, str) and baseline in ("mean", "start"):
        first = rows.t == 0
        chosen = rows if baseline == "mean" else Rows(rows.index[first], rows.episode[first], rows.t[first])
        return source.mean_observation(source.group, chosen)
    if isinstance(baseline, str):
        raise AnalysisError(f"no baseline {baseline!r}; valid: 'mean', 'start' or an array")
    given = torch.as_tensor(np.asarray(baseline), dtype=torch.float32)
    try:
        return given.broadcast_to(n_agents, n_features)
    except RuntimeError:
        raise ShapeError(
            f"a baseline for {source.group!r} must broadcast to [agent, feature] = {[n_agents, n_features]}; got "
            f"{list(given.shape)}"
        ) from None


def _windows(source: RowSource, rows: Rows, last: np.ndarray, lookback: int) -> dict[str, Tensor | None]:
    """Stretches that end at the rows `last`: observations and acting `[row, lag, ...]`, the rest at their ends."""
    places = last[:, None] + np.arange(-lookback, 1)
    flat = places.ravel()
    needed = Rows(rows.index[flat], rows.episode[flat], rows.t[flat])
    (moments,) = source.batches(needed, len(needed))
    by_lag = {name: _unflattened(moments, name, len(last)) for name in ("action", "acting", "recurrent", "action_mask")}
    observation = (
        moments.observations[source.group].float().reshape(len(last), lookback + 1, moments.acting.shape[1], -1)
    )
    state, action, mask = (by_lag[name] for name in ("recurrent", "action", "action_mask"))
    assert state is not None and action is not None
    return {
        "observation": observation,
        "state": state[:, 0],
        "action": action[:, -1],
        "mask": None if mask is None else mask[:, -1],
        "acting": by_lag["acting"],
    }


def _unflattened(moments: RowBatch, name: str, n_rows: int) -> Tensor | None:
    x = getattr(moments, name)
    return None if x is None else x.unflatten(0, (n_rows, -1))


@torch_threads(1)
def _explain(
    unrolled: Unrolled, windows: dict[str, Tensor | None], reference: Tensor, n_steps: int, groups: Tensor | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Values `[row, agent, lag, feature]`, the state's `[row, agent]`, scores; NaN where the agent did not act."""
    x, state, acting = windows["observation"], windows["state"], windows["acting"]
    assert x is not None and state is not None and acting is not None
    held = (windows["action"], windows["mask"], acting)
    start = (reference.expand_as(x).contiguous(), torch.zeros_like(state))
    values, of_state = IntegratedGradients(unrolled).attribute(
        (x, state), start, additional_forward_args=held, n_steps=n_steps, method="gausslegendre"
    )
    with torch.no_grad():
        score, before = (unrolled.by_agent(*given, *held) for given in ((x, state), start))  # type: ignore[arg-type]
    by_lag = values.detach().flip(1).transpose(1, 2)
    by_lag = by_lag if groups is None else added(by_lag, groups)
    results = [by_lag, of_state.detach().flatten(2).sum(-1), score, before]
    absent = ~acting[:, -1].numpy()
    arrays = [x.float().numpy().copy() for x in results]
    for array in arrays:
        array[absent] = np.nan
    return arrays[0], arrays[1], arrays[2], arrays[3]
