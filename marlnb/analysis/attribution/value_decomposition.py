"""decompose_value: each agent's contribution to a group's Q value, which a mixer (VDN, QMIX) computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from captum.attr import IntegratedGradients
from torch import Tensor

from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.convergence import TOLERANCE, not_converged, relative_to, unexplained_share
from marlnb.analysis.attribution.gradients import by_sum
from marlnb.analysis.attribution.outputs import Output, pick
from marlnb.analysis.attribution.task import policy_of
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.results import Result, mean_of_finite
from marlnb.errors import AnalysisError
from marlnb.models.adapters.policy import ExternalPolicy
from marlnb.models.networks.mixers import Mixer, SumMixer
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.q_policy import QPolicy
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.training.collect.threads import torch_threads

Of = Literal["taken", "best"]


@dataclass(frozen=True, eq=False, repr=False)
class ValueDecomposition(Result):
    """A group's Q value, decomposed into the agents' contributions.

    All values are in reward. Where rewards were standardised for learning, an agent's Q lacks their mean, which is in
    `rest`.

    Attributes:
        q: `[row, agent]`, the agent's Q; NaN where it was not acting, for which a mixer uses 0.
        weight: `[row, agent]`, d total / d q.
        share: `[row, agent]`, the agent's contribution: sum of shares + rest = total.
        total: `[row]`, the group's Q.
        rest: `[row]`, the group's Q with every agent's Q at its baseline.
        baseline: `[agent]`, the Q that each agent's is compared with.
        episode: `[row]`.
        t: `[row]`.
        agents: of the group.
        group: its name.
        mixer: sum or monotonic.
        of: taken (the Q of the action taken) or best.
        baseline_name: zero or mean.
        origin: recording, checkpoint, experiment as JSON, and code version.
    """

    q: np.ndarray
    weight: np.ndarray
    share: np.ndarray
    total: np.ndarray
    rest: np.ndarray
    baseline: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    agents: tuple[str, ...]
    group: str
    mixer: str
    of: str
    baseline_name: str
    origin: Mapping[str, Any] = field(default_factory=dict)

    units = "reward"

    @property
    def convergence_delta(self) -> np.ndarray:
        """`[row]`: sum of shares + rest - total."""
        return np.nansum(self.share, axis=1) + self.rest - self.total

    @property
    def relative_delta(self) -> np.ndarray:
        """`[row]`: |convergence_delta| / sum |share|; the sum is at least a thousandth of its mean."""
        return relative_to(np.nansum(np.abs(self.share), axis=1), self.convergence_delta)

    @property
    def warnings(self) -> tuple[str, ...]:
        messages = []
        unexplained = unexplained_share(self.relative_delta)
        if not np.isfinite(self.total).all():
            messages.append("some totals are not finite")
        elif unexplained > TOLERANCE:
            messages.append(not_converged(unexplained, TOLERANCE, "raise n_steps"))
        if np.isfinite(self.q).any() and np.nanstd(self.q) == 0:
            messages.append("no agent's Q ever varies")
        return tuple(messages)

    def table(self) -> pd.DataFrame:
        """By agent: mean Q, weight and share over rows, and `part`, its mean |share| as a part of all agents' sum.

        NaN for an agent that never acted.
        """
        size = mean_of_finite(np.abs(self.share))
        columns = {name: mean_of_finite(getattr(self, name)) for name in ("q", "weight", "share")}
        with np.errstate(invalid="ignore"):
            return pd.DataFrame({"agent": self.agents, **columns, "part": size / np.nansum(size)})

    def to_json(self) -> dict[str, Any]:
        records = self.table().to_dict("records")
        return self._selected_json("group", "mixer", "of", "baseline_name", "warnings", agents=records, **self.origin)

    @property
    def verdict(self) -> str:
        parts = ", ".join(f"{line.agent} {line.part:.0%}" for line in self.table().itertuples())
        unexplained = unexplained_share(self.relative_delta)
        added = "a sum, so shares are exact" if self.mixer == "sum" else (
            f"at 95% of the steps all but {unexplained:.1%} of the shares adds up"
        )  # fmt: skip
        return (
            f"The Q value of {self.group} ({self.mixer} mixer, baseline: {self.baseline_name}) consists of {parts}, by "
            f"mean size; {added}; {len(self.total)} steps of {len(np.unique(self.episode))} episodes."
        )

    def _repr_table(self) -> pd.DataFrame:
        return self.table()


def decompose_value(
    recording: RecordingLike,
    group: str,
    *,
    of: Of = "taken",
    baseline: Literal["zero", "mean"] = "zero",
    n_steps: int = AttributionConfig.n_steps,
    policies: Mapping[str, Policy] | None = None,
    episodes: Sequence[int] | None = None,
    checkpoint: int | None = None,
    batch_size: int = 4096,
) -> ValueDecomposition:
    """Each agent's contribution to the group's Q at every row, and the mixer's derivative by it.

    VDN's mixer is a sum, so an agent's share is its Q. QMIX's mixer f is decomposed by integrated gradients over the
    agents' Q values q with the baseline q', in the state s of that row:

        share_i = (q_i - q'_i) integral_0^1 df(q' + a (q - q'), s) / dq_i da

    Args:
        of: the Q of the action taken, or of the best one.
        baseline: zero, which the mixer itself uses for an agent that does not act; or each agent's mean over the
            recording.
    Raises:
        AnalysisError: the group has no mixer.
    Source: Sunehag et al. 2017 (arXiv:1706.05296); Rashid et al. 2018 (arXiv:1803.11485); Sundararajan et al. 2017
        (arXiv:1703.01365), computed by captum.
    """
    recording = opened_recording(recording)
    if of not in ("taken", "best") or baseline not in ("zero", "mean"):
        raise AnalysisError(f"of must be 'taken' or 'best', baseline 'zero' or 'mean'; got {of!r} and {baseline!r}")
    source = RowSource(recording, group)
    policy = policy_of(source, policies, checkpoint)
    if not isinstance(policy, QPolicy | ExternalPolicy) or policy.mixer is None:
        raise AnalysisError(
            f"the policy of {group!r} ({type(policy).__name__}) has no mixer; policies of vdn and qmix have one"
        )
    source.check_recorded("all" if set(policy.mixer.reads) - {group} else "group")
    rows = source.rows(episodes, checkpoint)
    batches = _by_batch(source, rows, policy, of, batch_size)
    q, acting = (torch.cat(tensors) for tensors in list(zip(*batches))[:2])
    baseline_q = torch.zeros(q.shape[1])
    if baseline == "mean":
        recorded = batches
        if episodes is not None:  # a baseline must not depend on which rows are decomposed
            recorded = _by_batch(source, source.rows(None, checkpoint), policy, of, batch_size)
        sums = ((part.sum(0), acts.sum(0)) for part, acts, _ in recorded)
        total_q, n_acting = (torch.stack(parts).sum(0) for parts in zip(*sums))
        baseline_q = total_q / n_acting.clamp(min=1)
    parts = [_decompose(policy.mixer, *batch, baseline_q, n_steps) for batch in batches]
    share, weight, total, rest = (torch.cat(tensors) for tensors in zip(*parts))
    share, q, baseline_q = (policy.value_scale * values for values in (share, q, baseline_q))
    total, rest = policy.to_reward_units(total), policy.to_reward_units(rest)
    for values in (share, weight, q):
        values[~acting] = torch.nan
    return ValueDecomposition(
        q.numpy(), weight.numpy(), share.numpy(), total.numpy(), rest.numpy(), baseline_q.numpy(), rows.episode, rows.t,
        policy.group.agents, group, "sum" if isinstance(policy.mixer, SumMixer) else "monotonic", of, baseline,
        source.origin(checkpoint),
    )  # fmt: skip


@torch_threads(1)
def _by_batch(
    source: RowSource, rows: Rows, policy: QPolicy | ExternalPolicy, of: Of, batch_size: int
) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """By batch: Q `[row, agent]`, 0 for agents that do not act; who acts; and what else the mixer reads."""
    assert policy.mixer is not None
    needs_state = bool(policy.mixer.reads) or source.env.state_shape is not None
    parts = []
    for batch in source.batches(rows, batch_size, needs_state=needs_state):
        with torch.no_grad():
            q, _ = policy.logits(batch.observations[policy.group.name], recurrent=batch.recurrent)
            if of == "best":
                q = policy.distribution.mask(q, batch.action_mask).amax(-1)
            else:
                q = pick(q, batch.action, policy.group.action, Output("action"))
            mixer_inputs = policy.mixer.inputs(batch.observations, batch.state)
        parts.append((torch.where(batch.acting, q, 0), batch.acting, mixer_inputs))
    return parts


@torch_threads(1)
def _decompose(
    mixer: Mixer, q: Tensor, acting: Tensor, mixer_inputs: Tensor | None, baseline: Tensor, n_steps: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Shares and weights `[row, agent]`, totals and rests `[row]`."""
    start = baseline * acting
    with torch.no_grad():
        total, rest = mixer(q, mixer_inputs), mixer(start, mixer_inputs)
    if isinstance(mixer, SumMixer):
        return q - start, torch.ones_like(q), total, rest
    point = q.clone().requires_grad_()
    (weight,) = torch.autograd.grad(mixer(point, mixer_inputs).sum(), point)
    share = by_sum(IntegratedGradients(mixer)).attribute(
        q, start, additional_forward_args=(mixer_inputs,), n_steps=n_steps, method="gausslegendre"
    )
    return share.detach(), weight, total, rest
