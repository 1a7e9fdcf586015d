"""What drove an agent's output: by feature, over time, and from agent to agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from marlnb.errors import AnalysisError, unknown
from marlnb.plots.canvas import DASHES, INK, MARKERS, MUTED, OKABE_ITO, SEQUENTIAL, agent_colour, alarm, axes, finish
from marlnb.plots.results import AttributionResult, TemporalResult

HATCHES = ("", "//", "..", "xx", "\\\\", "++")
"""Beside the colours, for those who print in grey."""


def attribution_bars(
    attribution: AttributionResult,
    *,
    agent: str | None = None,
    signed: bool = False,
    most: int = 20,
    agents: Sequence[str] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Each feature's mean contribution over rows, largest on top; whiskers span the middle half of the rows.

    Args:
        agent: whose; it may be left out where there is one.
        signed: show the mean itself rather than the mean of its magnitude.
        most: features shown; the rest are counted below.
        agents: all agents of the environment, for this one's colour.
    """
    index, who = _agent(attribution, agent)
    values = attribution.values[:, index]
    values = values[np.isfinite(values).all(axis=-1)]
    shown = values if signed else np.abs(values)
    mean = shown.mean(axis=0)
    names = _names(attribution)
    order = np.argsort(-np.abs(mean), kind="stable")[:most]
    low, high = np.quantile(shown, [0.25, 0.75], axis=0)
    ax = axes(ax, height=1.6 + 0.27 * len(order))
    place = np.arange(len(order))[::-1]
    colour = agent_colour(who, agents) if who in agents else OKABE_ITO[0]
    ax.barh(place, mean[order], color=colour, height=0.72)
    ax.hlines(place, low[order], high[order], color=INK, linewidth=1.4)
    for ends in (low, high):
        ax.plot(ends[order], place, linestyle="none", marker="|", color=INK, markersize=5)
    ax.set_yticks(place, [names[k] for k in order])
    ax.set_ylim(-0.7, len(order) - 0.3)
    if signed:
        ax.axvline(0, color=MUTED, linewidth=1)
    what = "mean contribution" if signed else "mean |contribution|"
    rest = len(mean) - len(order)
    hidden = f"\n{rest} smaller feature{'s' * (rest > 1)} not shown" if rest else ""
    heading = title or f"What drives {who}: {attribution.target}"
    finish(ax, title=heading, x=f"{what} ({attribution.units}), lines: middle half of rows", y="", grid="x")
    ax.annotate(
        provenance(attribution) + hidden,
        (1, 0),
        (0, -42),
        "axes fraction",
        "offset points",
        ha="right",
        va="top",
        fontsize=8,
        color=MUTED,
    )
    alarm(ax, attribution.warnings)
    return ax


def attribution_over_time(
    attribution: AttributionResult,
    *,
    agent: str | None = None,
    features: Mapping[str, Sequence[str]] | None = None,
    most: int = 5,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The mean magnitude of contributions at each time step, a line a group of features.

    Args:
        features: name of each group -> the features summed in it; None: the `most` largest features, and the others.
    """
    index, who = _agent(attribution, agent)
    size = np.abs(attribution.values[:, index])
    names = list(_names(attribution))
    groups = _groups(names, size, features, most)
    times = np.unique(attribution.t)
    ax = axes(ax)
    for place, (name, members) in enumerate(groups.items()):
        by_row = size[:, members].sum(axis=-1)
        stats = [_quartiles(by_row[attribution.t == t]) for t in times]
        low, mean, high = np.array(stats).T
        colour = OKABE_ITO[place % len(OKABE_ITO)]
        ax.fill_between(times, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.plot(
            times,
            mean,
            color=colour,
            linestyle=DASHES[place % len(DASHES)],
            marker=MARKERS[place % len(MARKERS)],
            markevery=max(1, len(times) // 8),
            markersize=4.5,
            linewidth=1.8,
            label=name,
        )
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize=9, loc="upper right")
    heading = title or f"When does what drive {who}: {attribution.target}"
    across = "time (steps); bands: middle half of rows"
    finish(ax, title=heading, x=across, y=f"mean |contribution| ({attribution.units})")
    alarm(ax, attribution.warnings)
    return ax


def attribution_by_agent(
    attribution: AttributionResult,
    *,
    agents: Sequence[str] = (),
    most: int = 12,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Each feature's, group's or unit's mean |contribution|, the agents beside one another; whiskers: the middle half.

    Args:
        agents: all agents of the environment, for the colours; most: features shown, the largest on top.
    """
    names, n_agents = _names(attribution), len(attribution.agents)
    size = np.abs(attribution.values)
    stats = np.full((n_agents, 3, len(names)), np.nan)
    for k in range(n_agents):
        rows = size[np.isfinite(size[:, k]).all(-1), k]
        if len(rows):
            stats[k] = rows.mean(0), *np.quantile(rows, [0.25, 0.75], axis=0)
    biggest = np.where(np.isfinite(stats[:, 0]), stats[:, 0], 0).max(0)
    order = np.argsort(-biggest, kind="stable")[:most]
    ax = axes(ax, height=1.8 + len(order) * (0.16 + 0.14 * n_agents))
    place, thickness = np.arange(len(order))[::-1].astype(float), 0.8 / n_agents
    for k, agent in enumerate(attribution.agents):
        at = place + 0.4 - thickness * (k + 0.5)
        mean, low, high = stats[k][:, order]
        colour = agent_colour(agent, agents or attribution.agents)
        ax.barh(at, mean, height=0.9 * thickness, color=colour, label=agent, hatch=HATCHES[k % len(HATCHES)],
                edgecolor="white", linewidth=0.5)  # fmt: skip
        ax.hlines(at, low, high, color=INK, linewidth=1.1)
    ax.set_yticks(place, [names[k] for k in order])
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    rest = len(names) - len(order)
    hidden = f"\n{rest} smaller ones not shown" if rest else ""
    finish(
        ax,
        title=title or f"What drives each agent: {attribution.target}",
        x=f"mean |contribution| ({attribution.units}), lines: middle half of rows{hidden}",
        y="",
        grid="x",
    )
    alarm(ax, attribution.warnings)
    return ax


def attribution_over_lags(
    attribution: TemporalResult, *, agent: str | None = None, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """How far back what drove an output lies: mean |contribution| at each lag, features in layers of one bar, and the
    share of the state that came before."""
    index, who = _agent(attribution, agent)
    values, state = attribution.values[:, index], attribution.state_values[:, index]
    acting = np.isfinite(state) & np.isfinite(values).all((1, 2))
    if not acting.any():
        raise AnalysisError(f"{who} acted at none of the {len(state)} steps explained, or nothing it saw is finite")
    size = np.abs(values[acting]).mean(0)  # [lag, feature]
    order = np.argsort(-size.sum(0), kind="stable")
    layers = [(attribution.feature_names[k], size[:, k]) for k in order[:5]]
    if len(order) > 5:
        layers.append((f"{len(order) - 5} others", size[:, order[5:]].sum(1)))
    ax, lags, bottom = axes(ax), np.arange(len(size)), np.zeros(len(size))
    for place, (name, height) in enumerate(layers):
        colour, hatch = OKABE_ITO[place % len(OKABE_ITO)], HATCHES[place % len(HATCHES)]
        ax.bar(-lags, height, bottom=bottom, color=colour, hatch=hatch, edgecolor="white", linewidth=0.5, label=name)
        bottom += height
    ax.bar(-len(size), np.abs(state[acting]).mean(), color=MUTED, label="the state before")
    ax.set_xticks([*-lags, -len(size)], [*map(str, -lags), "state"])
    ax.legend(frameon=False, fontsize=8.5)
    heading = title or f"How far back lies what drives {who}: {attribution.target}"
    finish(ax, title=heading, x="steps before the one explained", y=f"mean |contribution| ({attribution.units})")
    alarm(ax, attribution.warnings)
    return ax


def influence_map(
    influence: np.ndarray, *, agents: Sequence[str], sources: Sequence[str], units: str, ax: Axes | None = None
) -> Axes:
    """Who is influenced by whom: `[agent, source agent]`, mean magnitude in `units`, written in each cell."""
    values = np.asarray(influence, dtype=float)
    ax = axes(ax, width=1.6 + 1.1 * len(sources), height=1.4 + 0.8 * len(agents))
    image = ax.imshow(values, cmap=SEQUENTIAL, vmin=0)
    middle = values.max(initial=0) / 2
    for row in range(len(agents)):
        for column in range(len(sources)):
            colour = "black" if values[row, column] > middle else "white"
            ax.text(column, row, f"{values[row, column]:.2g}", ha="center", va="center", color=colour, fontsize=9)
    ax.figure.colorbar(image, ax=ax, pad=0.02).set_label(f"mean |contribution| ({units})")
    ax.set_xticks(range(len(sources)), list(sources), rotation=30, ha="right")
    ax.set_yticks(range(len(agents)), list(agents))
    return finish(ax, title="Who is influenced by whom", x="whose observation", y="whose output", grid="")


def provenance(attribution: AttributionResult) -> str:
    """Method, baseline, rows and convergence in a line."""
    method = attribution.method.replace("_", " ")
    uses_baseline = attribution.method not in ("gradient", "saliency", "input_x_gradient")
    baseline = f", baseline: {attribution.baseline_name}" if uses_baseline else ""
    text = f"{method}{baseline}, {attribution.values.shape[0]:,} rows"
    faithfulness = getattr(attribution, "faithfulness", None)
    if faithfulness is not None:
        text += f"; infidelity {faithfulness.infidelity:.2f}, sensitivity {faithfulness.sensitivity:.2f}"
    if attribution.complete:
        share = attribution.relative_delta
        share = share[np.isfinite(share)]
        worst = float(np.quantile(share, 0.95)) if share.size else float("nan")
        text += f"; unexplained: at most {max(worst, 1e-7):.0e} of the output at 95% of rows"
    return text


def _agent(attribution: AttributionResult | TemporalResult, agent: str | None) -> tuple[int, str]:
    if agent is None and len(attribution.agents) > 1:
        raise AnalysisError(f"whose attribution? agent must be one of {list(attribution.agents)}")
    name = attribution.agents[0] if agent is None else agent
    if name not in attribution.agents:
        raise AnalysisError(unknown("agent in this attribution", name, attribution.agents))
    return attribution.agents.index(name), name


def _names(attribution: AttributionResult) -> tuple[str, ...]:
    if not attribution.feature_agents:
        return attribution.feature_names
    return tuple(f"{who}: {name}" for who, name in zip(attribution.feature_agents, attribution.feature_names))


def _groups(
    names: list[str], size: np.ndarray, features: Mapping[str, Sequence[str]] | None, most: int
) -> dict[str, list[int]]:
    """Name of each line -> indices of the features that it sums."""
    if features is None:
        order = [int(k) for k in np.argsort(-np.nanmean(size, axis=0), kind="stable")]
        chosen = {names[k]: [k] for k in order[:most]}
        return {**chosen, f"{len(order) - most} others": order[most:]} if len(order) > most else chosen
    for wanted in features.values():
        for name in wanted:
            if name not in names:
                raise AnalysisError(unknown("feature", name, names))
    return {group: [names.index(name) for name in wanted] for group, wanted in features.items()}


def _quartiles(values: np.ndarray) -> tuple[float, float, float]:
    values = values[np.isfinite(values)]
    if not values.size:
        return float("nan"), float("nan"), float("nan")
    low, high = np.quantile(values, [0.25, 0.75])
    return float(low), float(values.mean()), float(high)
