"""Figures of interventions show the given numbers, with units, names and warnings."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from marlnb import plots
from marlnb.errors import AnalysisError

AGENTS = ("speaker_0", "listener_0")


@dataclass
class Effect:
    who: str
    difference: float
    outcome: str = "return"
    edited: bool = False
    units: str = "reward"
    n: int = 50

    @property
    def low(self) -> float:
        return self.difference - 1

    @property
    def high(self) -> float:
        return self.difference + 2


@dataclass
class Arm:
    strength: float | None
    effects: list[Effect]
    actions: dict[str, tuple[list[str], list[float], list[float]]] = field(default_factory=dict)


@dataclass
class Intervention:
    arms: list[Arm]
    agents: tuple[str, ...] = AGENTS
    edits: tuple[dict[str, Any], ...] = ({"edit": "steer", "site": "listener/actor/hidden_1"},)
    warnings: tuple[str, ...] = ()


@dataclass
class Tracing:
    recovered: np.ndarray
    sites: tuple[str, ...] = ("speaker/actor/head", "listener/actor/hidden_1", "listener/actor/head")
    agents: tuple[str, ...] = ("speaker_0", "listener_0", "listener_0")
    times: tuple[int, ...] = (0, 2, 4, 6)
    span: int = 2
    outcome: str = "return of listener"
    warnings: tuple[str, ...] = ()


@dataclass
class Trial:
    edit: str
    effect: float = 0.5
    low: float = 0.4
    high: float = 0.6
    p_value: float = 0.025
    random: tuple[float, ...] = (0.1, 0.2)
    given: str = ""


@dataclass
class Usage:
    tests: tuple[Trial, ...] = (Trial("erase"), Trial("steer", 0.3, 0.2, 0.35))
    concept: str = "goal"
    site: str = "listener/actor/hidden_1"
    agent: str = "listener_0"
    units: str = "total variation"
    conclusion: str = "used"
    warnings: tuple[str, ...] = ("few episodes",)

    @property
    def p_holm(self) -> tuple[float, ...]:
        return tuple(2 * test.p_value for test in self.tests)


def shown(ax: Axes) -> str:
    ax.figure.savefig(BytesIO(), format="png")
    assert ax.get_title(loc="left") and ax.get_xlabel() + ax.get_ylabel()
    return " ".join(text.get_text() for text in ax.texts)


def test_effects_and_their_intervals() -> None:
    arm = Arm(None, [Effect("listener", -8), Effect("speaker_0", -8), Effect("listener_0", -7, edited=True)])
    ax = plots.effect_sizes(Intervention([arm], warnings=("few",)))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["speaker_0", "listener_0 (edited)"]
    segments = [bar[2][0].get_segments()[0] for bar in ax.containers]
    np.testing.assert_allclose([segment[:, 0] for segment in segments], [[-9, -6], [-8, -5]])
    assert "-7" in shown(ax) and "NOT TO BE TRUSTED" in shown(ax) and "reward" in ax.get_xlabel()
    with pytest.raises(AnalysisError, match="return"):
        plots.effect_sizes(Intervention([arm]), outcome="retrun")


def test_a_tiny_change_has_no_minus() -> None:
    ax = plots.effect_sizes(Intervention([Arm(None, [Effect("speaker_0", -8000), Effect("listener_0", -1e-7)])]))
    assert [text.get_text() for text in ax.texts] == ["-8000", "+0"]


def test_strength_response_is_sorted_by_strength() -> None:
    arms = [Arm(strength, [Effect(agent, strength**2) for agent in AGENTS]) for strength in (2.0, -1.0, 0.0)]
    ax = plots.strength_response(Intervention(arms))
    np.testing.assert_allclose(ax.get_lines()[0].get_xydata(), [[-1, 1], [0, 0], [2, 4]])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(AGENTS)
    shown(ax)
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1
    assert ax.get_xlabel() == "strength (standard deviations along the direction)"
    both = ({"edit": "steer"}, {"edit": "scale"})
    assert plots.strength_response(Intervention(arms, edits=both)).get_xlabel() == "strength"
    with pytest.raises(AnalysisError, match="no strengths"):
        plots.strength_response(Intervention([Arm(None, [])]))
    with pytest.raises(AnalysisError, match="got strength=None; give one of"):
        plots.effect_sizes(Intervention(arms))


def test_strength_response_of_labels_and_of_the_episode() -> None:
    others = [Effect("goal_distance", 1, "label", units="label's units"), Effect("", 2, "length", units="steps")]
    steered = Intervention([Arm(strength, [Effect("listener_0", 3), *others]) for strength in (-1.0, 1.0)])
    for outcome, name, y in (("label", "goal_distance", 1), ("length", "episode", 2), ("return", "listener_0", 3)):
        ax = plots.strength_response(steered, outcome=outcome)
        assert [(line.get_label(), line.get_ydata()[0]) for line in ax.get_lines()[:-1]] == [(name, y)]  # type: ignore[index]
    with pytest.raises(AnalysisError, match=r"no agent 'other' in outcome 'return'\. Valid: listener_0"):
        plots.strength_response(steered, agents=["listener_0", "other"])
    with pytest.raises(AnalysisError, match="no outcome 'retrun'; did you mean 'return'"):
        plots.strength_response(steered, outcome="retrun")


def test_choices_without_and_with() -> None:
    arm = Arm(None, [], {"speaker_0": (["a", "b"], [0.25, 0.75], [1.0, 0.0])})
    ax = plots.choices_before_after(Intervention([arm]), "speaker_0")
    assert [bar.get_height() for bar in ax.patches] == [0.25, 0.75, 1.0, 0.0]
    shown(ax)
    with pytest.raises(AnalysisError, match="speaker_0"):
        plots.choices_before_after(Intervention([arm]), "listener_0")


def test_a_tracing_grid_shows_one_agents_lines_in_percent() -> None:
    ax = plots.tracing_grid(Tracing(np.arange(12).reshape(3, 4) / 100, warnings=("nothing was lost",)), "listener_0")
    np.testing.assert_allclose(ax.collections[0].get_array(), [[4, 5, 6, 7], [8, 9, 10, 11]])
    assert ax.collections[0].get_clim() == (0, 11) and "nothing was lost" in shown(ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["actor/hidden_1", "actor/head"]


def test_tracing_grids_of_different_agents_have_one_scale() -> None:
    tracing = Tracing(np.array([[0.1, 0.2, 0.3, 0.4], [0.1, -0.2, 0, 0.1], [0, 0, 0, 0]]))
    grids = [plots.tracing_grid(tracing, agent) for agent in AGENTS]
    assert [ax.collections[0].get_clim() for ax in grids] == [(-40, 40)] * 2


def test_usage_next_to_random_directions() -> None:
    ax = plots.usage_effects(Usage(), agents=AGENTS)
    assert "p = 0.05" in shown(ax) and "few episodes" in shown(ax) and "used" in ax.get_title(loc="left")
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:, 1], [0.1, 0.2])
    ax = plots.usage_effects(Usage((Trial("erase"), Trial("erase", 0.1, 0.05, 0.15, given="action"))))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["erase", "erase,\nwithout action"]
