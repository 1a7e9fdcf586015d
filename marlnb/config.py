"""`option` and the base classes of configs: the only place that states an option, its default, unit and help.

Forms, the command's help, the docs and the files on disk come from these frozen dataclasses. Each algorithm,
environment and model states its own options next to its code, in a subclass of the base classes here.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

from marlnb.errors import ConfigError, unknown
from marlnb.plugins.builders import Builders
from marlnb.plugins.registry import Registry
from marlnb.plugins.unloaded import Unloaded
from marlnb.specs import ActionKind, EnvFacts, EnvSpec, GroupSpec, InputSpec
from marlnb.trust import loaded
from marlnb.values import check_required, validate

if TYPE_CHECKING:
    from marlnb.algorithms.learner import Learner
    from marlnb.envs.vector import VectorEnv
    from marlnb.models.networks.network import Network


ENVIRONMENTS: Registry[type[EnvConfig]] = Registry("environment", "marlnb.envs")
ALGORITHMS: Registry[type[AlgorithmConfig]] = Registry("algorithm", "marlnb.algorithms")
MODELS: Registry[type[ModelConfig]] = Registry("model", "marlnb.models.networks")

LEARNERS: Builders[Callable[..., Learner]] = Builders("LEARNERS")  # of (config, context)
NETWORKS: Builders[Callable[..., Network]] = Builders("NETWORKS")  # of (n_agents, inputs, out_features, config)

environment = ENVIRONMENTS.register
algorithm = ALGORITHMS.register
model = MODELS.register

Scale = Literal["log", "one_minus", "logit", "divisors"]


@dataclass(frozen=True)
class SearchRange:
    """Where an option's value may move when it is mutated.

    Attributes:
        scale: what a factor multiplies: log: the value; one_minus: 1 - value, as of discounts; logit: the odds
            value / (1 - value); divisors: nothing, the value moves to the next divisor of `of`.
        min: smallest value.
        max: largest value.
        of: with divisors, the number of an Experiment that the value divides, such as "iteration_frames".
    """

    scale: Scale
    min: float
    max: float
    of: str = ""


def option(
    default: Any = MISSING,
    *,
    help: str,
    unit: str = "",
    choices: Sequence[Any] = (),
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    effect: str = "",
    search: SearchRange | None = None,
) -> Any:
    """A dataclass field with help, unit and valid range, from which forms, help texts and checks are made.

    Choices and bounds of a tuple apply to each of its items.

    Args:
        default: without one, the option is required.
        help: one line that says what the option does.
        unit: of the value and the bounds.
        choices: the allowed values.
        ge: minimum.
        gt: exclusive minimum.
        le: maximum; `math.inf` if the value may be infinite. Without a maximum it has to be finite.
        lt: exclusive maximum.
        effect: what happens to a value that names code or a file, such as "imports and calls". Such a value in another
            person's run folder has no effect before the user trusts it (`marlnb.trust`).
        search: range and scale in which populations mutate the value; None: it cannot be mutated.
    """
    metadata: dict[str, Any] = {"help": help, "unit": unit, "effect": effect, "search": search}
    metadata |= {"choices": tuple(choices), "ge": ge, "gt": gt, "le": le, "lt": lt}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


Config = TypeVar("Config")
Verb = TypeVar("Verb", bound=Callable[..., Any])


def resolve_config(kind: type[Config], config: Config | None, overrides: Mapping[str, Any]) -> Config:
    """`config`, or the defaults of `kind`, with some options replaced.

    Raises:
        ConfigError: `config` has another type, or an option is unknown, out of range, or missing without a default.
    """
    if config is not None and not isinstance(config, kind):
        raise ConfigError(f"config must be a {kind.__name__} or None; got {config!r}")
    valid = [item.name for item in fields(kind) if item.init]  # type: ignore[arg-type]
    for name in overrides:
        if name not in valid:
            raise ConfigError(unknown(f"option of {kind.__name__}", name, valid))
    if config is None:
        check_required(kind, overrides)
    return kind(**overrides) if config is None else replace(config, **overrides)  # type: ignore[type-var]


def accepts_options(kind: type[Any]) -> Callable[[Verb], Verb]:
    """Decorates `verb(..., config=None, **overrides)`: its signature and help show the options of `kind`."""

    def decorate(verb: Verb) -> Verb:
        signature = inspect.signature(verb)
        items = [item for item in fields(kind) if item.init]
        options = []
        for item in items:
            default = item.default if item.default is not MISSING else inspect.Parameter.empty
            if item.default_factory is not MISSING:
                default = item.default_factory()
            options.append(
                inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=item.type)
            )
        named = [item for item in signature.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
        helps = "".join(f"\n    {item.name}: {item.metadata['help']}" for item in items)
        verb.__signature__ = signature.replace(parameters=[*named, *options])  # type: ignore[attr-defined]
        verb.__doc__ = f"{inspect.cleandoc(verb.__doc__ or '')}\n\nOptions of {kind.__name__}:{helps}\n"
        return verb

    return decorate


@dataclass(frozen=True)
class EnvConfig(ABC):
    """The options of one environment; registered under its name, such as `mpe/simple_spread`.

    Attributes:
        tuned: settings tuned for it: a YAML file (`marlnb.composition.tuned` has the format), or the list of its
            entries; None: there are none.
        tunable: options that tuned settings may set: how much of the environment agents see, never what their task is.
    """

    registry: ClassVar[Registry[type[EnvConfig]]] = ENVIRONMENTS
    unloaded: ClassVar[type[UnloadedEnv]]
    name: ClassVar[str]
    tuned: ClassVar[Path | Sequence[Mapping[str, Any]] | None] = None
    tunable: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        validate(self)

    @property
    def facts(self) -> EnvFacts:
        """What is known before it is built. The defaults of an untuned experiment follow from it."""
        return EnvFacts()

    def standalone(self) -> EnvConfig:
        """The same options, but in every working folder, and whatever becomes of the files that they name: for a run.

        Raises:
            ConfigError: a file that they name cannot be read or used.
        """
        return self

    @abstractmethod
    def build(self, n_envs: int, device: str = "cpu") -> VectorEnv:
        """B = `n_envs` environments, not yet reset."""


@dataclass(frozen=True)
class ModelConfig(ABC):
    """The options of one kind of network; registered as `mlp`, `gru`.

    Attributes:
        reads_shape: whether the network uses the axes of observations, for instance those of images.
        recurrent: whether the network has a state.
    """

    registry: ClassVar[Registry[type[ModelConfig]]] = MODELS
    unloaded: ClassVar[type[UnloadedModel]]
    name: ClassVar[str]
    reads_shape: ClassVar[bool] = False

    share_parameters: bool = option(True, help="one network for all agents of the group, or one per agent")

    def __post_init__(self) -> None:
        validate(self)

    @property
    def recurrent(self) -> bool:
        return False

    @abstractmethod
    def build(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        """A network `[..., n_agents, inputs.features] -> [..., n_agents, out_features]`.

        Raises:
            ConfigError: this kind of network cannot read inputs of this shape.
        """


@dataclass(frozen=True)
class LearnerContext:
    """What a learner is built for: one group of agents in one experiment.

    Attributes:
        group: the agents that learn together.
        env: the environment, all groups included.
        actor: the group's actor network.
        critic: the group's critic network.
        n_envs: environments stepped at once.
        rollout_steps: steps of each environment between two updates.
        device: where the networks live.
    """

    group: GroupSpec
    env: EnvSpec
    actor: ModelConfig
    critic: ModelConfig
    n_envs: int = 1
    rollout_steps: int = 1
    device: str = "cpu"

    @property
    def recurrent(self) -> bool:
        """Whether any of the networks has a state."""
        return self.actor.recurrent or self.critic.recurrent


@dataclass(frozen=True)
class AlgorithmConfig(ABC):
    """The options of one algorithm, and what it can do; registered as `mappo`.

    Attributes:
        on_policy: whether it learns only from the newest rollout.
        learns: whether it learns at all; a random policy does not.
        action_kinds: the supported kinds of actions.
        recurrent: whether it supports networks with a state.
        simultaneous_only: whether every living agent of the group must act at every step.
        team_reward: whether the group's agents share one reward, the mean over the living agents.
        recurrent_options: options that have an effect with networks that have a state only.
        mutable: options that a population mutates unless `evolution.mutable` names others.
    """

    registry: ClassVar[Registry[type[AlgorithmConfig]]] = ALGORITHMS
    unloaded: ClassVar[type[UnloadedAlgorithm]]
    name: ClassVar[str]
    on_policy: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "multi_discrete", "continuous")
    recurrent: ClassVar[bool] = True
    simultaneous_only: ClassVar[bool] = False
    team_reward: ClassVar[bool] = False
    recurrent_options: ClassVar[tuple[str, ...]] = ()
    mutable: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        validate(self)

    @property
    def warmup_frames(self) -> int:
        """Frames at the start of a training run in which nothing is learned yet."""
        return 0

    @property
    def fixed_options(self) -> tuple[str, ...]:
        """Options of what a training run begins with, which then stays: a schedule cannot change them."""
        return ()

    def check_fit(self, context: LearnerContext) -> None:
        """Raises ConfigError unless this algorithm can learn for that group, with those networks."""
        group, env = context.group, context.env
        where = f"{self.name} for group {group.name!r} of {env.name}"
        action = group.action
        if action.kind not in self.action_kinds:
            others = self._others(lambda kind: action.kind in kind.action_kinds)
            taken = ", ".join(self.action_kinds)
            raise ConfigError(
                f"{where}: got {action.kind} actions; it takes {taken}. Algorithms for {action.kind} actions: {others}"
            )
        if not all(isfinite(bound) for bound in (*action.low, *action.high)):
            raise ConfigError(f"{where}: actions need finite bounds; got {action.low} to {action.high}")
        if group.has_action_mask and action.kind == "continuous":
            raise ConfigError(f"{where}: an action mask needs discrete actions; got continuous ones")
        self.check_networks(where, context.actor, context.critic, context.n_envs, context.rollout_steps)
        if self.simultaneous_only and not env.simultaneous:
            others = self._others(lambda kind: not kind.simultaneous_only)
            needs = "it needs every agent to act at every step, but here agents wait for their turns"
            raise ConfigError(f"{where}: {needs}. Algorithms for agents that take turns: {others}")

    def check_networks(
        self, where: str, actor: ModelConfig, critic: ModelConfig, n_envs: int, rollout_steps: int
    ) -> None:
        """Raises ConfigError unless it can learn these networks from such rollouts, whatever the environment is.

        Args:
            where: beginning of the message.
            actor: the actor's network.
            critic: the critic's network.
            n_envs: environments stepped at once.
            rollout_steps: steps of each environment between two updates.
        """
        recurrent = sorted({model.name for model in (actor, critic) if model.recurrent})
        if recurrent and not self.recurrent:
            got, others = ", ".join(recurrent), self._others(lambda kind: kind.recurrent)
            raise ConfigError(
                f"{where}: it learns feed-forward networks; got {got}. Algorithms for recurrent networks: {others}"
            )

    def _others(self, fits: Callable[[type[AlgorithmConfig]], bool]) -> str:
        """Names of the algorithms that learn and of which it holds, for messages."""
        return ", ".join(name for name, kind in self.registry.items() if kind.learns and fits(kind))

    def build(self, context: LearnerContext) -> Learner:
        """The Learner of one group, of the class that `LEARNERS` has for these options.

        Its weights are drawn from torch's global generator.

        Raises:
            ConfigError: the group, environment or model is not one that this algorithm can learn on.
        """
        self.check_fit(context)
        return LEARNERS.of(self)(self, context)


@dataclass(frozen=True, kw_only=True, repr=False)
class UnloadedEnv(Unloaded, EnvConfig):  # type: ignore[misc]  # `name` is of the instance here
    """An environment whose code has not been imported."""

    def build(self, n_envs: int, device: str = "cpu") -> VectorEnv:
        """Raises TrustError: the user does not trust the code."""
        return loaded(cast(EnvConfig, self), "env").build(n_envs, device)


@dataclass(frozen=True, kw_only=True, repr=False)
class UnloadedModel(Unloaded, ModelConfig):  # type: ignore[misc]
    """A network whose code has not been imported."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "share_parameters", bool(self.options.get("share_parameters", True)))

    def build(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        """Raises TrustError: the user does not trust the code."""
        return loaded(cast(ModelConfig, self), "model").build(n_agents, inputs, out_features)


@dataclass(frozen=True, kw_only=True, repr=False)
class UnloadedAlgorithm(Unloaded, AlgorithmConfig):  # type: ignore[misc]
    """An algorithm whose code has not been imported."""

    def build(self, context: LearnerContext) -> Learner:
        """Raises TrustError: the user does not trust the code."""
        return loaded(cast(AlgorithmConfig, self), "algorithm").build(context)


EnvConfig.unloaded, ModelConfig.unloaded, AlgorithmConfig.unloaded = UnloadedEnv, UnloadedModel, UnloadedAlgorithm
