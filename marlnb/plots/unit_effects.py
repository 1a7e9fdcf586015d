"""What each unit of a site does to one outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import (
    INK,
    OKABE_ITO,
    agent_colour,
    axes,
    count_in_whole_numbers,
    finish,
    legend_outside,
    width_with_legend,
)
from marlnb.plots.interventions import OUTCOME_NAMES

if TYPE_CHECKING:
    from marlnb.analysis.interventions.causal_map_result import CausalMap

SIGNIFICANCE_LEVEL = 0.05


def causal_map(
    result: CausalMap,
    outcome: str = "return",
    who: str | None = None,
    *,
    site: str | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Each unit's effect on one outcome with its 95% interval; filled where it is significant after Holm's correction.

    Distances between actions have no p-value, since they are never below 0: all their markers are filled.

    Args:
        who: agent, group or label; None: the first that the map's verdict names, for returns, or that has this outcome.
        site: which one, where the map has several.
    Raises:
        AnalysisError: the map has no such site or outcome.
    """
    units = result.of_site(site)
    if who is None:
        names = [effect.who for effect in units[0].effects if effect.outcome == outcome]
        who = next(iter(result.names_of_returns if outcome == "return" else names), "")
    effects = [each.of(outcome, who) for each in units]
    x, y = np.array([each.unit for each in units]), np.array([effect.difference for effect in effects])
    interval = np.array([[effect.difference - effect.low, effect.high - effect.difference] for effect in effects]).T
    ax = axes(ax, width=1.2 + width_with_legend(["not significant"]))
    colour = agent_colour(who, result.agents) if who in result.agents else OKABE_ITO[0]
    is_tested = any(effect.p_holm is not None for effect in effects)
    significant = np.array([e.p_holm is None or e.p_holm <= SIGNIFICANCE_LEVEL for e in effects], dtype=bool)
    for chosen, label, face in ((~significant, "not significant", "white"), (significant, "significant", colour)):
        if chosen.any():
            style: dict[str, Any] = {"fmt": "o", "color": colour, "markerfacecolor": face, "markersize": 5}
            ax.errorbar(x[chosen], y[chosen], interval[:, chosen], linewidth=1.2, label=label, **style)
    ax.axhline(0, color=INK, linewidth=1.0)
    if is_tested:
        legend_outside(ax)
    count_in_whole_numbers(ax.xaxis)
    name = OUTCOME_NAMES.get(outcome, outcome)
    of = f" of {who}" if who else ""
    heading = title or f"{result.edit['edit']} of each unit of {units[0].site}: {name}{of}"
    up = f"{name}: change ({effects[0].units})"
    across = "unit, edited alone" + ("" if is_tested else " (a distance is never below 0: no test)")
    return finish(ax, title=heading, x=across, y=up, warnings=result.warnings)
