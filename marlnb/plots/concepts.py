"""Which way outputs go when units move towards a concept, and how far, beside random concepts and shuffled episodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from matplotlib.axes import Axes

from marlnb.errors import AnalysisError
from marlnb.plots.canvas import INK, OKABE_ITO, agent_colour, alarm, axes, finish, legend_beside


class ConceptScore(Protocol):
    """One agent's share of steps, its interval, the random concepts', how well the concept was told, and its effect."""

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
    @property
    def effect(self) -> float: ...
    @property
    def effect_low(self) -> float: ...
    @property
    def effect_high(self) -> float: ...
    @property
    def effect_random(self) -> float: ...
    @property
    def p_effect(self) -> float: ...


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
    @property
    def score_warnings(self) -> tuple[str, ...]: ...


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
    bars = _bars(results)
    ax = axes(ax, width=3.4 + 1.3 * len(bars), height=3.8)
    for place, (_, score) in enumerate(bars):
        low, high = score.random_low, score.random_high
        band, middle = ("random concepts (95%)", "mean of random concepts") if not place else (None, None)
        ax.bar(place, high - low, bottom=low, width=0.86, color="#D9D9D9", label=band)
        ax.plot([place - 0.43, place + 0.43], [score.random] * 2, color="#8C8C8C", linewidth=1.5, label=middle)
        _bar(ax, place, score.score, score.low, score.high, _colour(score, agents))
        told = f"{score.score:.2f}{'*' if score.p_holm <= 0.05 else ''}"
        ax.text(place, max(score.score, score.high) + 0.02, told, ha="center", va="bottom", fontsize=9, color=INK)
    ax.axhline(0.5, color=INK, linestyle=(0, (4, 2)), linewidth=1.0, label="as often up as down")
    ax.set_ylim(0, 1.15)
    _finish(ax, bars, title, asks="rise", x="* p ≤ 0.05 against random concepts", y="share of steps (TCAV score)")
    alarm(ax, _notes(note for result, _ in bars for note in (*result.warnings, *result.score_warnings)))
    return ax


def concept_effects(
    results: ConceptResult | Sequence[ConceptResult],
    *,
    agents: Sequence[str] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """By how much an output grows towards each concept, to first order, with 95% intervals over episodes.

    A share of steps says which way an output goes, and not how far; this is how far, in the output's units. Grey bands
    are where 95% of the effects of shuffled episodes lie; an asterisk marks p ≤ 0.05, corrected for the agents.

    Raises:
        AnalysisError: an effect is unknown, since the concept was computed without shuffles.
    """
    bars = _bars(results)
    for result, score in bars:
        if score.effect != score.effect:
            raise AnalysisError(
                f"the effect of {result.concept} on {score.agent} is unknown; ask concept_activation for n_shuffles > 0"
            )
    ax = axes(ax, width=3.4 + 1.3 * len(bars), height=3.8)
    for place, (_, score) in enumerate(bars):
        band = None if place else "shuffled episodes (95%)"
        ax.bar(place, 2 * score.effect_random, bottom=-score.effect_random, width=0.86, color="#D9D9D9", label=band)
        _bar(ax, place, score.effect, score.effect_low, score.effect_high, _colour(score, agents))
        if score.p_effect <= 0.05:
            ax.annotate("*", (place, max(score.effect_high, 0.0)), ha="center", va="bottom", fontsize=12, color=INK)
    ax.axhline(0.0, color=INK, linewidth=0.8)
    ax.margins(y=0.1)
    _finish(ax, bars, title, asks="grow", x="* p ≤ 0.05 against shuffled episodes", y="effect (units of the output)")
    alarm(ax, _notes(note for result, _ in bars for note in result.warnings))
    return ax


def _bars(results: ConceptResult | Sequence[ConceptResult]) -> list[tuple[ConceptResult, ConceptScore]]:
    every = list(results) if isinstance(results, Sequence) else [results]
    return [(result, score) for result in every for score in result.scores]


def _colour(score: ConceptScore, agents: Sequence[str]) -> str:
    return agent_colour(score.agent, agents) if score.agent in agents else OKABE_ITO[0]


def _bar(ax: Axes, place: int, value: float, low: float, high: float, colour: str) -> None:
    ax.bar(place, value, width=0.5, color=colour, edgecolor=INK, linewidth=0.8)
    ax.errorbar(place, value, [[max(0.0, value - low)], [max(0.0, high - value)]], color=INK, capsize=4)


def _finish(
    ax: Axes, bars: list[tuple[ConceptResult, ConceptScore]], title: str | None, *, asks: str, x: str, y: str
) -> None:
    """Who and what below each bar, a legend, a heading."""
    targets = list(dict.fromkeys(result.target for result, _ in bars))
    several = len(targets) > 1
    names = [
        f"{result.target}\n" * several + f"{result.concept}\n{score.agent}\ntold at {score.accuracy:.2f}"
        for result, score in bars
    ]
    ax.set_xticks(range(len(bars)), names, fontsize=8.5)
    legend_beside(ax)
    asked = f"does an output {asks}" if several else f"{targets[0]}: does it {asks}"
    finish(ax, title=title or f"{asked} towards a concept?\n({bars[0][0].site})", x=x, y=y)


def _notes(notes: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(notes))
