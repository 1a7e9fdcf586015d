"""marlnb: train multi-agent reinforcement-learning agents in a notebook and look inside them.

Names are imported when they are first used: `import marlnb` alone imports neither torch nor anything else that is slow,
so worker processes and the command's help start at once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from marlnb.lazy import lazy_exports
from marlnb.models.hooks.activation_sources import ActivationSource, register_activation_reader
from marlnb.training.population_support import PopulationSupport, register_populations

if TYPE_CHECKING:
    from marlnb import algorithms as algorithms
    from marlnb import analysis as analysis
    from marlnb import envs as envs
    from marlnb import errors as errors
    from marlnb import groundtruth as groundtruth
    from marlnb import models as models
    from marlnb import plots as plots
    from marlnb import recording as recording
    from marlnb import teaching as teaching
    from marlnb import training as training
    from marlnb import widgets as widgets
    from marlnb.allocations import Allocation as Allocation
    from marlnb.allocations import allocation as allocation
    from marlnb.analysis.attribution.attribute import attribute as attribute
    from marlnb.analysis.attribution.over_time.attribute import attribute_over_time as attribute_over_time
    from marlnb.analysis.attribution.value_decomposition import decompose_value as decompose_value
    from marlnb.analysis.communication.action_influence import action_influence as action_influence
    from marlnb.analysis.communication.communication import communication as communication
    from marlnb.analysis.communication.influence import influence as influence
    from marlnb.analysis.concepts.tcav import concept_activation as concept_activation
    from marlnb.analysis.data.views import View as View
    from marlnb.analysis.decoding.decode import decode as decode
    from marlnb.analysis.dictionaries.dictionary import Dictionary as Dictionary
    from marlnb.analysis.dictionaries.feature_labels import label_features as label_features
    from marlnb.analysis.dictionaries.train import train_dictionary as train_dictionary
    from marlnb.analysis.interventions.causal_map import causal_map as causal_map
    from marlnb.analysis.interventions.intervene import intervene as intervene
    from marlnb.analysis.interventions.mediation import mediation as mediation
    from marlnb.analysis.interventions.tracing import trace as trace
    from marlnb.analysis.interventions.usage import usage as usage
    from marlnb.analysis.populations.best_response import best_response as best_response
    from marlnb.analysis.populations.exploit import find_exploit as find_exploit
    from marlnb.analysis.populations.inheritance import inheritance as inheritance
    from marlnb.analysis.populations.league_report import league_control as league_control
    from marlnb.analysis.populations.league_report import league_report as league_report
    from marlnb.analysis.populations.match import match as match
    from marlnb.analysis.populations.player_maps import player_maps as player_maps
    from marlnb.analysis.populations.transplant import transplant as transplant
    from marlnb.analysis.representations.development import development as development
    from marlnb.analysis.representations.embedding import embed as embed
    from marlnb.analysis.representations.event_average import event_average as event_average
    from marlnb.analysis.representations.roles import roles as roles
    from marlnb.analysis.representations.run_map import run_map as run_map
    from marlnb.analysis.representations.similarity import similarity as similarity
    from marlnb.analysis.representations.similarity import similarity_matrix as similarity_matrix
    from marlnb.analysis.representations.tuning import tuning as tuning
    from marlnb.batch.batch import Batch as Batch
    from marlnb.batch.benchmark.benchmark import Benchmark as Benchmark
    from marlnb.batch.benchmark.run_benchmark import benchmark as benchmark
    from marlnb.batch.submit import submit as submit
    from marlnb.config import ALGORITHMS as ALGORITHMS
    from marlnb.config import ENVIRONMENTS as ENVIRONMENTS
    from marlnb.config import LEARNERS as LEARNERS
    from marlnb.config import MODELS as MODELS
    from marlnb.config import NETWORKS as NETWORKS
    from marlnb.config import AlgorithmConfig as AlgorithmConfig
    from marlnb.config import EnvConfig as EnvConfig
    from marlnb.config import ModelConfig as ModelConfig
    from marlnb.config import algorithm as algorithm
    from marlnb.config import model as model
    from marlnb.config import option as option
    from marlnb.envs.by_hand import vector_env as vector_env
    from marlnb.envs.contract import check_vector_env as check_vector_env
    from marlnb.envs.custom import environment as environment
    from marlnb.envs.tensor.picture import draw_discs as draw_discs
    from marlnb.envs.tensor.tensor_env import TensorEnv as TensorEnv
    from marlnb.envs.tensor.tensor_env import agent_group as agent_group
    from marlnb.envs.torchrl.as_torchrl import as_torchrl as as_torchrl
    from marlnb.errors import MarlnbError as MarlnbError
    from marlnb.evolution_config import EVOLUTIONS as EVOLUTIONS
    from marlnb.evolution_config import EvolutionConfig as EvolutionConfig
    from marlnb.evolution_config import evolution as evolution
    from marlnb.experiment import Experiment as Experiment
    from marlnb.galleries.gallery import gallery as gallery
    from marlnb.league_config import LEAGUES as LEAGUES
    from marlnb.league_config import LeagueConfig as LeagueConfig
    from marlnb.league_config import league as league
    from marlnb.models.hooks.directions import Clamp as Clamp
    from marlnb.models.hooks.directions import Direction as Direction
    from marlnb.models.hooks.directions import Erase as Erase
    from marlnb.models.hooks.directions import Raise as Raise
    from marlnb.models.hooks.directions import Steer as Steer
    from marlnb.models.hooks.edits import Ablate as Ablate
    from marlnb.models.hooks.edits import Noise as Noise
    from marlnb.models.hooks.edits import Scale as Scale
    from marlnb.models.hooks.edits_channel import BlockChannel as BlockChannel
    from marlnb.models.hooks.edits_channel import PermuteChannel as PermuteChannel
    from marlnb.models.hooks.edits_patch import Patch as Patch
    from marlnb.populations.exact_evaluation import exploitability as exploitability
    from marlnb.populations.exact_evaluation import league_exploitability as league_exploitability
    from marlnb.recording.capture.plan import plan_recording as plan_recording
    from marlnb.recording.capture.recorder import record as record
    from marlnb.recording.capture.while_training import RecordWhileTraining as RecordWhileTraining
    from marlnb.recording.collectors.collector import CollectorRecorder as CollectorRecorder
    from marlnb.recording.collectors.collector import record_collector as record_collector
    from marlnb.recording.export.arrays import to_pandas as to_pandas
    from marlnb.recording.export.arrays import to_xarray as to_xarray
    from marlnb.recording.export.minari import to_minari as to_minari
    from marlnb.recording.export.nwb import to_nwb as to_nwb
    from marlnb.recording.file.reader import Recording as Recording
    from marlnb.recording.flight.recorder import FlightRecorder as FlightRecorder
    from marlnb.recording.flight.replay import replay_training as replay_training
    from marlnb.recording.tools.animate import animate as animate
    from marlnb.recording.tools.backfill import backfill as backfill
    from marlnb.recording.tools.extract import extract as extract
    from marlnb.recording.tools.merge import merge as merge
    from marlnb.recording.tools.repair import repair as repair
    from marlnb.recording.tools.replay import replay as replay
    from marlnb.training.adapters.benchmarl import agents_from_benchmarl as agents_from_benchmarl
    from marlnb.training.adapters.modules import agents_from_module as agents_from_module
    from marlnb.training.adapters.sb3 import agents_from_sb3 as agents_from_sb3
    from marlnb.training.adapters.torchrl import agents_from_torchrl as agents_from_torchrl
    from marlnb.training.background import Training as Training
    from marlnb.training.background import start as start
    from marlnb.training.policies.agents import Agents as Agents
    from marlnb.training.policies.evaluation import evaluate as evaluate
    from marlnb.training.runs.cache import cached as cached
    from marlnb.training.runs.run import Run as Run
    from marlnb.training.runs.saved_edits import list_edits as list_edits
    from marlnb.training.runs.saved_edits import load_edits as load_edits
    from marlnb.training.runs.saved_edits import save_edits as save_edits
    from marlnb.training.train import resume as resume
    from marlnb.training.train import train as train
    from marlnb.training.trainer import Trainer as Trainer
    from marlnb.version import __version__ as __version__
    from marlnb.widgets.microscope.microscope import microscope as microscope
    from marlnb.widgets.runs.attach import attach as attach

if "OMP_WAIT_POLICY" not in os.environ:
    # Read when torch is loaded: its threads sleep after waiting for one another for about 0.1 ms. By default they never
    # sleep, which makes a training run many times as slow where other programs use the cores.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)


def _read_activations(path: str) -> ActivationSource:
    from marlnb.recording.file.activation_source import RecordedActivations

    return RecordedActivations(path)


# Here, because every process imports this package: edits, a lower layer, can then open recordings in all of them.
register_activation_reader(_read_activations)


def _population_loop(experiment: Any, env: Any, device: Any, folder: Any) -> Any:
    if experiment.evolution is not None:
        from marlnb.populations.training.evolution.loop import EvolutionLoop

        return EvolutionLoop(experiment, env, device, folder)
    from marlnb.populations.training.league.loop import LeagueLoop

    return LeagueLoop(experiment, env, device, folder)


def _league_learners(experiment: Any, spec: Any) -> Any:
    from marlnb.populations.training.league.player_experiment import league_experiment

    return league_experiment(experiment, spec)


def _winner_experiment(experiment: Any, spec: Any, state: Any) -> Any:
    from marlnb.populations.training.evolution.evolving_member import winner_experiment

    return winner_experiment(experiment, spec, state)


def _winner_networks(state: Any) -> Any:
    from marlnb.populations.training.evolution.evolving_member import winner_networks

    return winner_networks(state)


def _open_league(run: Any) -> Any:
    from marlnb.populations.run_league import RunLeague

    return RunLeague(run)


def _open_population(run: Any) -> Any:
    from marlnb.populations.run_population import RunPopulation

    return RunPopulation(run)


# Training runs, a lower layer, can then train and open leagues and populations.
register_populations(
    PopulationSupport(
        _population_loop, _league_learners, _winner_experiment, _winner_networks, _open_league, _open_population
    )
)
