"""How outputs respond to a concept, next to random concepts and shuffled episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from marlnb.errors import AnalysisError
from marlnb.plots.canvas import INK, agent_colour, axes, finish, legend_outside
from marlnb.plots.marks import bar_with_interval, write_number

if TYPE_CHECKING:
    from marlnb.analysis.concepts.result import ConceptScore, Tcav

    Bars = list[tuple[Tcav, ConceptScore]]


def concept_bars(
    results: Tcav | Sequence[Tcav], *, agents: Sequence[str] = (), title: str | None = None, ax: Axes | None = None
) -> Axes:
    """TCAV scores: the share of steps at which an output rises towards each concept, one bar per agent and output.

    Grey bands hold 95% of random concepts. An asterisk marks p ≤ 0.05, corrected for the agents. Below each bar is the
    accuracy of the concept's classifier in held-out episodes.
    """
    bars = _bars(results)
    ax = axes(ax, width=3.4 + 1.3 * len(bars), height=3.8)
    for x, (_, score) in enumerate(bars):
        low, high = score.random_low, score.random_high
        band, middle = ("random concepts (95%)", "mean of random concepts") if not x else (None, None)
        ax.bar(x, high - low, bottom=low, width=0.86, color="#D9D9D9", label=band)
        ax.plot([x - 0.43, x + 0.43], [score.random] * 2, color="#8C8C8C", linewidth=1.5, label=middle)
        bar_with_interval(ax, x, score.score, score.low, score.high, _colour(score, agents), width=0.5)
        text = f"{score.score:.2f}{'*' if score.p_holm <= 0.05 else ''}"
        write_number(ax, x, max(score.score, score.high), text)
    ax.axhline(0.5, color=INK, linestyle=(0, (4, 2)), linewidth=1.0, label="as often up as down")
    ax.set_ylim(0, 1.15)
    warnings = [warning for result, _ in bars for warning in (*result.warnings, *result.score_warnings)]
    labels = {"x": "* p ≤ 0.05 against random concepts", "y": "share of steps (TCAV score)"}
    return _finish(ax, bars, title, warnings, verb="rise", **labels)


def concept_effects(
    results: Tcav | Sequence[Tcav], *, agents: Sequence[str] = (), title: str | None = None, ax: Axes | None = None
) -> Axes:
    """The first-order effect of each concept on an output, with 95% intervals over episodes.

    The TCAV score says in which direction an output moves; the effect says how far, in the output's units. Grey bands
    hold 95% of the effects of shuffled episodes. An asterisk marks p ≤ 0.05, corrected for the agents.

    Raises:
        AnalysisError: there is no effect, because the concept was computed without shuffles.
    """
    bars = _bars(results)
    for result, score in bars:
        if score.effect != score.effect:
            raise AnalysisError(
                f"no effect of {result.concept} on {score.agent}: call concept_activation with n_shuffles > 0"
            )
    ax = axes(ax, width=3.4 + 1.3 * len(bars), height=3.8)
    for x, (_, score) in enumerate(bars):
        band = None if x else "shuffled episodes (95%)"
        ax.bar(x, 2 * score.effect_random, bottom=-score.effect_random, width=0.86, color="#D9D9D9", label=band)
        colour = _colour(score, agents)
        bar_with_interval(ax, x, score.effect, score.effect_low, score.effect_high, colour, width=0.5)
        if score.p_effect <= 0.05:
            ax.annotate("*", (x, max(score.effect_high, 0.0)), ha="center", va="bottom", fontsize=12, color=INK)
    ax.axhline(0.0, color=INK, linewidth=0.8)
    ax.margins(y=0.1)
    warnings = [warning for result, _ in bars for warning in result.warnings]
    labels = {"x": "* p ≤ 0.05 against shuffled episodes", "y": "effect (units of the output)"}
    return _finish(ax, bars, title, warnings, verb="grow", **labels)


def _bars(results: Tcav | Sequence[Tcav]) -> Bars:
    every = list(results) if isinstance(results, Sequence) else [results]
    return [(result, score) for result in every for score in result.scores]


def _colour(score: ConceptScore, agents: Sequence[str]) -> str:
    return agent_colour(score.agent, agents or [score.agent])


def _finish(ax: Axes, bars: Bars, title: str | None, warnings: Sequence[str], *, verb: str, x: str, y: str) -> Axes:
    """Adds the names below the bars, a legend, a title and the warnings."""
    targets = list(dict.fromkeys(result.target for result, _ in bars))
    several = len(targets) > 1
    names = [
        f"{result.target}\n" * several + f"{result.concept}\n{score.agent}\naccuracy {score.accuracy:.2f}"
        for result, score in bars
    ]
    ax.set_xticks(range(len(bars)), names, fontsize=8.5)
    legend_outside(ax)
    question = f"does an output {verb}" if several else f"{targets[0]}: does it {verb}"
    heading = title or f"{question} towards a concept?\n({bars[0][0].site})"
    return finish(ax, title=heading, x=x, y=y, warnings=list(dict.fromkeys(warnings)))
