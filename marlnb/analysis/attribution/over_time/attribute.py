"""attribute_over_time: what past observations contributed to an output, through a recurrent state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from marlnb.analysis.attribution.baselines import broadcast_baseline
from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.feature_groups import Features, feature_names
from marlnb.analysis.attribution.outputs import Output, Target, To, resolve_output
from marlnb.analysis.attribution.over_time.result import TemporalAttribution
from marlnb.analysis.attribution.over_time.unrolled import Unrolled, explain_by_class, windows
from marlnb.analysis.attribution.task import build_axis, choose_policy, convergence_tolerance, explained_agents
from marlnb.analysis.data.given import Given
from marlnb.analysis.data.row_condition import Condition, rows_name, rows_where
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.data.strata import Strata, strata_of
from marlnb.analysis.progress import AnalysisProgress
from marlnb.display.formatting import count
from marlnb.errors import AnalysisError
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.episode_index import integers_of
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.values import checked_number

MAX_EXAMPLES = 16384  # rows times quadrature points that go through the network at once


def attribute_over_time(
    recording: RecordingLike,
    *,
    group: str,
    to: To = "action",
    target: Target = None,
    agent: str | None = None,
    t: int | Sequence[int] | None = None,
    lookback: int = 8,
    baseline: Literal["mean", "start"] | np.ndarray = "mean",
    features: Features = "each",
    n_steps: int = AttributionConfig.n_steps,
    policies: Mapping[str, Policy] | None = None,
    episodes: Sequence[int] | None = None,
    rows: Condition | None = None,
    given: Given | None = None,
    checkpoint: int | None = None,
    progress: bool = True,
) -> TemporalAttribution:
    """Integrated gradients of an output at one step by the observations of that step and the `lookback` before it.

    The network is unrolled from the recorded state that entered the first of these steps. The contribution of that
    state, compared with the zero state of an episode's start, is reported separately, so that everything adds up:

        f(x, h) - f(x', 0) = sum_{lag, i} phi_{lag, i} + phi_h

    Args:
        t: the explained step, or several; None: each episode's last. Shorter episodes and steps before `lookback` are
            left out.
        baseline: what each step's observation is compared with: each agent's mean over the recording, its mean at its
            first step of each episode (start), or an array that broadcasts to `[agent, feature]`.
        rows: a condition that the explained steps meet; an agent that does not meet it at a step is NaN there.
        given: labels of classes, or "action": the baseline is the mean over the agent's steps of the same class as the
            explained step; only for baseline="mean".
        Others as for `attribute`.
    Returns:
        values `[row, agent, lag, feature]`, lag 0 the explained step, and the state's contribution `[row, agent]`.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: a feed-forward policy, agents that read each other's observations, an output of the critic, a
            recording with missing steps, or no step that is late enough.
    Source: Sundararajan et al. 2017, section 3 (arXiv:1703.01365), computed by captum.
    """
    recording = opened_recording(recording)
    source = RowSource(recording, group)
    spec = source.env.group(group)
    output = resolve_output(spec.action, to, target)
    policy = choose_policy(source, policies, checkpoint, output)
    _check(policy, output)
    lookback, n_steps = checked_number(lookback, int, "lookback", ge=1), checked_number(n_steps, int, "n_steps", ge=1)
    all_rows = source.rows(episodes, checkpoint)
    if not source.keeps_every_step(all_rows):
        raise AnalysisError(
            f"{recording.path.name} lacks steps (it was recorded with every=), so the network cannot be unrolled"
        )
    members = list(explained_agents(spec, agent, policy, output, None))
    last, selected = _selected_rows(source, all_rows, _explained_rows(all_rows, t, lookback), rows, members)
    baselines = _Baselines.of(source, source.rows(None, checkpoint), baseline, given)
    axis = build_axis([("", list(feature_names(spec)))], features)
    unrolled, parts = Unrolled(policy, output, members), []
    max_rows = max(1, MAX_EXAMPLES // (n_steps * spec.n_agents))
    with AnalysisProgress(f"attribution over time of {group}", "steps", len(last), shown=progress) as shown:
        for start in range(0, len(last), max_rows):
            chunk = slice(start, start + max_rows)
            inputs, chosen = windows(source, all_rows, last[chunk], lookback), selected[chunk]
            index = np.where(chosen, baselines.index_at(all_rows.index[last[chunk]]), -1)
            parts.append(explain_by_class(unrolled, inputs, baselines.means, index, n_steps, axis.groups))
            shown.add(len(chosen))
    values, state_values, score, baseline_score = (np.concatenate(arrays)[:, members] for arrays in zip(*parts))
    return TemporalAttribution(
        values=values, state_values=state_values, score=score, baseline_score=baseline_score,
        episode=all_rows.episode[last], t=all_rows.t[last], agents=tuple(spec.agents[k] for k in members), group=group,
        feature_names=axis.names, to=to, target=output.describe(spec.action), units=output.units, n_steps=n_steps,
        baseline_name=baselines.name,
        tolerance=convergence_tolerance(policy, output), origin=source.origin(checkpoint),
        rows=rows_name(rows),
        given=() if baselines.strata is None else baselines.strata.given,
    )  # fmt: skip


def _check(policy: Policy, output: Output) -> None:
    if output.of_critic:
        raise AnalysisError("only actors are unrolled: to must be action, logit, log_prob or a unit of the actor")
    if policy.recurrent_shape is None:
        raise AnalysisError(
            f"the policy of {policy.group.name!r} has no recurrent state, so its output depends on the current "
            "observation alone; use attribute"
        )
    if policy.cross_agent:
        raise AnalysisError(
            f"the agents of {policy.group.name!r} read each other's observations, so their states cannot be unrolled "
            "one by one"
        )


def _explained_rows(rows: Rows, t: int | Sequence[int] | None, lookback: int) -> np.ndarray:
    """Positions of the explained rows, each with `lookback` rows of its episode before it."""
    if t is None:
        _, first, lengths = np.unique(rows.episode, return_index=True, return_counts=True)
        positions = first + lengths - 1
    else:
        positions = np.flatnonzero(np.isin(rows.t, integers_of(t, None, "t")))
    late_enough = positions[rows.t[positions] >= lookback]
    valid = f"episodes have t from 0 to {int(rows.t.max())}"
    if not len(late_enough):
        requested = "" if t is None else f" t={t}"
        raise AnalysisError(f"no step{requested} with {count(lookback, 'step')} before it; {valid}")
    absent = [] if t is None else np.setdiff1d(t, rows.t[late_enough]).tolist()
    if absent:
        raise AnalysisError(f"no episode has the steps t={absent} with {lookback} before them; {valid}")
    return late_enough


def _selected_rows(
    source: RowSource, rows: Rows, positions: np.ndarray, condition: Condition | None, members: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The positions at which any of the members meets the condition; and which agents do, `[position, agent]` bool."""
    selected = rows_where(source, rows, condition)[positions]
    kept = selected[:, members].any(axis=1)
    if not kept.any():
        raise AnalysisError(f"rows={condition!r} selects none of the {len(positions)} explained steps")
    return positions[kept], selected[kept]


@dataclass(frozen=True)
class _Baselines:
    """What observations are compared with: one baseline for all steps, or one for each class of what is given.

    Attributes:
        name: of the baseline, in words.
        means: `[agent, feature]`, by class.
        rows: the recording's rows, whose classes are in `strata`.
        strata: classes of what is given; None: nothing is given.
    """

    name: str
    means: list[Tensor]
    rows: Rows
    strata: Strata | None

    @staticmethod
    def of(source: RowSource, rows: Rows, baseline: Any, given: Given | None) -> _Baselines:
        """
        Args:
            rows: of the whole recording.
            baseline: "mean", "start", or an array that broadcasts to `[agent, feature]`.
        Raises:
            AnalysisError: no such baseline, or an unknown name in `given`.
        """
        if given is None:
            name = baseline if isinstance(baseline, str) else "given"
            return _Baselines(name, [_resolve_baseline(source, rows, baseline)], rows, None)
        if not (isinstance(baseline, str) and baseline == "mean"):
            raise AnalysisError(f"given= needs baseline='mean'; got {baseline!r}")
        strata = strata_of(source, rows, given)
        means = [source.mean_observation(source.group, rows, strata.index == k) for k in range(len(strata.names))]
        return _Baselines(f"mean of steps with the same {strata}", means, rows, strata)

    def index_at(self, index: np.ndarray) -> np.ndarray:
        """Indices in `means`, `[row, agent]`, of rows with these indices in the recording; -1 without a class."""
        if self.strata is None:
            return np.zeros((len(index), 1), np.int64)
        return self.strata.index[np.searchsorted(self.rows.index, index)]


def _resolve_baseline(source: RowSource, rows: Rows, baseline: Any) -> Tensor:
    if isinstance(baseline, str) and baseline == "mean":
        return source.mean_observation(source.group, rows)
    if isinstance(baseline, str) and baseline == "start":
        return source.mean_observation(source.group, rows, rows.first_of_episodes(source.alive(source.group, rows)))
    if isinstance(baseline, str):
        raise AnalysisError(f"no baseline {baseline!r}; valid: 'mean', 'start' or an array")
    spec = source.env.group(source.group)
    return broadcast_baseline(baseline, (spec.n_agents, spec.observation.size), f"{source.group!r}", "[agent, feature]")
