"""How an agent's outputs depend on its observations: by feature, over time, and from agent to agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.display.formatting import format_number
from marlnb.errors import AnalysisError, unknown
from marlnb.plots.canvas import (
    INK,
    MUTED,
    OKABE_ITO,
    agent_colour,
    axes,
    choose_agent,
    count_in_whole_numbers,
    finish,
    heat_map,
    legend_outside,
    width_with_legend,
)
from marlnb.plots.marks import mean_with_middle_half

if TYPE_CHECKING:
    from marlnb.analysis.attribution.over_time.result import TemporalAttribution
    from marlnb.analysis.attribution.result import Attribution

HATCHES = ("", "//", "..", "xx", "\\\\", "++")
"""In addition to the colours, for prints in grey."""
STATE_BEFORE = "the state before"
MAX_LAGS = 15
"""Lags that are named below their bars."""


def attribution_bars(
    attribution: Attribution,
    *,
    agent: str | None = None,
    signed: bool = False,
    max_features: int = 20,
    agents: Sequence[str] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Each feature's mean contribution over rows, the largest on top; lines span the middle half of the rows.

    Args:
        agent: whose; may be omitted if the attribution has only one.
        signed: show the mean itself and not the mean of the magnitude.
        max_features: how many features are drawn; the others are counted below.
        agents: all agents of the environment, for this one's colour.
    """
    import seaborn as sns

    who = choose_agent(agent, attribution.agents, "attribution")
    values = attribution.values[:, attribution.agents.index(who)]
    values = values[_finite_rows(who, np.isfinite(values).all(axis=-1))]
    values = values if signed else np.abs(values)
    n_features = values.shape[1]
    order = np.argsort(-np.abs(values.mean(axis=0)), kind="stable")[:max_features]
    ax = axes(ax, height=1.6 + 0.27 * len(order))
    colour = agent_colour(who, agents or [who])
    middle_half = {"errorbar": ("pi", 50), "err_kws": {"color": INK, "linewidth": 1.4}, "capsize": 0.2}
    bars = [values[:, feature] for feature in order]
    sns.barplot(bars, orient="h", color=colour, saturation=1, width=0.72, ax=ax, **middle_half)
    names = attribution.feature_labels
    ax.set_yticks(range(len(order)), [names[feature] for feature in order])
    ax.set_ylim(len(order) - 0.3, -0.7)
    if signed:
        ax.axvline(0, color=MUTED, linewidth=1)
    quantity = "mean contribution" if signed else "mean |contribution|"
    n_hidden = n_features - len(order)
    hidden = f"\n{n_hidden} smaller feature{'s' * (n_hidden > 1)} not shown" if n_hidden else ""
    heading = title or f"What drives {who}: {attribution.target}"
    across = f"{quantity} ({attribution.units}), lines: middle half of rows\n{provenance(attribution, who)}{hidden}"
    ax.xaxis.label.set_fontsize(9)
    return finish(ax, title=heading, x=across, y="", grid="x", warnings=attribution.warnings)


def attribution_over_time(
    attribution: Attribution,
    *,
    agent: str | None = None,
    features: Mapping[str, Sequence[str]] | None = None,
    max_features: int = 5,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The mean magnitude of contributions at each time step, one line per group of features.

    Args:
        features: name of each group -> the features that it sums; None: the `max_features` largest ones, and a group
            of all others.
    """
    who = choose_agent(agent, attribution.agents, "attribution")
    size = np.abs(attribution.values[:, attribution.agents.index(who)])
    _finite_rows(who, np.isfinite(size).all(axis=-1))
    groups = _groups(list(attribution.feature_labels), size, features, max_features)
    marker_every = max(1, len(np.unique(attribution.t)) // 8)
    ax = axes(ax, width=width_with_legend(groups))
    for k, (name, members) in enumerate(groups.items()):
        values, colour = size[:, members].sum(axis=-1), OKABE_ITO[k % len(OKABE_ITO)]
        mean_with_middle_half(ax, attribution.t, values, index=k, colour=colour, label=name, markevery=marker_every)
    ax.set_ylim(bottom=0)
    legend_outside(ax)
    count_in_whole_numbers(ax.xaxis)
    heading = title or f"What drives {who}, and when? {attribution.target}"
    across = "time (steps); bands: middle half of rows"
    up = f"mean |contribution| ({attribution.units})"
    return finish(ax, title=heading, x=across, y=up, warnings=attribution.warnings)


def attribution_by_agent(
    attribution: Attribution,
    *,
    agents: Sequence[str] = (),
    max_features: int = 12,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Mean |contribution| of each feature, group or unit, agents side by side; lines span the middle half of the rows.

    Args:
        agents: all agents of the environment, for the colours.
        max_features: how many features are drawn, the largest on top.
    """
    names, n_agents = attribution.feature_labels, len(attribution.agents)
    size = np.abs(attribution.values)
    mean, low, high = np.full((3, n_agents, len(names)), np.nan)
    for k in range(n_agents):
        rows = size[np.isfinite(size[:, k]).all(-1), k]
        if len(rows):
            mean[k] = rows.mean(0)
            low[k], high[k] = np.quantile(rows, [0.25, 0.75], axis=0)
    order = np.argsort(-np.nan_to_num(mean).max(0), kind="stable")[:max_features]
    width, height = width_with_legend(attribution.agents), 1.8 + len(order) * (0.16 + 0.14 * n_agents)
    ax = axes(ax, width=width, height=height)
    y, thickness = np.arange(len(order))[::-1].astype(float), 0.8 / n_agents
    for k, agent in enumerate(attribution.agents):
        bar_y = y + 0.4 - thickness * (k + 0.5)
        colour, hatch = agent_colour(agent, agents or attribution.agents), HATCHES[k % len(HATCHES)]
        ax.barh(bar_y, mean[k, order], height=0.9 * thickness, color=colour, label=agent, hatch=hatch,
                edgecolor="white", linewidth=0.5)  # fmt: skip
        ax.hlines(bar_y, low[k, order], high[k, order], color=INK, linewidth=1.1)
    ax.set_yticks(y, [names[k] for k in order])
    legend_outside(ax)
    n_hidden = len(names) - len(order)
    hidden = f"\n{n_hidden} smaller ones not shown" if n_hidden else ""
    heading = title or f"What drives each agent: {attribution.target}"
    across = f"mean |contribution| ({attribution.units}), lines: middle half of rows{hidden}"
    return finish(ax, title=heading, x=across, y="", grid="x", warnings=attribution.warnings)


def attribution_over_lags(
    attribution: TemporalAttribution, *, agent: str | None = None, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Mean |contribution| of the steps before an output: one stacked bar a lag, and the share of the earlier state."""
    who = choose_agent(agent, attribution.agents, "attribution")
    index = attribution.agents.index(who)
    values, state = attribution.values[:, index], attribution.state_values[:, index]
    acting = _finite_rows(who, np.isfinite(state) & np.isfinite(values).all((1, 2)))
    size = np.abs(values[acting]).mean(0)  # [lag, feature]
    order = np.argsort(-size.sum(0), kind="stable")
    layers = [(attribution.feature_names[k], size[:, k]) for k in order[:5]]
    if len(order) > 5:
        layers.append((f"{len(order) - 5} others", size[:, order[5:]].sum(1)))
    ax = axes(ax, width=width_with_legend([*(name for name, _ in layers), STATE_BEFORE]))
    lags, bottom = np.arange(len(size)), np.zeros(len(size))
    for k, (name, height) in enumerate(layers):
        colour, hatch = OKABE_ITO[k % len(OKABE_ITO)], HATCHES[k % len(HATCHES)]
        ax.bar(-lags, height, bottom=bottom, color=colour, hatch=hatch, edgecolor="white", linewidth=0.5, label=name)
        bottom += height
    ax.bar(-len(size), np.abs(state[acting]).mean(), color=MUTED, label=STATE_BEFORE)
    every = ceil((len(size) + 1) / MAX_LAGS)
    named = [lag for lag in lags if lag % every == 0 and len(size) - lag >= every]
    ax.set_xticks([*(-lag for lag in named), -len(size)], [*(str(-lag) for lag in named), "state"])
    legend_outside(ax)
    heading = title or f"How far back do inputs drive {who}? {attribution.target}"
    up = f"mean |contribution| ({attribution.units})"
    return finish(ax, title=heading, x="steps before the output", y=up, warnings=attribution.warnings)


def influence_map(
    influence: np.ndarray, *, agents: Sequence[str], sources: Sequence[str], units: str, ax: Axes | None = None
) -> Axes:
    """Which agent's observation drives which agent's output.

    Args:
        influence: `[agent, source agent]`, mean magnitude in `units`.
        agents: names of the rows, whose output.
        sources: names of the columns, whose observation.
    """
    values = np.asarray(influence, dtype=float)
    ax = axes(ax, width=3.0 + 1.1 * len(sources), height=max(3.0, 1.9 + 0.8 * len(agents)))
    text = np.vectorize(partial(format_number, digits=2), otypes=[str])(values)
    high = float(values[np.isfinite(values)].max(initial=0)) or 1.0
    heat_map(ax, values, rows=agents, columns=sources, text=text, low=0, high=high, square=True,
             label=f"mean |contribution| ({units})")  # fmt: skip
    return finish(ax, title="Which agent influences which", x="whose observation", y="whose output", grid="")


def provenance(attribution: Attribution, agent: str) -> str:
    """Method, baseline and rows of one agent, and below them how well they add up."""
    method = attribution.method.replace("_", " ")
    uses_baseline = attribution.method not in ("gradient", "saliency", "input_x_gradient")
    baseline = f", baseline: {attribution.baseline_name}" if uses_baseline else ""
    index = attribution.agents.index(agent)
    rows = np.isfinite(attribution.values[:, index]).all(axis=-1)  # those in which it acted
    text = f"{method}{baseline}, {rows.sum():,} rows"
    faithfulness = getattr(attribution, "faithfulness", None)
    if faithfulness is not None:
        text += f"; infidelity {faithfulness.infidelity:.2f}, sensitivity {faithfulness.sensitivity:.2f}"
    if attribution.complete:
        share = attribution.relative_delta[rows, index]
        share = share[np.isfinite(share)]
        worst = float(np.quantile(share, 0.95)) if share.size else float("nan")
        text += f"\nunexplained: at most {max(worst, 1e-7):.0e} of the output at 95% of rows"
    return text


def _finite_rows(agent: str, finite: np.ndarray) -> np.ndarray:
    """`finite` `[row]` bool itself, unless it is False everywhere: then there is nothing to draw.

    Raises:
        AnalysisError: the agent has no finite attribution.
    """
    if not finite.any():
        raise AnalysisError(f"{agent} acted at none of the {len(finite)} steps, or none of its attributions are finite")
    return finite


def _groups(
    names: list[str], size: np.ndarray, features: Mapping[str, Sequence[str]] | None, max_features: int
) -> dict[str, list[int]]:
    """Name of each line -> indices of the features that it sums."""
    if features is None:
        order = [int(k) for k in np.argsort(-np.nanmean(size, axis=0), kind="stable")]
        largest, others = order[:max_features], order[max_features:]
        return {**{names[k]: [k] for k in largest}, **({f"{len(others)} others": others} if others else {})}
    for members in features.values():
        for name in members:
            if name not in names:
                raise AnalysisError(unknown("feature", name, names))
    return {group: [names.index(name) for name in members] for group, members in features.items()}
