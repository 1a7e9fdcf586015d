"""decompose_value: what each agent's Q adds to the group's, where a mixer (VDN, QMIX) makes one of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from captum.attr import IntegratedGradients
from torch import Tensor

from marlnb.analysis.attribution.outputs import Output, pick
from marlnb.analysis.attribution.result import TOLERANCE
from marlnb.analysis.attribution.setup import check_recorded
from marlnb.analysis.data.rows import Moments, Rows, RowSource
from marlnb.analysis.plain_json import plain_json
from marlnb.analysis.results import doubts, shown_as_html
from marlnb.errors import AnalysisError, unknown
from marlnb.models.adapters.policy import ForeignPolicy
from marlnb.models.networks.mixers import Mixer, SumMixer
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.q_policy import QPolicy
from marlnb.training.collect.threads import torch_threads

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

Of = Literal["taken", "best"]


@dataclass(frozen=True, eq=False)
class ValueShares:
    """A group's Q, taken apart.

    Attributes:
        q, weight, share: `[row, agent]`: the agent's own Q; d total / d its Q; what it adds to the total. NaN where it
            was not acting: a mixer takes such an agent's Q for 0.
        total, rest: `[row]`, the group's Q, and what is left of it where every agent's Q is at its baseline. Shares and
            rest add up to the total. All in reward; where rewards were standardised for learning, an agent's Q is less
            their mean, which is in the rest.
        baseline: `[agent]`, the Q that each agent's is compared with.
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
        """`[row]`: shares and rest together minus the total."""
        return np.nansum(self.share, axis=1) + self.rest - self.total

    @property
    def relative_delta(self) -> np.ndarray:
        """`[row]`: of the sum of the shares' sizes, at least a thousandth of its mean."""
        size = np.nansum(np.abs(self.share), axis=1)
        return np.abs(self.convergence_delta) / np.maximum(size, max(1e-3 * float(size.mean()), 1e-30))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why this must not be trusted; empty where nothing is known against it."""
        found = []
        worst = float(np.quantile(self.relative_delta, 0.95))
        if not np.isfinite(self.total).all():
            found.append("some totals are not finite")
        elif worst > TOLERANCE:
            found.append(
                f"did not converge: at one row of twenty {worst:.0%} or more of the total is unexplained "
                f"(tolerated: {TOLERANCE:.0%}); raise n_steps"
            )
        if np.isfinite(self.q).any() and np.nanstd(self.q) == 0:
            found.append("no agent's Q ever varies")
        return tuple(found)

    def table(self) -> pd.DataFrame:
        """By agent: means of Q, weight and share over rows, and the share of the sum of the shares' sizes; NaN for an
        agent that never acted."""
        size = _mean_of_known(np.abs(self.share))
        columns = {name: _mean_of_known(getattr(self, name)) for name in ("q", "weight", "share")}
        with np.errstate(invalid="ignore"):
            return pd.DataFrame({"agent": self.agents, **columns, "part": size / np.nansum(size)})

    def to_json(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("group", "mixer", "of", "baseline_name")}
        agents = self.table().to_dict("records")
        found: dict[str, Any] = plain_json({**told, "agents": agents, "warnings": list(self.warnings), **self.origin})
        return found

    def __repr__(self) -> str:
        flag = doubts(self.warnings)
        parts = ", ".join(f"{line.agent} {line.part:.0%}" for line in self.table().itertuples())
        return f"ValueShares({self.group}, {self.mixer}: {parts}, {len(self.total)} rows{flag})"

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings, self.table())


def decompose_value(
    recording: Recording,
    group: str,
    *,
    of: Of = "taken",
    baseline: Literal["zero", "mean"] = "zero",
    n_steps: int = 50,
    policies: Mapping[str, Policy] | None = None,
    episodes: Sequence[int] | None = None,
    checkpoint: int | None = None,
    batch_size: int = 4096,
) -> ValueShares:
    """Each agent's part of the group's Q at every row, and how much the mixer minds it.

    VDN's total is the sum, so an agent's share is its Q. QMIX's is shared out by integrated gradients over the agents'
    Q values, in the state of that row.

    Args:
        of: the Q of the action that was taken, or of the best one.
        baseline: the Q that each agent's is compared with: zero, which is what the mixer itself takes for an agent that
            does not act; or each agent's mean over the recording.
    Raises:
        AnalysisError: the group has no mixer.
    Source: Sunehag et al. 2017 (arXiv:1706.05296); Rashid et al. 2018 (arXiv:1803.11485); the quadrature, captum.
    """
    if of not in ("taken", "best") or baseline not in ("zero", "mean"):
        raise AnalysisError(f"of is 'taken' or 'best', baseline 'zero' or 'mean'; got {of!r} and {baseline!r}")
    source = RowSource(recording, group)
    known = policies if policies is not None else source.policies(checkpoint)
    if group not in known:
        raise AnalysisError(unknown("group with a policy", group, known))
    policy = known[group]
    if not isinstance(policy, QPolicy | ForeignPolicy) or policy.mixer is None:
        raise AnalysisError(f"the policy of {group!r} ({type(policy).__name__}) has no mixer; vdn and qmix train such")
    check_recorded(source, policy)
    rows = source.rows(episodes, checkpoint)
    every = _by_batch(source, rows, policy, of, batch_size)
    q = torch.cat([part for part, *_ in every])
    acting = torch.cat([part for _, part, *_ in every])
    compared = torch.zeros(q.shape[1])
    if baseline == "mean":
        recorded = every
        if episodes is not None:  # what is compared with does not depend on which rows are taken apart
            recorded = _by_batch(source, source.rows(None, checkpoint), policy, of, batch_size)
        acted = sum(part.sum(0) for _, part, *_ in recorded)
        compared = torch.stack([part.sum(0) for part, *_ in recorded]).sum(0) / torch.as_tensor(acted).clamp(min=1)
    found = [_shares(policy.mixer, *part, compared, n_steps) for part in every]
    share, weight, total, rest = (torch.cat(parts) for parts in zip(*found))
    share, own, compared = (policy.value_scale * values for values in (share, q, compared))
    total, rest = policy.in_rewards(total), policy.in_rewards(rest)
    absent = ~acting
    for values in (share, weight, own):
        values[absent] = torch.nan
    return ValueShares(
        own.numpy(), weight.numpy(), share.numpy(), total.numpy(), rest.numpy(), compared.numpy(), rows.episode, rows.t,
        policy.group.agents, group, "sum" if isinstance(policy.mixer, SumMixer) else "monotonic", of, baseline,
        source.origin(),
    )  # fmt: skip


def _mean_of_known(values: np.ndarray) -> np.ndarray:
    """`[row, agent]` -> `[agent]`, over the rows at which there is a number; NaN where there is none."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0).sum(0) / known.sum(0))


@torch_threads(1)
def _by_batch(
    source: RowSource, rows: Rows, policy: QPolicy | ForeignPolicy, of: Of, batch_size: int
) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """Q `[row, agent]`, 0 for those who do not act; who acts; and what the mixer reads of each row."""
    assert policy.mixer is not None
    found = []
    for moments in source.batches(rows, batch_size, needs_state=bool(policy.mixer.reads) or _reads_state(source)):
        with torch.no_grad():
            values, _ = policy.logits(moments.observations[policy.group.name], recurrent=moments.recurrent)
            values = _chosen(policy, values, moments, of)
            read = policy.mixer.inputs(moments.observations, moments.state)
        found.append((torch.where(moments.acting, values, 0), moments.acting, read))
    return found


def _reads_state(source: RowSource) -> bool:
    return source.env.state_shape is not None


def _chosen(policy: QPolicy | ForeignPolicy, values: Tensor, moments: Moments, of: Of) -> Tensor:
    if of == "best":
        return policy.distribution.mask(values, moments.action_mask).amax(-1)
    return pick(values, moments.action, policy.group.action, Output("action"))


@torch_threads(1)
def _shares(
    mixer: Mixer, q: Tensor, acting: Tensor, read: Tensor | None, compared: Tensor, n_steps: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Shares and weights `[row, agent]`, totals and what is left `[row]`."""
    start = compared * acting
    with torch.no_grad():
        total, rest = mixer(q, read), mixer(start, read)
    if isinstance(mixer, SumMixer):
        return q - start, torch.ones_like(q), total, rest
    point = q.clone().requires_grad_()
    (weight,) = torch.autograd.grad(mixer(point, read).sum(), point)
    share = IntegratedGradients(mixer).attribute(
        q, start, additional_forward_args=(read,), n_steps=n_steps, method="gausslegendre"
    )
    return share.detach(), weight, total, rest
