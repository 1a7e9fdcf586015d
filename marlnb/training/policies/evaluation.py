"""Evaluation: the returns of a run's policies over a fixed number of episodes, with or without edits."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal

import numpy as np
import torch

from marlnb.codec import to_json
from marlnb.config import ENVIRONMENTS, EnvConfig, option
from marlnb.display.formatting import count, format_number
from marlnb.display.notebook_html import table_html, title_html
from marlnb.envs.external.interface import publish_evaluation
from marlnb.envs.vector import VectorEnv
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import ConfigError, unknown
from marlnb.models.hooks.edit import Edit, edit_list
from marlnb.models.policies.policy import Policy, device_of
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.specs import derive_seed
from marlnb.training.collect.episodes import EpisodeTable, RolloutCallback, play
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source
from marlnb.training.runs.files import EVALUATION
from marlnb.training.runs.run_folder import Which
from marlnb.training.runs.status import EXPLORING, GREEDY
from marlnb.training.shared_return import shared_return
from marlnb.values import checked_number, validate

MAX_EVALUATION_ENVS = 32
EnvLike = EnvConfig | str | None


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Scores over `episodes` episodes, in units of reward.

    Attributes:
        env: name of the environment.
        policy: "run" or "random".
        checkpoint: the iteration that was evaluated; None for a policy that was not trained.
        episodes: number of episodes.
        seed: of the first episode.
        explore: whether actions were sampled.
        return_mean: by group, the return of one agent in one episode (its undiscounted sum of rewards), averaged over
            the group's agents and the episodes.
        return_se: by group, the standard error of that mean over episodes (the agents of one episode count once);
            None for a single episode.
        length_mean: mean steps per episode.
        seconds: that the evaluation took.
        table: every episode's length, seed and returns.
        edits: that were applied.
        env_options: of the environment, as an experiment has them; empty if they are not known.
    """

    env: str
    policy: str
    checkpoint: int | None
    episodes: int
    seed: int
    explore: bool
    return_mean: dict[str, float]
    return_se: dict[str, float | None]
    length_mean: float
    seconds: float
    table: EpisodeTable = field(repr=False, compare=False)
    edits: tuple[Any, ...] = ()
    env_options: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def score(self) -> float:
        """The mean return of one agent, where all groups share their reward.

        Raises:
            ConfigError: the groups are rewarded differently; `return_mean` has the return of each. Or the agents of a
                group play against each other; `table` has the returns of each.
        """
        if self.table.zero_sum_groups:
            each = ", ".join(f"{name} {format_number(mean)}" for name, mean, _ in self.rows())
            raise ConfigError(
                f"the agents of group {self.table.zero_sum_groups[0]!r} play against each other: their returns add up "
                f"to 0 in every episode, so there is no score of all of them. Mean returns: {each}. For a score of "
                "each, give them groups of their own: groups.first=[...] groups.second=[...]"
            )
        score = shared_return(self.return_mean)
        if score is None:
            each = ", ".join(f"{name!r}: {format_number(value)}" for name, value in self.return_mean.items())
            raise ConfigError(
                f"the groups of {self.env} are rewarded differently, so there is no score of all of them; "
                f"return_mean has each: {{{each}}}"
            )
        return score

    def __repr__(self) -> str:
        scores = [f"{name} {mean}" + (f" ± {error}" if error else "") for name, mean, error in self._row_texts()]
        return f"<{self.title}: mean return {', '.join(scores)}>"

    def _repr_html_(self) -> str:
        header = ("group or agent", "return of one agent", "standard error over episodes")
        return title_html(self.title) + table_html(header, self._row_texts())

    def _row_texts(self) -> list[tuple[str, str, str]]:
        rows = self.rows()
        return [(name, format_number(mean), "" if se is None else format_number(se, 2)) for name, mean, se in rows]

    def rows(self) -> list[tuple[str, float, float | None]]:
        """(name, mean return, standard error) of each group; of each agent where a group's play against each other."""
        if not self.table.zero_sum_groups:
            return [(group, mean, self.return_se[group]) for group, mean in self.return_mean.items()]
        return [(name, float(x.mean()), standard_error(x)) for name, x in self.table.scored_returns().items()]

    @property
    def mode(self) -> str:
        """`exploring`: actions were sampled, as in a training curve; `greedy`: each agent took its most likely one."""
        return EXPLORING if self.explore else GREEDY

    @property
    def title(self) -> str:
        """What was evaluated, such as `mpe/simple_spread, checkpoint 15, 100 episodes from seed 1000, greedy`."""
        who = "random actions" if self.policy == "random" else "trained policies"
        if self.checkpoint is not None:
            who = f"checkpoint {self.checkpoint}"
        edited = f", {count(len(self.edits), 'edit')}" if self.edits else ""
        mode = "" if self.policy == "random" else f", {self.mode}"
        return f"{self.env}, {who}{edited}, {count(self.episodes, 'episode')} from seed {self.seed}{mode}"

    def to_json(self) -> dict[str, Any]:
        """For JSON, without the table of episodes."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in ("edits", "table")}
        edits = [
            asdict(edit) if is_dataclass(edit) and not isinstance(edit, type) else repr(edit) for edit in self.edits
        ]
        score = None if self.table.zero_sum_groups else shared_return(self.return_mean)
        return {**values, "score": score, "edits": edits}


@dataclass(frozen=True)
class EvaluationOptions:
    """The options of `evaluate` that a form shows."""

    episodes: int = option(100, help="episodes played", ge=1, le=1_000_000)
    seed: int = option(1000, help="seed of the first episode; episode k runs under seed + k", ge=0)
    explore: bool = option(False, help="sample actions instead of taking the most likely")

    def __post_init__(self) -> None:
        validate(self)


DEFAULTS = EvaluationOptions()


@closing_pools()
def evaluate(
    policy_source: PolicySourceLike,
    *,
    episodes: int = DEFAULTS.episodes,
    seed: int = DEFAULTS.seed,
    explore: bool = DEFAULTS.explore,
    env: EnvLike = None,
    policy: Literal["run", "random"] = "run",
    edits: Edit | Sequence[Edit] = (),
    checkpoint: Which = "last",
    n_envs: int | None = None,
    callback: RolloutCallback | None = None,
    trust: bool = False,
) -> Evaluation:
    """Plays exactly `episodes` episodes, episode k with the seed `seed + k`, and averages their returns.

    Args:
        policy_source: a run or its folder, or agents from elsewhere.
        episodes: number of episodes.
        seed: of the first episode.
        explore: sample actions; otherwise take the most likely.
        env: another environment, by name or configuration, whose groups have the same names, sizes and spaces.
        policy: "run", or "random" for a baseline.
        edits: one or several interventions at the policies' sites, during this evaluation only.
        checkpoint: "last", "best" (where groups are rewarded differently "best:<group>") or an iteration.
        n_envs: environments stepped at once.
        callback: called around every step (`marlnb.training.collect.episodes.RolloutCallback`); its exceptions end the
            evaluation.
        trust: allow the code that another person's run folder names; those of your own training runs need none.
    Raises:
        TrustError: the folder names code that the user does not trust; the message says which, and nothing was run.
        ConfigError: the environment does not fit the policies, or an option is out of range.
        CheckpointError: there is no such checkpoint.
        SiteError: an edit's site does not exist in the policies.
    """
    check_episodes(episodes, seed, n_envs)
    if policy not in ("run", "random"):
        raise ConfigError(unknown("policy", str(policy), ("run", "random")))
    if policy == "random" and edits:
        raise ConfigError("a random policy has no sites to edit; use policy='run'")
    if policy == "random" and checkpoint != "last":
        raise ConfigError(f"a random policy has no checkpoints; got checkpoint={checkpoint}; use policy='run'")
    applied = edit_list(edits)
    policy_source = as_policy_source(policy_source, trust=trust)
    n_envs = choose_n_envs(policy_source, episodes, n_envs)
    policies, iteration = _policies(policy_source, policy, checkpoint)
    config = _config(env)
    with policy_source.build_env(n_envs, env=config) as built, ExitStack() as stack:
        if env is not None:
            check_fit(policy_source.spec, built.spec)
        publish_evaluation(built, policy_source.path / EVALUATION)
        if applied:
            from marlnb.models.hooks.apply_edits import edited

            stack.enter_context(edited(policies, applied))
        start = time.perf_counter()
        table = score_policies(built, policies, episodes=episodes, seed=seed, explore=explore, callback=callback)
        seconds = time.perf_counter() - start
    if config is None and policy_source.experiment is not None:
        config = policy_source.experiment.env
    facts = {
        "env": built.spec.name,
        "env_options": _options_of(config),
        "checkpoint": iteration,
        "edits": tuple(applied),
    }
    return summarise(table, policy=policy, seed=seed, explore=explore, seconds=seconds, **facts)


def check_episodes(episodes: int, seed: int, n_envs: int | None) -> None:
    """Checks which episodes are to be played.

    Raises:
        ConfigError: one of these is out of range or no whole number.
    """
    EvaluationOptions(episodes=episodes, seed=seed)
    if n_envs is not None:
        checked_number(n_envs, int, "n_envs", ge=1)


def choose_n_envs(
    policy_source: PolicySource, episodes: int, n_envs: int | None, max_envs: int = MAX_EVALUATION_ENVS
) -> int:
    """How many environments play these episodes: `n_envs`, or as many as in the training, but at most `max_envs`."""
    return min(episodes, n_envs or min(policy_source.n_envs, max_envs))


def score_policies(
    env: VectorEnv,
    policies: Mapping[str, Policy],
    *,
    episodes: int,
    seed: int,
    explore: bool,
    callback: RolloutCallback | None = None,
) -> EpisodeTable:
    """`play` with a generator on the policies' device, seeded by `seed`."""
    generator = action_generator(env, policies, seed)
    return play(env, policies, episodes=episodes, seed=seed, explore=explore, generator=generator, callback=callback)


def action_generator(env: VectorEnv, policies: Mapping[str, Policy], seed: int) -> torch.Generator:
    """The generator of sampled actions, on the policies' device."""
    device = device_of(*policies.values(), default=env.device)
    return torch.Generator(device=device).manual_seed(derive_seed(seed, "actions"))


def summarise(table: EpisodeTable, **facts: Any) -> Evaluation:
    """Means and standard errors over a table of episodes; `facts` are the other fields of Evaluation."""
    means, errors = {}, {}
    for group in table.spec.group_names:
        values = table.group_return(group)
        means[group] = float(values.mean())
        errors[group] = standard_error(values)
    length_mean = float(np.mean(table.length))
    return Evaluation(
        episodes=len(table), return_mean=means, return_se=errors, length_mean=length_mean, table=table, **facts
    )


def standard_error(values: np.ndarray) -> float | None:
    """Of the mean of `[episode]`; None for a single episode."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def _config(env: EnvLike) -> EnvConfig | None:
    if isinstance(env, str):
        built = ENVIRONMENTS.get(env)()
        assert isinstance(built, EnvConfig)
        return built
    return env


def _options_of(config: EnvConfig | None) -> dict[str, Any]:
    with suppress(ConfigError):  # a class of the user's own may have an option that JSON cannot represent
        return {} if config is None else {name: value for name, value in to_json(config).items() if name != "name"}
    return {}


def _policies(policy_source: PolicySource, policy: str, which: Which) -> tuple[dict[str, Policy], int | None]:
    if policy == "random":
        return {group.name: RandomPolicy(group) for group in policy_source.spec.groups}, None
    iteration = policy_source.origin(which).iteration
    return policy_source.policies(iteration), iteration
