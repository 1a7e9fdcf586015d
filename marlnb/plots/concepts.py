"""Which way outputs go when units move towards a concept, beside random concepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from matplotlib.axes import Axes

from marlnb.plots.canvas import INK, OKABE_ITO, agent_colour, alarm, axes, finish


class ConceptScore(Protocol):
    """One agent's share of steps, its interval, the random concepts' and how well the concept was told."""

    @property
    def agent(self) -> str: ...
    @property
    def score(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def random(self) -> float: ...
    @property
    def random_low(self) -> float: ...
    @property
    def random_high(self) -> float: ...
    @property
    def accuracy(self) -> float: ...
    @property
    def p_holm(self) -> float: ...


class ConceptResult(Protocol):
    """Scores of one concept."""

    @property
    def concept(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def site(self) -> str: ...
    @property
    def scores(self) -> Sequence[ConceptScore]: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


def concept_bars(
    results: ConceptResult | Sequence[ConceptResult],
    *,
    agents: Sequence[str] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Share of steps at which an output rises towards each concept, one bar an agent, concept and output.

    Grey bands are where 95% of random concepts lie; an asterisk marks p ≤ 0.05, corrected for the agents. Below each
    bar stands how well the concept is told in other episodes.
    """
    every = [results] if not isinstance(results, Sequence) else list(results)
    bars = [(result, score) for result in every for score in result.scores]
    ax = axes(ax, width=3.4 + 1.3 * len(bars), height=3.8)
    for place, (_, score) in enumerate(bars):
        colour = agent_colour(score.agent, agents) if score.agent in agents else OKABE_ITO[0]
        low, high = score.random_low, score.random_high
        band, middle = ("random concepts (95%)", "mean of random concepts") if not place else (None, None)
        ax.bar(place, high - low, bottom=low, width=0.86, color="#D9D9D9", label=band)
        ax.plot([place - 0.43, place + 0.43], [score.random] * 2, color="#8C8C8C", linewidth=1.5, label=middle)
        ax.bar(place, score.score, width=0.5, color=colour, edgecolor=INK, linewidth=0.8)
        ax.errorbar(place, score.score, [[score.score - score.low], [score.high - score.score]], color=INK, capsize=4)
        told = f"{score.score:.2f}{'*' if score.p_holm <= 0.05 else ''}"
        ax.text(place, max(score.score, score.high) + 0.02, told, ha="center", va="bottom", fontsize=9, color=INK)
    ax.axhline(0.5, color=INK, linestyle=(0, (4, 2)), linewidth=1.0, label="as often up as down")
    targets = list(dict.fromkeys(result.target for result in every))
    several = len(targets) > 1
    names = [
        f"{result.target}\n" * several + f"{result.concept}\n{score.agent}\ntold at {score.accuracy:.2f}"
        for result, score in bars
    ]
    ax.set_xticks(range(len(bars)), names, fontsize=8.5)
    ax.set_ylim(0, 1.15)
    ax.legend(frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1, 1))
    asked = "does an output rise" if several else f"{targets[0]}: does it rise"
    heading = title or f"{asked} towards a concept?\n({every[0].site})"
    finish(ax, title=heading, x="* p ≤ 0.05 against random concepts", y="share of steps (TCAV score)")
    alarm(ax, list(dict.fromkeys(note for result in every for note in result.warnings)))
    return ax
