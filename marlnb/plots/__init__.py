"""Figures, drawn from arrays and tables that they are handed.

Each function draws into `ax`, or into a figure of its own (`axes.figure`), and returns the axes. Agents have the same
colours everywhere.
"""

from __future__ import annotations

from marlnb.plots.activations import activation_map, filmstrip
from marlnb.plots.attribution import (
    attribution_bars,
    attribution_by_agent,
    attribution_over_lags,
    attribution_over_time,
    influence_map,
)
from marlnb.plots.benchmark import (
    aggregate_intervals,
    algorithm_colour,
    improvement_map,
    performance_profile,
    sample_efficiency,
)
from marlnb.plots.canvas import agent_colour, panels
from marlnb.plots.communication import code_book, information_bars
from marlnb.plots.concepts import concept_bars, concept_effects
from marlnb.plots.decoding import decoding_bars, decoding_map, decoding_over_offset, decoding_over_time
from marlnb.plots.development import development_curves, what_when_where
from marlnb.plots.dictionary import feature_density, feature_strip
from marlnb.plots.events import event_response
from marlnb.plots.influence import influence_matrix, value_shares_over_time
from marlnb.plots.interventions import (
    choices_before_after,
    dose_response,
    effect_sizes,
    tracing_grid,
    usage_effects,
)
from marlnb.plots.learning import learning_curve, return_distribution
from marlnb.plots.maps import unit_map
from marlnb.plots.roles import role_map, roles_taken, team_map
from marlnb.plots.similarity import similarity_map
from marlnb.plots.sweeps import setting_scores
from marlnb.plots.tuning import tuning_curves, tuning_map

__all__ = [
    "activation_map",
    "agent_colour",
    "aggregate_intervals",
    "algorithm_colour",
    "attribution_bars",
    "attribution_by_agent",
    "attribution_over_lags",
    "attribution_over_time",
    "choices_before_after",
    "code_book",
    "concept_bars",
    "concept_effects",
    "decoding_bars",
    "decoding_map",
    "decoding_over_offset",
    "decoding_over_time",
    "development_curves",
    "dose_response",
    "effect_sizes",
    "event_response",
    "feature_density",
    "feature_strip",
    "filmstrip",
    "improvement_map",
    "influence_map",
    "influence_matrix",
    "information_bars",
    "learning_curve",
    "panels",
    "performance_profile",
    "return_distribution",
    "role_map",
    "roles_taken",
    "sample_efficiency",
    "setting_scores",
    "similarity_map",
    "team_map",
    "tracing_grid",
    "tuning_curves",
    "tuning_map",
    "unit_map",
    "usage_effects",
    "value_shares_over_time",
    "what_when_where",
]
