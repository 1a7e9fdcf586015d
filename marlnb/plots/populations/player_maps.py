"""Players of a league: who has similar results, next to who has similar units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import INK, MUTED, OKABE_ITO, finish, heat_map, panels

if TYPE_CHECKING:
    from marlnb.analysis.populations.player_maps_result import PlayerMaps

MAX_WRITTEN = 10
N_NAMED = 2  # pairs at each end


def player_maps_figure(maps: PlayerMaps, *, title: str = "Who wins alike?") -> list[Axes]:
    """Left whose results are alike, in the middle whose units, right both for each pair; extreme ones have names."""
    is_written = len(maps.players) <= MAX_WRITTEN
    side = max(3.2, (0.72 if is_written else 0.22) * len(maps.players))
    results, features, pairs = panels(3, width=2.0 + side, height=max(5.2, 1.0 + side))
    for ax, values, label, low in ((results, maps.results, "alike results", -1), (features, maps.features, "CKA", 0)):
        text = np.vectorize("{:.2f}".format)(values.round(2) + 0.0) if is_written else None
        names = maps.players
        cmap = "PuOr" if low < 0 else "cividis"
        label = label if low < 0 else maps.method.replace("_", " ").replace("cka", "linear CKA")
        heat_map(ax, values, rows=names, columns=names, label=label, text=text, low=low, high=1, cmap=cmap, font_size=7)
    table = maps.table()
    pairs.scatter(table["results"], table["features"], s=26, color=OKABE_ITO[0], alpha=0.7, linewidths=0)
    named = table.iloc[[*range(N_NAMED), *range(len(table) - N_NAMED, len(table))]].drop_duplicates()
    for k, (_, row) in enumerate(named.iterrows()):
        pairs.annotate(
            f"{row['a']}, {row['b']}", (row["results"], row["features"]), xytext=(6, 6 - 12 * (k % 2)),
            textcoords="offset points", fontsize=7, color=MUTED,
        )  # fmt: skip
    pairs.axvline(0, color=INK, linewidth=0.6)
    finish(results, title=title, x="", y="", grid="")
    finish(features, title="Whose units are alike?", x="", y="", grid="", warnings=maps.warnings)
    finish(pairs, title=f"Each pair (correlation {maps.agreement:.2f})", x="alike results", y="alike units")
    return [results, features, pairs]
