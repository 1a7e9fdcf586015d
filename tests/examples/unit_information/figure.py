"""The figure of `unit_information`."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import OKABE_ITO, axes, finish
from tests.examples.unit_information.analysis import UnitInformation


def information_by_unit(result: UnitInformation, *, ax: Axes | None = None) -> Axes:
    """A bar for each unit, the most informative first; chance is a line, informative units are coloured."""
    order = np.argsort(-result.bits, kind="stable")
    is_informative = np.isin(order, result.informative)
    ax = axes(ax, width=7.0)
    ax.bar(range(len(order)), result.bits[order], color=np.where(is_informative, OKABE_ITO[0], "#b8b8b8").tolist())
    ax.plot(range(len(order)), result.chance[order], color="black", linewidth=1, label="chance")
    ax.set_xticks(range(len(order)), [str(unit) for unit in order], fontsize=7)
    ax.legend(frameon=False)
    title = f"{result.agent}: information about {result.label}"
    return finish(ax, title=title, x=f"unit of {result.site}", y="bits", warnings=result.warnings)
