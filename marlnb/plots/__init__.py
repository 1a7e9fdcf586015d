"""Figures of results, arrays and tables.

Each function draws into `ax`, or into a new figure (`axes.figure`), and returns the axes. An agent has the same colour
in every figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marlnb.lazy import lazy_exports

if TYPE_CHECKING:
    from marlnb.plots.activations import activation_map as activation_map
    from marlnb.plots.activations import filmstrip as filmstrip
    from marlnb.plots.attribution import attribution_bars as attribution_bars
    from marlnb.plots.attribution import attribution_by_agent as attribution_by_agent
    from marlnb.plots.attribution import attribution_over_lags as attribution_over_lags
    from marlnb.plots.attribution import attribution_over_time as attribution_over_time
    from marlnb.plots.attribution import influence_map as influence_map
    from marlnb.plots.canvas import agent_colour as agent_colour
    from marlnb.plots.canvas import panels as panels
    from marlnb.plots.communication import code_book as code_book
    from marlnb.plots.communication import information_bars as information_bars
    from marlnb.plots.concepts import concept_bars as concept_bars
    from marlnb.plots.concepts import concept_effects as concept_effects
    from marlnb.plots.decoding import decoding_bars as decoding_bars
    from marlnb.plots.decoding import decoding_map as decoding_map
    from marlnb.plots.decoding import decoding_over_offset as decoding_over_offset
    from marlnb.plots.decoding import decoding_over_time as decoding_over_time
    from marlnb.plots.development import development_curves as development_curves
    from marlnb.plots.development import development_map as development_map
    from marlnb.plots.dictionary import feature_density as feature_density
    from marlnb.plots.dictionary import feature_strip as feature_strip
    from marlnb.plots.embedding import embedding_map as embedding_map
    from marlnb.plots.events import event_response as event_response
    from marlnb.plots.influence import influence_matrix as influence_matrix
    from marlnb.plots.influence import value_decomposition_over_time as value_decomposition_over_time
    from marlnb.plots.interventions import choices_before_after as choices_before_after
    from marlnb.plots.interventions import effect_sizes as effect_sizes
    from marlnb.plots.interventions import strength_response as strength_response
    from marlnb.plots.interventions import tracing_grid as tracing_grid
    from marlnb.plots.interventions import usage_effects as usage_effects
    from marlnb.plots.populations.exploit import exploit_figure as exploit_figure
    from marlnb.plots.populations.league import match_counts as match_counts
    from marlnb.plots.populations.league import payoff_map as payoff_map
    from marlnb.plots.populations.league import ratings_over_time as ratings_over_time
    from marlnb.plots.populations.league import snapshot_timeline as snapshot_timeline
    from marlnb.plots.populations.league_report import league_report_figure as league_report_figure
    from marlnb.plots.populations.lineage import lineage_tree as lineage_tree
    from marlnb.plots.populations.lineage import option_schedules as option_schedules
    from marlnb.plots.populations.player_maps import player_maps_figure as player_maps_figure
    from marlnb.plots.roles import role_map as role_map
    from marlnb.plots.roles import role_shares as role_shares
    from marlnb.plots.roles import team_map as team_map
    from marlnb.plots.runs.benchmark import aggregate_intervals as aggregate_intervals
    from marlnb.plots.runs.benchmark import algorithm_colour as algorithm_colour
    from marlnb.plots.runs.benchmark import improvement_map as improvement_map
    from marlnb.plots.runs.benchmark import performance_profile as performance_profile
    from marlnb.plots.runs.benchmark import sample_efficiency as sample_efficiency
    from marlnb.plots.runs.learning import learning_curve as learning_curve
    from marlnb.plots.runs.learning import return_distribution as return_distribution
    from marlnb.plots.runs.run_map import run_map_figure as run_map_figure
    from marlnb.plots.runs.sweeps import setting_scores as setting_scores
    from marlnb.plots.similarity import similarity_map as similarity_map
    from marlnb.plots.tuning import tuning_curves as tuning_curves
    from marlnb.plots.tuning import tuning_map as tuning_map
    from marlnb.plots.unit_effects import causal_map as causal_map

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
