"""Figures of results, arrays and tables.

Each function draws into `ax`, or into a new figure (`axes.figure`), and returns the axes. An agent has the same colour
in every figure.
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
from marlnb.plots.development import development_curves, development_map
from marlnb.plots.dictionary import feature_density, feature_strip
from marlnb.plots.embedding import embedding_map
from marlnb.plots.events import event_response
from marlnb.plots.influence import influence_matrix, value_shares_over_time
from marlnb.plots.interventions import (
    choices_before_after,
    effect_sizes,
    strength_response,
    tracing_grid,
    usage_effects,
)
from marlnb.plots.learning import learning_curve, return_distribution
from marlnb.plots.roles import role_map, role_shares, team_map
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
    "development_map",
    "effect_sizes",
    "embedding_map",
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
    "role_shares",
    "sample_efficiency",
    "setting_scores",
    "similarity_map",
    "strength_response",
    "team_map",
    "tracing_grid",
    "tuning_curves",
    "tuning_map",
    "usage_effects",
    "value_shares_over_time",
]
