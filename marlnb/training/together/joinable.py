"""Which training runs can advance together (`marlnb.training.together.joined`)."""

from __future__ import annotations

from collections.abc import Sequence

from marlnb.algorithms.configs.ddpg import IDDPGConfig
from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.stacked.stack_learners import STACKABLE, check_stackable_learners
from marlnb.algorithms.stacked.stacked_learner import TRAIN_SEPARATELY_HINT
from marlnb.envs.regroup import build_env
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.training.compilation import COMPILED_FROM
from marlnb.training.learners import build_learners


def check_joinable(experiments: Sequence[Experiment]) -> None:
    """Checks whether these training runs can advance together, as far as that is possible without environments.

    Raises:
        ConfigError: they cannot; the message says what can, and what to do instead.
    """
    for experiment in experiments:
        _check_single(experiment)


@closing_pools()
def check_builds_joinable(experiment: Experiment) -> None:
    """Builds one environment and the learners, to check whether such training runs can advance together.

    Raises:
        ConfigError, EnvBuildError: they cannot; or the experiment cannot be trained at all.
    """
    with build_env(experiment, 1, device=experiment.device) as env:
        for learner in build_learners(experiment, env.spec).values():
            check_stackable_learners([learner])


def _check_single(experiment: Experiment) -> None:
    problems = [
        (experiment.league is not None, "a league"),
        (experiment.evolution is not None, "an evolving population"),
        (experiment.compile in COMPILED_FROM, f"compile={experiment.compile}"),
        (experiment.profile, "profile=true"),
        (experiment.cuda_graphs, "cuda_graphs=true"),
        (bool(experiment.schedule), "schedule="),
        ("wandb" in experiment.loggers, "loggers=wandb, which has one run in each process"),
    ]
    for group in experiment.algorithms or ("",):
        algorithm = experiment.algorithm_of(group)
        problems.append((not isinstance(algorithm, (IPPOConfig, IDDPGConfig)), f"algorithm={algorithm.name}"))
    networks = [experiment.model, experiment.critic, *experiment.models.values(), *experiment.critics.values()]
    for network in networks:
        if network is not None:
            problems.append((network.name != "mlp", f"a network of kind {network.name}, not mlp"))
            precision = getattr(network, "precision", "float32")
            problems.append((precision != "float32", f"precision={precision}"))
    for is_problem, what in problems:
        if is_problem:
            raise ConfigError(
                f"runs in one batch do not support {what}; they support {STACKABLE}, and networks of kind mlp. "
                f"{TRAIN_SEPARATELY_HINT}"
            )
