"""LeagueReport: whether a league did better than its control, measure by measure, and the ratings of all players."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from marlnb.analysis.results import Result
from marlnb.display.formatting import count, format_interval, format_number

MIN_SEEDS = 5


@dataclass(frozen=True)
class Measure:
    """A number of each seed, and what it would be if league and control were equal.

    Attributes:
        name: in words.
        reference: its value if there is no difference.
        higher_is_better: for the league.
        values: `[seed]`.
        mean: over seeds.
        low: lower end of its 95% t interval over seeds; None where seeds cannot tell how much seeds differ: there is
            one, or all have the same value.
        high: upper end of that interval.
    """

    name: str
    reference: float
    higher_is_better: bool
    values: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """better, worse, no difference shown, or why nothing can be said."""
        if len(self.values) < MIN_SEEDS:
            return "too few seeds"
        if self.low is None or self.high is None:
            return "equal in all seeds, so without an interval"
        if self.low <= self.reference <= self.high:
            return "no difference shown"
        return "better" if (self.low > self.reference) == self.higher_is_better else "worse"

    @property
    def text(self) -> str:
        mean = format_number(self.mean, 3)
        if self.low is not None and self.high is not None:
            mean = format_interval(self.mean, self.low, self.high)
        return f"{self.name} {mean} (equal: {self.reference:g}): {self.verdict}"


@dataclass(frozen=True, eq=False, repr=False)
class LeagueReport(Result):
    """A league next to its control.

    Attributes:
        env: name of the environment.
        league: kind of league.
        control: what the control is, in words; empty: there is none.
        env_steps: of each training run.
        response_steps: of each best response; None: none was trained.
        measures: comparisons of league and control.
        players: seed, player, side, elo, and the shares that it has by alpha-rank and by Nash averaging among all
            players of its seed, those of the control included; cyclic_share and cyclic_p of that seed's results, which
            Elo cannot show.
        n_seeds: training runs of each.
    """

    env: str
    league: str
    control: str
    env_steps: int
    response_steps: int | None
    measures: tuple[Measure, ...]
    players: pd.DataFrame
    n_seeds: int

    @property
    def warnings(self) -> tuple[str, ...]:
        missing = () if self.control else ("there is no control, so whether the league helped is not known",)
        few = (f"{count(self.n_seeds, 'seed')}: a conclusion needs {MIN_SEEDS}",) if self.n_seeds < MIN_SEEDS else ()
        return (*missing, *few)

    @property
    def verdict(self) -> str:
        """What is better, what is worse, and what is not shown."""
        control = f"its control ({self.control})" if self.control else "no control"
        start = (
            f"League {self.league} in {self.env}, {count(self.n_seeds, 'seed')} of {self.env_steps:,} environment "
            f"steps, next to {control}"
        )
        groups = {
            verdict: [measure.name for measure in self.measures if measure.verdict == verdict]
            for verdict in dict.fromkeys(measure.verdict for measure in self.measures)
        }
        parts = [f"{verdict} in {', '.join(names)}" for verdict, names in groups.items()]
        return f"{start}: {'; '.join(parts) or 'nothing was compared'}. {self.cyclic}"

    @property
    def cyclic(self) -> str:
        """How much of the results Elo cannot show."""
        shares = self.players.groupby("seed")["cyclic_share"].first().to_numpy()
        spread = f" ({shares.min():.0%} to {shares.max():.0%})" if len(shares) > 1 else ""
        return f"Cycles, which Elo cannot show, make up {shares.mean():.0%}{spread} of the results between players."

    def table(self) -> pd.DataFrame:
        """One row for each measure: mean and interval over seeds, its value for equal populations, and the verdict."""
        columns = ("name", "mean", "low", "high", "reference", "verdict")
        rows = [[getattr(measure, column) for column in columns] for measure in self.measures]
        return pd.DataFrame(rows, columns=["measure", *columns[1:]])

    def ratings(self) -> pd.DataFrame:
        """One row for each player, those with the largest mean share by Nash averaging first; means over seeds."""
        means = self.players.groupby(["player", "side"], sort=False)[["elo", "alpha_rank", "nash"]].mean()
        return means.sort_values("nash", ascending=False, kind="stable").reset_index()

    def to_json(self) -> dict[str, object]:
        """All numbers, with the verdict."""
        players = self.players.replace({np.nan: None}).to_dict("records")
        measures = [{**vars(measure), "verdict": measure.verdict} for measure in self.measures]
        names = ("env", "league", "control", "env_steps", "response_steps", "n_seeds", "verdict", "warnings")
        return self._selected_json(*names, measures=measures, players=players)

    def _repr_table(self) -> pd.DataFrame:
        return self.table()

    def _repr_html_(self) -> str:
        from marlnb.display.notebook_html import frame_html, note_html

        note = note_html(
            "ratings, mean over seeds; shares by alpha-rank and Nash averaging are of all players of a seed"
        )
        return super()._repr_html_() + note + frame_html(self.ratings(), index=False, digits=3)
