"""PlayerMaps: which players have similar results, and which have similar units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from marlnb.analysis.results import ALPHA, Result

NOTABLE = 0.5  # difference of ranks, as a share of the pairs


@dataclass(frozen=True, eq=False, repr=False)
class PlayerMaps(Result):
    """Two maps of the same players.

    Attributes:
        players: their names.
        site: whose units were compared.
        method: similarity of units.
        results: `[player, player]` from -1 to 1: whether they have advantages over the same opponents.
        features: `[player, player]` from 0 to 1: similarity of their units at the same time steps.
        agreement: Spearman's correlation of both over pairs.
        p_value: of that correlation, with players in random order.
        n_permutations: these orders.
        disagreement: `[player, player]` from -1 to 1; positive: units more alike than results; negative: results more
            alike than units.
        warnings: reasons not to trust the result.
    """

    players: tuple[str, ...]
    site: str
    method: str
    results: np.ndarray
    features: np.ndarray
    agreement: float
    p_value: float
    n_permutations: int
    disagreement: np.ndarray
    warnings: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Whether players with alike units win alike, and the two pairs for which that holds least."""
        tested = f"Spearman's correlation {self.agreement:.2f}, p = {self.p_value:.2g}, {len(self.players)} players"
        if self.p_value >= ALPHA:
            summary = f"that players with alike units win against the same opponents is not shown ({tested})"
        elif self.agreement > 0:
            summary = f"players with alike units win against the same opponents ({tested})"
        else:
            summary = f"players with alike units win against different opponents ({tested})"
        table = self.table()
        same_units, same_results = table.iloc[0], table.iloc[-1]
        pairs = []
        if same_units["disagreement"] > NOTABLE:
            pairs.append(f"{same_units['a']} and {same_units['b']} have alike units, but other results")
        if same_results["disagreement"] < -NOTABLE:
            pairs.append(f"{same_results['a']} and {same_results['b']} have alike results, but other units")
        limit = (
            "" if self.p_value >= ALPHA else "; a common history of training, as of one player's snapshots, gives both"
        )
        return f"At {self.site}, {summary}{''.join(f'; {pair}' for pair in pairs)}{limit}."

    def table(self) -> pd.DataFrame:
        """One row for each pair, first those whose units are more alike than their results."""
        rows, columns = np.triu_indices(len(self.players), 1)
        values = {name: getattr(self, name)[rows, columns] for name in ("results", "features", "disagreement")}
        names = {"a": [self.players[k] for k in rows], "b": [self.players[k] for k in columns]}
        table = pd.DataFrame({**names, **values})
        return table.sort_values("disagreement", ascending=False, kind="stable").reset_index(drop=True)

    def _repr_table(self) -> pd.DataFrame:
        return self.table()
