"""Experiment: everything that a training needs, stated once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marlnb.codec import from_json, to_json
from marlnb.config import AlgorithmConfig, EnvConfig, ModelConfig, option
from marlnb.values import validate


@dataclass(frozen=True)
class Experiment:
    """Everything that a training needs; the same experiment gives the same run.

    The length of a training is counted in frames: one frame is one step of one environment.
    """

    env: EnvConfig = option(help="the agents' environment")
    algorithm: AlgorithmConfig = option(help="how every group learns, except those in `algorithms`")
    model: ModelConfig = option(help="the actor's network, except for groups and agents in `models`")
    critic: ModelConfig | None = option(None, help="the critic's network; none: the same kind as the actor's")
    algorithms: Mapping[str, AlgorithmConfig] = option({}, help="algorithm by group of agents")
    models: Mapping[str, ModelConfig] = option({}, help="actor's network by group of agents, or by agent")
    critics: Mapping[str, ModelConfig] = option({}, help="critic's network by group of agents, or by agent")
    groups: Mapping[str, tuple[str, ...]] = option(
        {}, help="agents by group, each agent in exactly one; none: the environment's own groups"
    )
    frames: int = option(1_000_000, help="length of the training", unit="frames", ge=1)
    seed: int = option(0, help="seed of weights, environments and exploration", ge=0)
    device: str = option("cpu", help="device of networks, learning and native environments: cpu, cuda, cuda:1")
    n_envs: int = option(32, help="environments stepped at once", ge=1)
    rollout_steps: int = option(64, help="steps of every environment between two updates", unit="steps", ge=1)
    threads: int = option(
        1, help="torch's threads; more pay off from about 256 units per layer; 0: all usable cores", ge=0
    )
    target_return: float | None = option(
        None, help="stop once the mean return per agent, averaged over the groups, reaches this", unit="reward"
    )
    evaluate_every: int = option(
        0, help="iterations between two evaluations; one more after the last; 0: none", unit="iterations", ge=0
    )
    evaluation_episodes: int = option(100, help="episodes of one evaluation", unit="episodes", ge=1)
    checkpoint_every: int = option(50, help="iterations between two checkpoints", unit="iterations", ge=1)
    keep_checkpoints: int = option(3, help="how many of the newest checkpoints to keep; 0: all", ge=0)
    loggers: tuple[str, ...] = option((), choices=("tensorboard", "wandb"), help="additional loggers")

    def __post_init__(self) -> None:
        validate(self)

    @property
    def iteration_frames(self) -> int:
        return self.n_envs * self.rollout_steps

    @property
    def iterations(self) -> int:
        """Iterations of the whole training; the last one ends at `frames` or later."""
        return -(-self.frames // self.iteration_frames)

    def algorithm_of(self, group: str) -> AlgorithmConfig:
        return self.algorithms.get(group, self.algorithm)

    def actor_of(self, group: str) -> ModelConfig:
        return self.models.get(group, self.model)

    def critic_of(self, group: str) -> ModelConfig:
        return self.critics.get(group, self.critic or self.actor_of(group))

    @staticmethod
    def compose(*overrides: str, config_dir: str | None = None) -> Experiment:
        """An Experiment from overrides in Hydra's grammar, as `"env=mpe/simple_spread", "algorithm.lr=3e-4"`.

        Args:
            overrides: names of parts, and values of options.
            config_dir: a folder of YAML files that add variants, `<folder>/env/multiwalker/shared.yaml`.
        Raises:
            ConfigError: an unknown or misspelt key or name, with the nearest valid ones; a value out of range.
        """
        from marlnb.compose import compose

        return compose(Experiment, *overrides, config_dir=config_dir)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON from which `from_json` makes an equal Experiment."""
        return to_json(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Experiment:
        return from_json(data, Experiment)
