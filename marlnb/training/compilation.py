"""When the learners of a training run compile their updates."""

from __future__ import annotations

import math
from collections.abc import Mapping

from marlnb.algorithms.configs.off_policy import OffPolicyConfig
from marlnb.algorithms.learner import Learner
from marlnb.experiment import Experiment

COMPILED_FROM = {"first": 0, "background": 100}  # number of the first update with compiled gradients
COMPILING_FLOP = 2e12  # of updates while a compiler works: half a minute to minutes of one core
COMPILING_STARTS = 4  # a quarter of COMPILING_FLOP is trained first, so that a run which is soon stopped has none
STEP_FLOP = 1e8  # 3 ms of one core, by the estimate above
LONG_TRAINING = 3  # times COMPILING_FLOP: by estimate, even the first one on a single core then ends no later


def compile_long_training(experiment: Experiment, learners: Mapping[str, Learner]) -> None:
    """With compile=auto, lets the learners of a long training run compile their updates in the background."""
    for learner in learners.values():
        updates = compiling_updates(experiment, learner)
        if updates is not None:
            start, after = updates
            learner.compile_updates(after, start)


def compiling_updates(experiment: Experiment, learner: Learner) -> tuple[int, int] | None:
    """The update that starts the compiler, and the first one that uses its code; None: the training is too short.

    Both depend on the experiment only, not on the machine or the time, and a training run of a few updates starts no
    compiler.
    """
    if experiment.compile != "auto" or experiment.schedule:
        return None
    after = math.ceil(COMPILING_FLOP / max(1, _update_flop(experiment, learner)))
    if experiment.frames // experiment.iteration_frames < LONG_TRAINING * after:
        return None
    return after // COMPILING_STARTS, after


def _update_flop(experiment: Experiment, learner: Learner) -> float:
    """Operations of an update by estimate: 6 n w, of n samples (of all passes over them) and w weights.

    Each gradient step on a replay buffer's sample has STEP_FLOP more: a small one takes as long as those.
    """
    config, n_agents = experiment.algorithm_of(learner.group.name), learner.group.n_agents
    n_weights = sum(weight.numel() for weight in learner.policy.parameters())
    if isinstance(config, OffPolicyConfig):
        flop = 6 * config.batch_size * n_agents * n_weights + STEP_FLOP * len(learner.optimizers)
        return config.updates * flop
    return 6 * experiment.iteration_frames * n_agents * n_weights * getattr(config, "epochs", 1)
