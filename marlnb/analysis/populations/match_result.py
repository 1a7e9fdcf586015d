"""MatchResult: who won a match of two players, and its recordings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pandas as pd

from marlnb.analysis.results import Result, few_episodes_warning
from marlnb.analysis.stats.bootstrap import Interval
from marlnb.analysis.stats.wilson import wilson_interval
from marlnb.display.formatting import count
from marlnb.populations.matches.seating import Seating
from marlnb.recording.file.reader import Recording

WIN, DRAW = 1.0, 0.5


@dataclass(frozen=True, eq=False, repr=False)
class MatchResult(Result):
    """The episodes of two players against each other, equally many with the first player on each side.

    Attributes:
        a: the first player.
        b: the second player, who takes the other sides.
        env: name of the environment.
        episodes: side (of a), episode (of that side's recording), seed, length, return_a, return_b, score: 1 if a
            won, 0.5 for a draw, 0 if it lost, and even: the score of equal players, 0.5 in games of two sides.
        win_rate: mean score of a, with its 95% interval (Wilson).
        recordings: by side of a.
        seatings: by side of a: the policies, for what needs `policy_source=`.
        explore: whether actions were sampled.
        win_threshold: by side, the return above which it wins; empty: the side with the highest return wins.
        warnings: reasons not to trust the result.
    """

    NOT_IN_JSON: ClassVar[tuple[str, ...]] = ("episodes", "recordings", "seatings")

    a: str
    b: str
    env: str
    episodes: pd.DataFrame
    win_rate: Interval
    recordings: Mapping[str, Recording]
    seatings: Mapping[str, Seating]
    explore: bool
    win_threshold: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def recording(self) -> Recording:
        """The recording with a on its first side."""
        return next(iter(self.recordings.values()))

    @property
    def draws(self) -> int:
        """Number of episodes without a winner."""
        return int((self.episodes["score"] == DRAW).sum())

    @property
    def even(self) -> float:
        """The win rate of equal players: 0.5 in games of two sides, and where both were alone equally often."""
        return float(self.episodes["even"].mean())

    @property
    def verdict(self) -> str:
        """Who is stronger, if that is clear, with the win rate of a."""
        rate, n = self.win_rate, len(self.episodes)
        if rate.low > self.even:
            who = f"{self.a} beats {self.b}"
        elif rate.high < self.even:
            who = f"{self.b} beats {self.a}"
        else:
            who = f"{self.a} and {self.b}: no clear winner"
        drawn = f", {count(self.draws, 'draw')}" if self.draws else ""
        return (
            f"{who} in {self.env}: win rate of {self.a} {rate.value:.2f} [{rate.low:.2f}, {rate.high:.2f}]"
            f"{even_text(self.even)} ({count(n, 'episode')}{drawn})."
        )

    def table(self) -> pd.DataFrame:
        """By side of a: episodes, win rate with its interval, wins, draws, losses, mean returns and mean length."""
        rows = []
        for side, part in self.episodes.groupby("side", sort=False):
            score = part["score"].to_numpy()
            rate = wilson_interval(float(score.mean()), len(score))
            counts = {name: int((score == value).sum()) for name, value in (("won", WIN), ("drawn", DRAW), ("lost", 0))}
            means = part[["return_a", "return_b", "length"]].mean().to_dict()
            rows.append(
                {f"{self.a} as": side, "episodes": len(part), "win_rate": rate.value, "low": rate.low}
                | {"high": rate.high, **counts, **means}
            )
        return pd.DataFrame(rows)

    def _repr_table(self) -> pd.DataFrame:
        return self.table()


def even_text(even: float) -> str:
    """The win rate of equal players for a sentence, where it is not one half."""
    return "" if abs(even - DRAW) < 0.005 else f", of equal players {even:.2f}"


def result_warnings(n_episodes: int, n_distinct: int, explore: bool) -> tuple[str, ...]:
    """Reasons not to trust the interval of a win rate."""
    warnings = few_episodes_warning(n_episodes)
    if not explore and n_distinct < n_episodes:
        warnings += (
            f"both players take their most likely actions, and the {n_episodes} episodes have {n_distinct} different "
            "returns and lengths: episodes repeat each other, so the interval is too narrow; explore=True samples "
            "actions",
        )
    return warnings
