"""What interventions did: effects with intervals, dose and response, choices before and after, tracing grids, usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes

from marlnb.errors import AnalysisError, unknown
from marlnb.plots.canvas import DASHES, INK, MARKERS, MUTED, OKABE_ITO, SEQUENTIAL, agent_colour, alarm, axes, finish

DOSES = {
    "steer": "standard deviations along the direction",
    "scale": "factor",
    "noise": "standard deviation, in units of activation",
    "clamp": "units of activation",
}


class EffectLike(Protocol):
    """One paired effect with its 95% interval."""

    @property
    def outcome(self) -> str: ...
    @property
    def who(self) -> str: ...
    @property
    def edited(self) -> bool: ...
    @property
    def units(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def difference(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


class ArmLike(Protocol):
    """Effects at one dose, and each agent's (choices, shares before, shares after)."""

    @property
    def dose(self) -> float | None: ...
    @property
    def effects(self) -> Sequence[EffectLike]: ...
    @property
    def actions(self) -> Mapping[str, tuple[Sequence[str], Sequence[float], Sequence[float]]]: ...


class InterventionResult(Protocol):
    @property
    def edits(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def agents(self) -> tuple[str, ...]: ...
    @property
    def arms(self) -> Sequence[ArmLike]: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


class TracingResult(Protocol):
    """recovered `[line, time]`; sites and agents of each line, times of each column."""

    @property
    def outcome(self) -> str: ...
    @property
    def sites(self) -> tuple[str, ...]: ...
    @property
    def agents(self) -> tuple[str, ...]: ...
    @property
    def times(self) -> tuple[int, ...]: ...
    @property
    def span(self) -> int: ...
    @property
    def recovered(self) -> np.ndarray: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


class UsageTestLike(Protocol):
    @property
    def edit(self) -> str: ...
    @property
    def effect(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def p_value(self) -> float: ...
    @property
    def random(self) -> Sequence[float]: ...


class UsageResult(Protocol):
    @property
    def concept(self) -> str: ...
    @property
    def site(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def units(self) -> str: ...
    @property
    def verdict(self) -> str: ...
    @property
    def tests(self) -> Sequence[UsageTestLike]: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


WORDS = {
    "return": "return",
    "value": "value (critic's)",
    "length": "length of the episode",
    "tv_direct": "choices, at the same moments",
    "tv_total": "choices, along the episode",
    "kl_direct": "choices (KL), at the same moments",
    "kl_total": "choices (KL), along the episode",
    "changed_direct": "likeliest action changed, same moments",
    "changed_total": "actions changed, along the episode",
    "label": "mean of the label",
    "label_end": "label at the end",
}


def effect_sizes(
    intervention: InterventionResult,
    *,
    outcome: str = "return",
    dose: float | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One outcome's effect on each agent (or label) with its 95% interval; who was edited has a filled mark."""
    arm = _arm(intervention, dose)
    found = [
        e for e in arm.effects if e.outcome == outcome and (e.who in intervention.agents or outcome[:5] == "label")
    ]
    found = found or [e for e in arm.effects if e.outcome == outcome]
    if not found:
        raise AnalysisError(unknown("outcome", outcome, {e.outcome for e in arm.effects}))
    ax = axes(ax, height=1.5 + 0.42 * len(found))
    decimals = _decimals([effect.difference for effect in found])
    for place, effect in enumerate(found):
        known = effect.who in intervention.agents
        colour = agent_colour(effect.who, intervention.agents) if known else OKABE_ITO[7]
        low, high = effect.difference - effect.low, effect.high - effect.difference
        ax.errorbar(
            effect.difference,
            place,
            xerr=[[low], [high]] if np.isfinite([low, high]).all() else None,
            fmt="o",
            color=colour,
            markerfacecolor=colour if effect.edited else "white",
            markersize=8,
            capsize=4,
            linewidth=1.8,
        )
        ax.annotate(
            f"{effect.difference:+.{decimals}f}",
            (effect.difference, place),
            (0, 8),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
    ax.axvline(0, color=INK, linewidth=1.0)
    ax.set_yticks(range(len(found)), [_label(effect) for effect in found])
    ax.set_ylim(len(found) - 0.5, -0.6)
    what = WORDS.get(outcome, outcome)
    told = f"{what}: change and its 95% interval ({found[0].units})"
    finish(ax, title=title or f"What the edits did: {what}", x=told, y="", grid="x")
    alarm(ax, intervention.warnings)
    return ax


def dose_response(
    intervention: InterventionResult,
    *,
    outcome: str = "return",
    agents: Sequence[str] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """An outcome's change against the dose, with its 95% interval, a line for each agent."""
    doses = [arm.dose for arm in intervention.arms]
    if None in doses:
        raise AnalysisError("this intervention has no doses; intervene(..., doses=[-2, 0, 2]) has")
    ax = axes(ax)
    units, drawn = "", []
    for agent in agents or intervention.agents:
        found = [e for arm in intervention.arms for e in arm.effects if e.outcome == outcome and e.who == agent]
        if len(found) != len(doses):
            continue
        order = np.argsort(np.array(doses, dtype=float))
        x, y, low, high = (
            np.array(values, dtype=float)[order]
            for values in (doses, *([getattr(e, name) for e in found] for name in ("difference", "low", "high")))
        )
        place, units = list(intervention.agents).index(agent), found[0].units
        colour = agent_colour(agent, intervention.agents)
        ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        line = {"linestyle": DASHES[place % len(DASHES)], "marker": MARKERS[place % len(MARKERS)]}
        ax.plot(x, y, color=colour, linewidth=2.2, label=agent, **line)  # type: ignore[arg-type]
        drawn.append(agent)
    if not drawn:
        raise AnalysisError(unknown("outcome", outcome, {e.outcome for e in intervention.arms[0].effects}))
    ax.axhline(0, color=INK, linewidth=1.0)
    ax.legend(frameon=False, fontsize=8.5)
    what = WORDS.get(outcome, outcome)
    finish(ax, title=title or f"Dose and response: {what}", x=_dose_label(intervention), y=f"{what}:\nchange ({units})")
    alarm(ax, intervention.warnings)
    return ax


def choices_before_after(
    intervention: InterventionResult,
    agent: str,
    *,
    dose: float | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """How often an agent took each action, without and with the edits."""
    actions = _arm(intervention, dose).actions
    if agent not in actions:
        raise AnalysisError(unknown("agent with discrete actions", agent, actions))
    names, before, after = actions[agent]
    ax = axes(ax, width=2.2 + 0.9 * len(names), height=3.4)
    colour, x = agent_colour(agent, intervention.agents), np.arange(len(names))
    ax.bar(x - 0.2, before, 0.38, color="white", edgecolor=colour, linewidth=1.6, label="without edits")
    ax.bar(x + 0.2, after, 0.38, color=colour, edgecolor=INK, linewidth=0.8, label="with edits")
    ax.set_xticks(x, names)
    ax.set_ylim(0, max(*before, *after) * 1.25)
    ax.legend(frameon=False, fontsize=8.5, ncols=2, loc="upper right")
    finish(ax, title=title or f"What {agent} does", x="", y="share of its steps")
    alarm(ax, intervention.warnings)
    return ax


def tracing_grid(
    tracing: TracingResult, agent: str, *, limit: float | None = None, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """One agent's sites against time: the share of what the corruption took that comes back. `panels` sets agents side
    by side; `limit` is the share at which colours end, the same for all agents when it is not given."""
    lines = [k for k, who in enumerate(tracing.agents) if who == agent]
    if not lines:
        raise AnalysisError(unknown("agent in this tracing", agent, tracing.agents))
    shares = 100 * tracing.recovered[lines]
    finite = np.abs(tracing.recovered[np.isfinite(tracing.recovered)])
    end = 100 * (limit if limit is not None else max(finite.max() if finite.size else 0.0, 0.01))
    ax = axes(ax, width=7.2, height=1.4 + 0.42 * len(lines))
    image = ax.imshow(
        shares, aspect="auto", cmap=SEQUENTIAL, vmin=min(0.0, -end * bool((shares < -0.05 * end).any())), vmax=end
    )
    ax.set_yticks(range(len(lines)), [tracing.sites[k].split("/", 1)[1] for k in lines])
    step = max(1, len(tracing.times) // 12)
    ax.set_xticks(range(0, len(tracing.times), step), [str(t) for t in tracing.times[::step]])
    ax.figure.colorbar(image, ax=ax, label="recovered (%)", fraction=0.04, pad=0.02)
    restored = "step restored" if tracing.span == 1 else f"first of {tracing.span} steps restored"
    finish(
        ax,
        title=title or f"{agent}: what restores the {tracing.outcome}",
        x=f"{restored} (steps since the episode began)",
        y="",
        grid="",
    )
    alarm(ax, tracing.warnings)
    return ax


def usage_effects(
    usage: UsageResult, *, agents: Sequence[str] = (), title: str | None = None, ax: Axes | None = None
) -> Axes:
    """What erasing and steering along a direction does to the agent's choices, beside random directions.

    Args:
        agents: all agents of the environment, for this one's colour.
    """
    ax = axes(ax, width=6.0, height=3.6)
    colour = agent_colour(usage.agent, agents) if usage.agent in agents else OKABE_ITO[0]
    for place, test in enumerate(usage.tests):
        jitter = np.linspace(-0.12, 0.12, max(len(test.random), 1))
        ax.scatter(
            place + jitter, test.random, s=14, color=MUTED, alpha=0.7, label=None if place else "random directions"
        )
        ax.errorbar(
            place + 0.28,
            test.effect,
            [[test.effect - test.low], [test.high - test.effect]],
            fmt="D",
            color=colour,
            markersize=8,
            capsize=5,
            linewidth=2,
            label=None if place else usage.concept,
        )
        ax.text(place + 0.36, test.effect, f"p = {test.p_value:.2g}", va="center", fontsize=9, color=INK)
    ax.set_xticks([place + 0.14 for place in range(len(usage.tests))], [test.edit for test in usage.tests])
    ax.set_xlim(-0.4, len(usage.tests) - 0.2)
    ax.set_ylim(0, max(max(t.high, *t.random) for t in usage.tests) * 1.2 + 1e-9)
    ax.legend(frameon=False, fontsize=8.5, loc="upper right", ncols=2)
    heading = title or f"{usage.concept}: {usage.verdict}"
    finish(ax, title=heading, x=f"{usage.site}, {usage.agent}", y=f"choices moved ({usage.units})")
    alarm(ax, usage.warnings)
    return ax


def _arm(intervention: InterventionResult, dose: float | None) -> ArmLike:
    found = [arm for arm in intervention.arms if dose is None or arm.dose == dose]
    if len(found) != 1:
        raise AnalysisError(f"which dose? dose must be one of {[arm.dose for arm in intervention.arms]}; got {dose}")
    return found[0]


def _dose_label(intervention: InterventionResult) -> str:
    """With its unit, where the doses of all edits have one."""
    units = {DOSES[kind] for kind in (edit["edit"] for edit in intervention.edits) if kind in DOSES}
    return f"dose ({units.pop()})" if len(units) == 1 else "dose"


def _decimals(values: Sequence[float]) -> int:
    """Places after the point with which the largest value has three figures; the same for all."""
    largest = max((abs(value) for value in values if np.isfinite(value)), default=0.0)
    return int(np.clip(2 - np.floor(np.log10(largest)), 0, 6)) if largest else 0


def _label(effect: EffectLike) -> str:
    return f"{effect.who} (edited)" if effect.edited else effect.who or "episode"
