"""BestResponse: what an opponent that learned against one player alone wins, and how long it learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from marlnb.analysis.populations.match_result import MatchResult, even_text
from marlnb.analysis.results import Result
from marlnb.analysis.stats.bootstrap import Interval
from marlnb.training.runs.run import Run


@dataclass(frozen=True, eq=False, repr=False)
class BestResponse(Result):
    """A lower bound of what a player can lose, from an opponent that learned against it alone.

    Attributes:
        player: who was fixed.
        env_steps: environment steps that the opponent learned from.
        algorithm: with which it learned.
        seed: of its weights and games.
        win_rate: of the opponent in new games, a draw counting half, with its 95% interval (Wilson).
        mean_return: of the opponent in new games, averaged over the sides that it takes.
        low: lower end of its 95% interval over games.
        high: upper end of that interval.
        exact: the mean return of a perfect response, in a zero-sum game the player's exploitability; None where the
            game's states are not listed, or the player has a memory.
        both_sides: whether the opponent takes each side.
        games: the match in which it was measured.
        run: the opponent's training.
        warnings: reasons not to trust the result.
    """

    NOT_IN_JSON: ClassVar[tuple[str, ...]] = ("games", "run")

    player: str
    env_steps: int
    algorithm: str
    seed: int
    win_rate: Interval
    mean_return: float
    low: float
    high: float
    exact: float | None
    both_sides: bool
    games: MatchResult
    run: Run
    warnings: tuple[str, ...] = ()

    @property
    def beats(self) -> bool:
        """Whether the opponent wins more games than an equal player, or in a zero-sum game more than it loses.

        If it takes each side, the player is exploitable.
        """
        return self.win_rate.low > self.games.even or (self._is_zero_sum and self.low > 0)

    @property
    def _is_zero_sum(self) -> bool:
        a, b = self.games.episodes["return_a"], self.games.episodes["return_b"]
        return np.allclose(a + b, 0, atol=1e-6 * np.abs(a).max())

    @property
    def verdict(self) -> str:
        """What the opponent wins after how many steps, and what that says about the player."""
        rate, budget = self.win_rate, f"{self.env_steps:,} steps of {self.algorithm} against {self.player} alone"
        numbers = (
            f"win rate {rate.value:.2f} [{rate.low:.2f}, {rate.high:.2f}]{even_text(self.games.even)}, mean return "
            f"{self.mean_return:+.3g} [{self.low:+.3g}, {self.high:+.3g}] in {len(self.games.episodes)} games"
        )
        if self.exact is not None:
            numbers += f"; a perfect response has {self.exact:+.3g}"
        if not self.both_sides:
            return f"After {budget}, an opponent has a {numbers}. Longer training may find more."
        if self.beats:
            return f"After {budget}, an opponent beats it: {numbers}. {self.player} can lose at least that much."
        return f"After {budget}, no exploit was found: {numbers}. That is no proof; longer training may find one."

    def table(self) -> pd.DataFrame:
        """The games by the opponent's side."""
        return self.games.table()

    def _repr_table(self) -> pd.DataFrame:
        return self.table()
