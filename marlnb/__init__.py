"""marlnb: train multi-agent reinforcement-learning agents in a notebook and look inside them.

Names are loaded when they are first used: `import marlnb` alone imports neither torch nor anything heavy, so that
worker processes and the command's help start at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marlnb.allocations import Allocation as Allocation
    from marlnb.allocations import allocation as allocation
    from marlnb.analysis.attribution import attribute as attribute
    from marlnb.analysis.attribution_over_time import attribute_over_time as attribute_over_time
    from marlnb.analysis.communication import communication as communication
    from marlnb.analysis.concepts import concept_activation as concept_activation
    from marlnb.analysis.decoding import decode as decode
    from marlnb.analysis.development import development as development
    from marlnb.analysis.dictionary import train_dictionary as train_dictionary
    from marlnb.analysis.dictionary_result import Dictionary as Dictionary
    from marlnb.analysis.events import event_average as event_average
    from marlnb.analysis.influence import influence as influence
    from marlnb.analysis.influence_ahead import influence_ahead as influence_ahead
    from marlnb.analysis.intervention import intervene as intervene
    from marlnb.analysis.maps import embed as embed
    from marlnb.analysis.mediation import mediation as mediation
    from marlnb.analysis.roles import roles as roles
    from marlnb.analysis.similarity import similarity as similarity
    from marlnb.analysis.similarity import similarity_matrix as similarity_matrix
    from marlnb.analysis.tracing import trace as trace
    from marlnb.analysis.tuning import tuning as tuning
    from marlnb.analysis.usage import usage as usage
    from marlnb.analysis.value_shares import decompose_value as decompose_value
    from marlnb.analysis.views import View as View
    from marlnb.batch.benchmark.folder import Benchmark as Benchmark
    from marlnb.batch.benchmark.verb import benchmark as benchmark
    from marlnb.batch.folder import Batch as Batch
    from marlnb.batch.submit import submit as submit
    from marlnb.config import AlgorithmConfig as AlgorithmConfig
    from marlnb.config import EnvConfig as EnvConfig
    from marlnb.config import Experiment as Experiment
    from marlnb.config import ModelConfig as ModelConfig
    from marlnb.config import option as option
    from marlnb.envs.contract import check_vector_env as check_vector_env
    from marlnb.envs.custom import environment as environment
    from marlnb.envs.torchrl.as_torchrl import as_torchrl as as_torchrl
    from marlnb.errors import MarlnbError as MarlnbError
    from marlnb.models.directions import Direction as Direction
    from marlnb.models.edits import Ablate as Ablate
    from marlnb.models.edits import Clamp as Clamp
    from marlnb.models.edits import Noise as Noise
    from marlnb.models.edits import Scale as Scale
    from marlnb.models.edits_channel import BlockChannel as BlockChannel
    from marlnb.models.edits_channel import PermuteChannel as PermuteChannel
    from marlnb.models.edits_directions import Erase as Erase
    from marlnb.models.edits_directions import Steer as Steer
    from marlnb.models.edits_patch import Patch as Patch
    from marlnb.recording.backfill import backfill as backfill
    from marlnb.recording.collector import CollectorRecorder as CollectorRecorder
    from marlnb.recording.collector import record_collector as record_collector
    from marlnb.recording.extract import extract as extract
    from marlnb.recording.merge import merge as merge
    from marlnb.recording.plan import plan_recording as plan_recording
    from marlnb.recording.reader import Recording as Recording
    from marlnb.recording.recorder import record as record
    from marlnb.recording.repair import repair as repair
    from marlnb.recording.replay import replay as replay
    from marlnb.recording.while_training import RecordWhileTraining as RecordWhileTraining
    from marlnb.registry import ALGORITHMS as ALGORITHMS
    from marlnb.registry import ENVIRONMENTS as ENVIRONMENTS
    from marlnb.registry import MODELS as MODELS
    from marlnb.registry import algorithm as algorithm
    from marlnb.registry import model as model
    from marlnb.training.agents import Agents as Agents
    from marlnb.training.background import Training as Training
    from marlnb.training.background import start as start
    from marlnb.training.evaluation import evaluate as evaluate
    from marlnb.training.foreign.benchmarl import agents_from_benchmarl as agents_from_benchmarl
    from marlnb.training.foreign.modules import agents_from_module as agents_from_module
    from marlnb.training.foreign.sb3 import agents_from_sb3 as agents_from_sb3
    from marlnb.training.foreign.torchrl import agents_from_torchrl as agents_from_torchrl
    from marlnb.training.kept import keep as keep
    from marlnb.training.run import Run as Run
    from marlnb.training.saved_edits import list_edits as list_edits
    from marlnb.training.saved_edits import load_edits as load_edits
    from marlnb.training.saved_edits import save_edits as save_edits
    from marlnb.training.train import resume as resume
    from marlnb.training.train import train as train
    from marlnb.training.trainer import Trainer as Trainer
    from marlnb.widgets.microscope.microscope import microscope as microscope
    from marlnb.widgets.run_panel import attach as attach

_HOME = {
    "ALGORITHMS": "marlnb.registry",
    "Ablate": "marlnb.models.edits",
    "Agents": "marlnb.training.agents",
    "AlgorithmConfig": "marlnb.config",
    "Allocation": "marlnb.allocations",
    "Batch": "marlnb.batch.folder",
    "Benchmark": "marlnb.batch.benchmark.folder",
    "BlockChannel": "marlnb.models.edits_channel",
    "Clamp": "marlnb.models.edits",
    "CollectorRecorder": "marlnb.recording.collector",
    "Dictionary": "marlnb.analysis.dictionary_result",
    "Direction": "marlnb.models.directions",
    "ENVIRONMENTS": "marlnb.registry",
    "EnvConfig": "marlnb.config",
    "Erase": "marlnb.models.edits_directions",
    "Experiment": "marlnb.config",
    "MODELS": "marlnb.registry",
    "MarlnbError": "marlnb.errors",
    "ModelConfig": "marlnb.config",
    "Noise": "marlnb.models.edits",
    "Patch": "marlnb.models.edits_patch",
    "PermuteChannel": "marlnb.models.edits_channel",
    "RecordWhileTraining": "marlnb.recording.while_training",
    "Recording": "marlnb.recording.reader",
    "Run": "marlnb.training.run",
    "Scale": "marlnb.models.edits",
    "Steer": "marlnb.models.edits_directions",
    "Trainer": "marlnb.training.trainer",
    "Training": "marlnb.training.background",
    "View": "marlnb.analysis.views",
    "agents_from_benchmarl": "marlnb.training.foreign.benchmarl",
    "agents_from_module": "marlnb.training.foreign.modules",
    "agents_from_sb3": "marlnb.training.foreign.sb3",
    "agents_from_torchrl": "marlnb.training.foreign.torchrl",
    "algorithm": "marlnb.registry",
    "allocation": "marlnb.allocations",
    "as_torchrl": "marlnb.envs.torchrl.as_torchrl",
    "attach": "marlnb.widgets.run_panel",
    "attribute": "marlnb.analysis.attribution",
    "attribute_over_time": "marlnb.analysis.attribution_over_time",
    "backfill": "marlnb.recording.backfill",
    "benchmark": "marlnb.batch.benchmark.verb",
    "check_vector_env": "marlnb.envs.contract",
    "communication": "marlnb.analysis.communication",
    "concept_activation": "marlnb.analysis.concepts",
    "decode": "marlnb.analysis.decoding",
    "decompose_value": "marlnb.analysis.value_shares",
    "development": "marlnb.analysis.development",
    "embed": "marlnb.analysis.maps",
    "environment": "marlnb.envs.custom",
    "evaluate": "marlnb.training.evaluation",
    "event_average": "marlnb.analysis.events",
    "extract": "marlnb.recording.extract",
    "influence": "marlnb.analysis.influence",
    "influence_ahead": "marlnb.analysis.influence_ahead",
    "intervene": "marlnb.analysis.intervention",
    "keep": "marlnb.training.kept",
    "list_edits": "marlnb.training.saved_edits",
    "load_edits": "marlnb.training.saved_edits",
    "mediation": "marlnb.analysis.mediation",
    "merge": "marlnb.recording.merge",
    "microscope": "marlnb.widgets.microscope.microscope",
    "model": "marlnb.registry",
    "option": "marlnb.config",
    "plan_recording": "marlnb.recording.plan",
    "record": "marlnb.recording.recorder",
    "record_collector": "marlnb.recording.collector",
    "repair": "marlnb.recording.repair",
    "replay": "marlnb.recording.replay",
    "resume": "marlnb.training.train",
    "roles": "marlnb.analysis.roles",
    "save_edits": "marlnb.training.saved_edits",
    "similarity": "marlnb.analysis.similarity",
    "similarity_matrix": "marlnb.analysis.similarity",
    "start": "marlnb.training.background",
    "submit": "marlnb.batch.submit",
    "trace": "marlnb.analysis.tracing",
    "train": "marlnb.training.train",
    "train_dictionary": "marlnb.analysis.dictionary",
    "tuning": "marlnb.analysis.tuning",
    "usage": "marlnb.analysis.usage",
}
_MODULES = (
    "algorithms",
    "analysis",
    "envs",
    "errors",
    "groundtruth",
    "models",
    "plots",
    "recording",
    "teaching",
    "training",
    "widgets",
)

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("marlnb")
        except PackageNotFoundError:  # a source tree on the path, not installed
            return "0+unknown"
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"marlnb.{name}")
    from marlnb.errors import nearest

    close = nearest(name, __all__)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise AttributeError(f"module 'marlnb' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
