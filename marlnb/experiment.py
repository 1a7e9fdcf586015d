"""Experiment: everything that a training run needs, stated once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from marlnb.codec import from_json, to_json
from marlnb.composition.tuned import TunedBy
from marlnb.config import AlgorithmConfig, EnvConfig, ModelConfig, option
from marlnb.errors import ConfigError, TrustError, unknown
from marlnb.evolution_config import EvolutionConfig
from marlnb.league_config import LeagueConfig
from marlnb.plugins.unloaded import Unloaded
from marlnb.schedule import read_schedule
from marlnb.trust import describe, loaded, trusted
from marlnb.values import validate

MAX_ITERATION_FRAMES = 10**9


@dataclass(frozen=True, repr=False)
class Experiment:
    """Everything that a training run needs; the same experiment gives the same run.

    The length of a training run is counted in frames: one frame is one step of one environment. Iterations, minutes and
    agent steps may be limited too; the limit that is reached first ends the training.
    """

    env: EnvConfig = option(help="the agents' environment")
    algorithm: AlgorithmConfig = option(help="how every group learns, except those in `algorithms`")
    model: ModelConfig = option(help="the actor's network, except for groups and agents in `models`")
    critic: ModelConfig | None = option(None, help="the critic's network; none: the same kind as the actor's")
    algorithms: Mapping[str, AlgorithmConfig] = option(
        {}, help="algorithm by group of agents; in a league also by role or player"
    )
    models: Mapping[str, ModelConfig] = option(
        {}, help="actor's network by group of agents, or by agent; in a league also by role or player"
    )
    critics: Mapping[str, ModelConfig] = option(
        {}, help="critic's network by group of agents, or by agent; in a league also by role or player"
    )
    groups: Mapping[str, tuple[str, ...]] = option(
        {}, help="agents by group, each agent in exactly one; none: the environment's own groups"
    )
    league: LeagueConfig | None = option(
        None, help="how players learn against each other and their snapshots; none: the groups learn with each other"
    )
    evolution: EvolutionConfig | None = option(
        None, help="how a population of training runs is selected and mutated; none: one training run"
    )
    frames: int = option(1_000_000, help="length of the training", unit="frames", ge=1)
    max_iterations: int | None = option(None, help="end after this many iterations", unit="iterations", ge=1)
    max_minutes: float | None = option(
        None, help="end after this much training time, summed over all sessions", unit="minutes", gt=0
    )
    max_agent_steps: int | None = option(
        None,
        help="end after this many steps of single agents; a step counts for the agents that act",
        unit="agent steps",
        ge=1,
    )
    schedule: tuple[str, ...] = option(
        (),
        help="numbers of algorithms that change during the training, such as ['50000 algorithm.lr=1e-4']: from 50,000 "
        "frames on",
    )
    seed: int = option(0, help="seed of weights, environments and exploration", ge=0)
    device: str = option("cpu", help="device of networks, learning and native environments: cpu, cuda, cuda:1")
    n_envs: int = option(32, help="environments stepped at once", ge=1, le=1_000_000)
    rollout_steps: int = option(
        64, help="steps of every environment between two updates", unit="steps", ge=1, le=1_000_000
    )
    threads: int = option(
        1, help="torch's threads, between which its operators divide large tensors; 0: all usable cores", ge=0, le=1024
    )
    compile: Literal["auto", "never", "first", "background"] = option(
        "auto",
        help="gradient steps by compiled code, for feed-forward networks on a CPU; first: from the "
        "first update on, after a minute of compiling; background: from the 100th on, compiling meanwhile; auto: in "
        "the background of training runs that take about three minutes or more. Cached",
        choices=("auto", "never", "first", "background"),
    )
    cuda_graphs: bool = option(
        False,
        help="on a GPU, collect and learn by CUDA graphs: IPPO, MAPPO, A2C and MAA2C on batched environments, MPE, "
        "matrix games and probes; what cannot be captured runs without a graph, and a message says why",
    )
    target_return: float | None = option(
        None, help="stop once the mean return of one agent reaches this", unit="reward"
    )
    target_group: str | None = option(
        None, help="group of agents whose return must reach target_return; needed if groups are rewarded differently"
    )
    evaluate_every: int = option(
        0,
        help="iterations between two evaluations, and one after the last; 0: that one only, where envs step in a batch"
        "; a population is evaluated at the ends of generations only",
        unit="iterations",
        ge=0,
    )
    evaluation_episodes: int = option(100, help="episodes of one evaluation", unit="episodes", ge=1, le=1_000_000)
    checkpoint_every: int = option(50, help="iterations between two checkpoints", unit="iterations", ge=1)
    keep_checkpoints: int = option(3, help="how many of the newest checkpoints to keep; 0: all", ge=0, le=1_000_000)
    loggers: tuple[str, ...] = option((), choices=("tensorboard", "wandb"), help="additional loggers")
    wandb_project: str | None = option(None, help="Weights & Biases project; none: $WANDB_PROJECT, else marlnb")
    wandb_entity: str | None = option(None, help="Weights & Biases user or team; none: $WANDB_ENTITY, else your own")
    profile: bool = option(False, help="measure where the time goes, and trace a few iterations: <run>/profile")
    tuned: tuple[TunedBy, ...] | None = option(
        None,
        help="tuned settings from which the experiment was composed; set by composing. tuned=false: do not use any",
    )

    def __post_init__(self) -> None:
        validate(self)
        if self.iteration_frames > MAX_ITERATION_FRAMES:
            raise ConfigError(
                f"an iteration collects n_envs={self.n_envs} × rollout_steps={self.rollout_steps} frames, "
                f"{self.iteration_frames:,}; at most {MAX_ITERATION_FRAMES:,} fit into memory",
                at="rollout_steps",
            )
        if self.league is not None and self.evolution is not None:
            raise ConfigError("a training run has a league= or an evolution=, not both", at="evolution")
        self._check_schedule()
        n_iterations = -(-self.frames // self.iteration_frames)
        if self.max_iterations is not None and self.max_iterations > n_iterations:
            n_frames = self.max_iterations * self.iteration_frames
            raise ConfigError(
                f"max_iterations={self.max_iterations} takes {n_frames:,} frames, but frames={self.frames} ends the "
                f"training after {n_iterations:,} iterations; give frames={n_frames} or more, or at most "
                f"max_iterations={n_iterations}",
                at="max_iterations",
            )

    @property
    def iteration_frames(self) -> int:
        return self.n_envs * self.rollout_steps

    @property
    def iterations(self) -> int:
        """Maximum number of iterations; the last one ends at `frames` or later, or is number `max_iterations`."""
        return self.max_iterations or -(-self.frames // self.iteration_frames)

    def algorithm_of(self, group: str) -> AlgorithmConfig:
        return self.algorithms.get(group, self.algorithm)

    def actor_of(self, group: str) -> ModelConfig:
        return self.models.get(group, self.model)

    def critic_of(self, group: str) -> ModelConfig:
        return self.critics.get(group, self.critic or self.actor_of(group))

    def check_without_env(self) -> None:
        """Checks algorithms, networks, rollouts and length together, as far as that is possible without environment.

        Raises:
            ConfigError: they do not fit, as recurrent networks that an algorithm cannot learn.
        """
        self.check_target_group()
        if self._known_groups and self.league is None:  # a league's algorithms are also those of roles and players
            for name in self.algorithms:
                if name not in self._known_groups:
                    what = unknown(f"group of {self.env.name}", name, self._known_groups)
                    raise ConfigError(what, at=f"algorithms.{name}")
        for name in self.algorithms or ("",):
            algorithm, where = self.algorithm_of(name), f" for group {name!r}" if name else ""
            networks = self.actor_of(name), self.critic_of(name)
            algorithm.check_networks(f"{algorithm.name}{where}", *networks, self.n_envs, self.rollout_steps)
            self.check_warmup(name)
        for change in read_schedule(self.schedule):
            try:
                self.at_frames(change.frames).check_without_env()
            except ConfigError as error:
                raise ConfigError(f"schedule: {str(change)!r}: {error}", at="schedule") from error

    def check_target_group(self) -> None:
        """Checks whose return `target_return` means, as far as that is possible without environment.

        Raises:
            ConfigError: no such group, or none is named although groups are rewarded differently.
        """
        groups = self._known_groups
        if self.target_group is not None and groups and self.target_group not in groups:
            what = unknown(f"group of {self.env.name}", self.target_group, groups)
            raise ConfigError(what, at="target_group")
        is_needed = self.target_return is not None and self.target_group is None
        if is_needed and self.env.facts.rewards_groups_differently and not self.groups:
            raise self.missing_target_group(groups)

    @property
    def _known_groups(self) -> tuple[str, ...]:
        """The groups of agents; empty where only the environment itself knows them."""
        return tuple(self.groups) or self.env.facts.groups

    def limited_by_frames(self) -> Experiment:
        """This experiment with `frames` as its only limit, without a target return."""
        return replace(
            self, max_iterations=None, max_minutes=None, max_agent_steps=None, target_return=None, target_group=None
        )

    def at_frames(self, frames: int) -> Experiment:
        """This experiment with the options that its schedule has in effect after so many frames, without a schedule.

        Raises:
            ConfigError: the schedule names an option that there is not, or a value that does not fit.
        """
        if not self.schedule:
            return self
        current = replace(self, schedule=())
        for change in read_schedule(self.schedule):
            if change.frames > frames:
                break
            if change.group and change.group not in current.algorithms:
                what = unknown("group that has its own algorithm", change.group, current.algorithms)
                raise ConfigError(f"schedule: {str(change)!r}: {what}", at="schedule")
            algorithm = change.of(current.algorithm_of(change.group))
            if change.group:
                current = replace(current, algorithms={**current.algorithms, change.group: algorithm})
            else:
                current = replace(current, algorithm=algorithm)
        return current

    def _check_schedule(self) -> None:
        if not self.schedule:
            return
        for name, is_set in (
            ("league", self.league is not None),
            ("evolution", self.evolution is not None),
            ("cuda_graphs", self.cuda_graphs),
        ):
            if is_set:
                raise ConfigError(f"a schedule= cannot be combined with {name}=", at="schedule")
        if not self.unloaded:
            self.at_frames(self.frames)

    def missing_target_group(self, groups: Iterable[str], returns: str = "") -> ConfigError:
        """The error of a `target_return` without `target_group` where these groups are rewarded differently."""
        return ConfigError(
            f"target_return={self.target_return:g} is one number, but the groups of {self.env.name} are rewarded "
            f"differently{returns}; choose whose return it is: target_group={' or target_group='.join(groups)}",
            at="target_group",
        )

    def check_warmup(self, group: str, *, max_frames: int | None = None, n_players: int = 1) -> None:
        """Raises ConfigError if the training ends before a group, or `""` for every group, would start to learn.

        The members of a population and the players of a league share the frames.

        Args:
            group: in a league also a role or a player that `algorithms` names.
            max_frames: after which `max_agent_steps` ends it; None: not known.
            n_players: of a league, that this training run trains.
        """
        algorithm, frames = self.algorithm_of(group), self.iterations * self.iteration_frames
        limits = f"frames={self.frames}"
        if max_frames is not None and max_frames < frames:
            frames, limits = max_frames, f"max_agent_steps={self.max_agent_steps}, if all agents act at every step"
        n_learning, whose = n_players, "players"
        if self.evolution is not None:
            n_learning, whose = self.evolution.n_trained, "members"
        share = frames // self.iteration_frames // n_learning * self.iteration_frames
        if algorithm.warmup_frames <= share:
            return
        part = f"algorithms.{group}" if group in self.algorithms else "algorithm"
        each = f", {share:,} for each of {n_learning} {whose}" if n_learning > 1 else ""
        who = f"{'' if self.league else 'group '}{group!r}" if group else "every group"
        random = (
            "" if self.league else f"; a group that is meant to act at random: algorithms.{group or 'GROUP'}=random"
        )
        raise ConfigError(
            f"{algorithm.name} for {who} would learn nothing: for the first "
            f"{algorithm.warmup_frames:,} frames ({part}.learning_starts) it acts at random and only fills its replay "
            f"buffer; this training run has {frames:,} ({limits}){each}. Train longer, or use "
            f"{part}.learning_starts=0 to {share // 2}{random}"
        )

    def unused_overrides(self, overrides: Sequence[str]) -> list[str]:
        """Those of the overrides that have no effect in this experiment, each with the reason.

        An option of sequences has none if no network has a state, `target_group` none without `target_return`, and
        `evaluate_every` none in an evolution.
        """
        unused = []
        if self.evolution is not None and self.evaluate_every:
            unused += [
                f"{text} has no effect: with evolution=, members are evaluated at the ends of generations only"
                for text in overrides
                if text.partition("=")[0].lstrip("+") == "evaluate_every"
            ]
        if self.target_return is None and self.target_group is not None:
            unused.append(f"target_group={self.target_group} has no effect: there is no target_return")
        networks = (self.model, self.critic, *self.models.values(), *self.critics.values())
        if any(network is not None and network.recurrent for network in networks):
            return unused
        for text in overrides:
            part, _, option_name = text.partition("=")[0].lstrip("+").rpartition(".")
            algorithm = self.algorithm if part == "algorithm" else self.algorithms.get(part.removeprefix("algorithms."))
            if algorithm is not None and option_name in algorithm.recurrent_options:
                network = self.model.name
                unused.append(
                    f"{text} has no effect: {network} has no state; choose a recurrent network, such as model=gru"
                )
        return unused

    @staticmethod
    def compose(*overrides: str, config_dir: str | None = None) -> Experiment:
        """An Experiment from overrides in Hydra's grammar, such as `"env=mpe/simple_spread", "algorithm.lr=3e-4"`.

        Args:
            overrides: names of parts, and values of options.
            config_dir: a folder of YAML files that add variants, `<folder>/env/multiwalker/shared.yaml`.
        Raises:
            ConfigError: an unknown or misspelt key or name, with the nearest valid ones; a value out of range.
        """
        from marlnb.composition.compose import compose

        return compose(Experiment, *overrides, config_dir=config_dir)

    def __repr__(self) -> str:
        from marlnb.composition.experiment_text import experiment_text

        return experiment_text(self)

    def _repr_html_(self) -> str:
        from marlnb.composition.experiment_text import experiment_html

        return experiment_html(self)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON from which `from_json` makes an equal Experiment."""
        return to_json(self)

    @staticmethod
    def from_json(data: Mapping[str, Any], *, origin: str | None = None) -> Experiment:
        """The Experiment that `to_json` wrote.

        Args:
            data: plain JSON.
            origin: the file or folder of `data`, if it may come from anyone. Then nothing that it names is imported:
                such parts become `Unloaded`, which can be read, and `loaded` makes the real ones.
        Raises:
            ConfigError: an unknown key or name, a missing one, a wrong type or a value out of range.
        """
        return from_json(data, Experiment, origin=origin)

    @property
    def unloaded(self) -> dict[str, Unloaded]:
        """By position, such as "env" and "algorithms.prey", the parts that name code which has not been imported."""
        parts: dict[str, Any] = {
            name: getattr(self, name) for name in ("env", "algorithm", "model", "critic", "league", "evolution")
        }
        for several in ("algorithms", "models", "critics"):
            parts |= {f"{several}.{name}": part for name, part in getattr(self, several).items()}
        return {where: part for where, part in parts.items() if isinstance(part, Unloaded)}

    def loaded(self, *, env: bool = True) -> Experiment:
        """This experiment with the code that it names imported, if the user trusts it.

        Args:
            env: also load the environment's; learners do without.
        Raises:
            TrustError: the user does not trust some of the code; nothing was imported.
            ConfigError: it cannot be imported.
        """
        parts = {where: part for where, part in self.unloaded.items() if env or where != "env"}
        untrusted = {where: part for where, part in parts.items() if trusted(part) is None}
        if untrusted:
            raise TrustError(describe(untrusted, next(iter(untrusted.values())).origin))
        if not parts:
            return self

        def load(name: str) -> Any:
            value = getattr(self, name)
            if isinstance(value, Mapping):
                return {key: loaded(part, f"{name}.{key}") for key, part in value.items()}
            return loaded(value, name)

        return replace(self, **{name: load(name) for name in {where.partition(".")[0] for where in parts}})
