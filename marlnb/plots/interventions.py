"""Results of interventions: effects with intervals, strength-response curves, actions, tracing grids, usage tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from marlnb.errors import AnalysisError, unknown
from marlnb.plots.canvas import (
    INK,
    MUTED,
    OKABE_ITO,
    agent_colour,
    axes,
    finish,
    heat_map,
    legend_outside,
    line_style,
    width_of_columns,
    width_with_legend,
)
from marlnb.plots.marks import draw_band

if TYPE_CHECKING:
    from marlnb.analysis.interventions.result import Arm, Effect, Intervention
    from marlnb.analysis.interventions.tracing_result import Tracing
    from marlnb.analysis.interventions.usage_result import Usage

STRENGTH_UNITS = {
    "steer": "standard deviations along the direction",
    "scale": "factor",
    "noise": "standard deviation, in units of activation",
    "clamp": "units of activation",
    "raise": "units of activation",
}


OUTCOME_NAMES = {
    "return": "return",
    "value": "value (critic's)",
    "length": "length of the episode",
    "tv_direct": "actions, at the same time steps",
    "tv_total": "actions, along the episode",
    "kl_direct": "actions (KL), at the same time steps",
    "kl_total": "actions (KL), along the episode",
    "changed_direct": "likeliest action changed, at the same time steps",
    "changed_total": "actions changed, along the episode",
    "label": "mean of the label",
    "label_end": "label at the end",
}


def effect_sizes(
    intervention: Intervention,
    *,
    outcome: str = "return",
    strength: float | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One outcome's effect on each agent (or label) with its 95% interval; edited agents have a filled marker."""
    arm = _arm(intervention, strength)
    effects = [effect for effect in arm.effects if effect.outcome == outcome]
    if not outcome.startswith("label"):  # an outcome of agents and of their groups: the agents alone
        effects = [effect for effect in effects if effect.who in intervention.agents] or effects
    if not effects:
        raise AnalysisError(unknown("outcome", outcome, {e.outcome for e in arm.effects}))
    ax = axes(ax, height=1.5 + 0.42 * len(effects))
    # three significant figures of the largest difference; the same decimal places for all
    largest = max((abs(effect.difference) for effect in effects if np.isfinite(effect.difference)), default=0.0)
    decimals = int(np.clip(2 - np.floor(np.log10(largest)), 0, 6)) if largest else 0
    label: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8.5, "color": INK}
    label["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    for row, effect in enumerate(effects):
        known = effect.who in intervention.agents
        colour = agent_colour(effect.who, intervention.agents) if known else OKABE_ITO[7]
        difference, face = effect.difference, colour if effect.edited else "white"
        interval = np.array([[difference - effect.low], [effect.high - difference]])
        marker: dict[str, Any] = {"fmt": "o", "color": colour, "markerfacecolor": face, "markersize": 8}
        xerr = interval if np.isfinite(interval).all() else None
        ax.errorbar(difference, row, xerr=xerr, capsize=4, linewidth=1.8, **marker)
        number = f"{round(difference, decimals) + 0.0:+.{decimals}f}"  # -0.0 + 0.0 is 0.0
        ax.annotate(number, (difference, row), (0, 8), ha="center", **label)
    ax.axvline(0, color=INK, linewidth=1.0)
    names = [f"{effect.who} (edited)" if effect.edited else effect.who or "episode" for effect in effects]
    ax.set_yticks(range(len(effects)), names)
    ax.set_ylim(len(effects) - 0.5, -0.6)
    name = OUTCOME_NAMES.get(outcome, outcome)
    x = f"{name}: change and its 95% interval ({effects[0].units})"
    heading = title or f"Effect of the edits: {name}"
    return finish(ax, title=heading, x=x, y="", grid="x", warnings=intervention.warnings)


def strength_response(
    intervention: Intervention,
    *,
    outcome: str = "return",
    agents: Sequence[str] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The change of an outcome against the strength, with its 95% interval, one line per agent (or label).

    Args:
        agents: whose lines, also groups or labels; None: all agents (or labels).
    Raises:
        AnalysisError: no strengths, no such outcome, or an agent without it.
    """
    strengths = [arm.strength for arm in intervention.arms]
    if None in strengths:
        raise AnalysisError("this intervention has no strengths: compute it with intervene(..., strengths=[-2, 0, 2])")
    by_who: dict[str, list[Effect]] = {}
    for effect in (effect for arm in intervention.arms for effect in arm.effects if effect.outcome == outcome):
        by_who.setdefault(effect.who, []).append(effect)
    by_who = {who: effects for who, effects in by_who.items() if len(effects) == len(strengths)}
    if not by_who:
        raise AnalysisError(unknown("outcome", outcome, {e.outcome for e in intervention.arms[0].effects}))
    for agent in agents or ():
        if agent not in by_who:
            raise AnalysisError(unknown(f"agent in outcome {outcome!r}", agent, by_who))
    of_agents = [agent for agent in intervention.agents if agent in by_who]
    names = list(agents or of_agents or by_who)
    ax = axes(ax, width=width_with_legend(names))
    for k, who in enumerate(names):
        effects = by_who[who]
        rows = [(strength, e.difference, e.low, e.high) for strength, e in zip(strengths, effects)]
        x, y, low, high = np.array(sorted(rows, key=lambda row: row[0]), dtype=float).T  # type: ignore[arg-type, return-value]
        style = line_style(intervention.agents.index(who) if who in intervention.agents else k)
        draw_band(ax, x, low, high, colour=style["color"], alpha=0.2)
        ax.plot(x, y, linewidth=2.2, label=who or "episode", **style)
    units = effects[0].units
    ax.axhline(0, color=INK, linewidth=1.0)
    legend_outside(ax)
    name = OUTCOME_NAMES.get(outcome, outcome)
    kinds = [edit["edit"] for edit in intervention.edits]
    strength_units = {STRENGTH_UNITS[kind] for kind in kinds if kind in STRENGTH_UNITS}
    x = f"strength ({strength_units.pop()})" if len(strength_units) == 1 else "strength"
    heading, up = title or f"Strength and response: {name}", f"{name}:\nchange ({units})"
    return finish(ax, title=heading, x=x, y=up, warnings=intervention.warnings)


def choices_before_after(
    intervention: Intervention,
    agent: str,
    *,
    strength: float | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """How often an agent took each action, without and with the edits."""
    actions = _arm(intervention, strength).actions
    if agent not in actions:
        raise AnalysisError(unknown("agent with discrete actions", agent, actions))
    names, before, after = actions[agent]
    ax = axes(ax, width=2.2 + width_of_columns(len(names), 0.9, narrowest=0.17), height=3.4)
    colour, x = agent_colour(agent, intervention.agents), np.arange(len(names))
    ax.bar(x - 0.2, before, 0.38, color="white", edgecolor=colour, linewidth=1.6, label="without edits")
    ax.bar(x + 0.2, after, 0.38, color=colour, edgecolor=INK, linewidth=0.8, label="with edits")
    ax.set_xticks(x, names)
    ax.set_ylim(0, max(*before, *after) * 1.25)
    ax.legend(frameon=False, fontsize=8.5, ncols=2, loc="upper right")
    heading = title or f"What {agent} does"
    return finish(ax, title=heading, x="", y="share of its steps", warnings=intervention.warnings)


def tracing_grid(
    tracing: Tracing, agent: str, *, max_share: float | None = None, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """One agent's sites against time: the share of the lost outcome that restoring a site at a step brings back.

    `panels` makes axes for several agents side by side.

    Args:
        max_share: the share of the brightest colour; None: the largest share of all agents. The figures of different
            agents have the same scale.
    Raises:
        AnalysisError: the tracing has no such agent.
    """
    lines = [k for k, who in enumerate(tracing.agents) if who == agent]
    if not lines:
        raise AnalysisError(unknown("agent in this tracing", agent, tracing.agents))
    percent = 100 * tracing.recovered[lines]
    finite = np.abs(tracing.recovered[np.isfinite(tracing.recovered)])
    high = 100 * (max_share if max_share is not None else max(finite.max() if finite.size else 0.0, 0.01))
    low = -high if (100 * tracing.recovered < -0.05 * high).any() else 0.0
    ax = axes(ax, width=7.2, height=1.4 + 0.42 * len(lines))
    rows = [tracing.sites[k].split("/", 1)[1] for k in lines]
    heat_map(ax, percent, rows=rows, columns=list(map(str, tracing.times)), low=low, high=high, label="recovered (%)")
    restored = "restored step" if tracing.span == 1 else f"first of {tracing.span} restored steps"
    heading = title or f"{agent}: what restores the {tracing.outcome}"
    across = f"{restored} (steps since the episode began)"
    return finish(ax, title=heading, x=across, y="", grid="", warnings=tracing.warnings)


def usage_effects(
    usage: Usage, *, agents: Sequence[str] = (), title: str | None = None, ax: Axes | None = None
) -> Axes:
    """The effect of erasing and of steering along a direction on the agent's actions, next to random directions, also
    without what was given.

    Args:
        agents: all agents of the environment, for this one's colour.
    """
    ax = axes(ax, width=6.0, height=3.6)
    colour = agent_colour(usage.agent, agents or [usage.agent])
    for k, (test, p) in enumerate(zip(usage.tests, usage.p_holm)):
        spread = np.linspace(-0.12, 0.12, max(len(test.random), 1))
        label = None if k else "random directions"
        ax.scatter(k + spread[: len(test.random)], test.random, s=14, color=MUTED, alpha=0.7, label=label)
        interval, label = [[test.effect - test.low], [test.high - test.effect]], None if k else usage.concept
        style: dict[str, Any] = {"fmt": "D", "color": colour, "markersize": 8, "label": label}
        ax.errorbar(k + 0.28, test.effect, interval, capsize=5, linewidth=2, **style)
        ax.text(k + 0.36, test.effect, f"p = {p:.2g}", va="center", fontsize=9, color=INK)
    n_tests = len(usage.tests)
    ax.set_xticks(
        np.arange(n_tests) + 0.14,
        [f"{test.edit},\nwithout {test.given}" if test.given else test.edit for test in usage.tests],
    )
    ax.set_xlim(-0.4, n_tests - 0.2)
    ax.set_ylim(0, max(max(t.high, *t.random) for t in usage.tests) * 1.2 + 1e-9)
    ax.legend(frameon=False, fontsize=8.5, loc="upper right", ncols=2)
    heading = title or f"{usage.concept}: {usage.conclusion}"
    across = f"{usage.site}, {usage.agent}\np against random directions, Holm's correction"
    up = f"change of the actions ({usage.units})"
    return finish(ax, title=heading, x=across, y=up, warnings=usage.warnings)


def _arm(intervention: Intervention, strength: float | None) -> Arm:
    arms = [arm for arm in intervention.arms if strength is None or arm.strength == strength]
    if len(arms) != 1:
        raise AnalysisError(f"got strength={strength}; give one of {[arm.strength for arm in intervention.arms]}")
    return arms[0]
