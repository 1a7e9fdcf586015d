"""The options of the games of tag: WarpDrive's parameters, under WarpDrive's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from marlnb.config import EnvConfig, option
from marlnb.envs.tensor.tensor_env import agent_group
from marlnb.errors import ConfigError
from marlnb.specs import ActionSpec, EnvFacts, EnvSpec, GroupSpec, LabelSpec

Starts = Literal["env", "shared"]
MOVES = ("stay", "x+1", "x-1", "y+1", "y-1")
FEATURES = ("x", "y", "speed", "acceleration", "direction", "is_tagger", "in_game")
MAX_AGENTS = 4096


@dataclass(frozen=True)
class TagOptions(EnvConfig):
    """What both games of tag have in common."""

    episode_length: int = option(
        500, help="steps of an episode; the time is observed", unit="steps", ge=1, le=1_000_000
    )
    starts: Starts = option(
        "env",
        help="env: every episode starts at random positions; shared: all episodes of all envs start at the same ones, "
        "as WarpDrive's do",
        choices=("env", "shared"),
    )

    @property
    def facts(self) -> EnvFacts:
        return EnvFacts(
            batched=True,
            max_steps=self.episode_length,
            n_agents=len(self.tag_spec().agents),
            groups=("tagger", "runner"),
            rewards_groups_differently=True,
        )

    def tag_spec(self) -> EnvSpec:
        """The spec of the game: taggers first, then runners."""
        raise NotImplementedError


@dataclass(frozen=True)
class TagContinuousOptions(TagOptions):
    """The options of tag on a square."""

    num_taggers: int = option(5, help="number of taggers", ge=1, le=1000)
    num_runners: int = option(100, help="number of runners", ge=1, le=MAX_AGENTS - 1000)
    grid_length: float = option(20.0, help="side of the square", ge=1e-3)
    max_speed: float = option(1.0, help="maximum speed, times the skill level", unit="per step", gt=0)
    skill_level_tagger: float = option(1.0, help="multiplies a tagger's maximum speed", ge=0)
    skill_level_runner: float = option(1.0, help="multiplies a runner's maximum speed", ge=0)
    min_acceleration: float = option(-0.1, help="largest decrease of the acceleration in one step")
    max_acceleration: float = option(0.1, help="largest increase of the acceleration in one step")
    num_acceleration_levels: int = option(20, help="choices between the two; there is also 'no change'", ge=1, le=1000)
    min_turn: float = option(-2.356, help="largest turn to the right in one step", unit="rad")
    max_turn: float = option(2.356, help="largest turn to the left in one step", unit="rad")
    num_turn_levels: int = option(20, help="choices between the two; there is also 'no turn'", ge=1, le=1000)
    use_full_observation: bool = option(False, help="observe all agents, in the order of their ids")
    num_other_agents_observed: int = option(10, help="without full observation: how many of the nearest", ge=1)
    tagging_distance: float = option(0.02, help="a runner nearer to a tagger than this is tagged", unit="sides", ge=0)
    tag_reward_for_tagger: float = option(10.0, help="for each runner that it tags", unit="reward")
    tag_penalty_for_runner: float = option(-10.0, help="when it is tagged", unit="reward", le=0)
    step_penalty_for_tagger: float = option(0.0, help="at each step", unit="reward", le=0)
    step_reward_for_runner: float = option(0.0, help="at each step in the game", unit="reward", ge=0)
    edge_hit_penalty: float = option(0.0, help="when an agent runs into the edge", unit="reward", le=0)
    end_of_game_reward_for_runner: float = option(1.0, help="for runners left after the last step", unit="reward")
    runner_exits_game_after_tagged: bool = option(True, help="without: it stays, and can be tagged at every step")
    start_seed: int = option(0, help="of the positions and directions of shared starts", ge=0, lt=2**31)
    starting_location_x: tuple[float, ...] = option((), help="of each agent, taggers first; empty: drawn")
    starting_location_y: tuple[float, ...] = option((), help="of each agent, taggers first; empty: drawn")
    starting_directions: tuple[float, ...] = option((), help="of each agent; empty: drawn", unit="rad")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.use_full_observation and self.num_other_agents_observed >= self.n_agents:
            raise ConfigError(
                f"num_other_agents_observed={self.num_other_agents_observed}: with {self.n_agents} agents there are "
                f"at most {self.n_agents - 1} others",
                at="num_other_agents_observed",
            )
        _check_starts(self, ("starting_location_x", "starting_location_y", "starting_directions"), self.n_agents)
        for name in ("acceleration", "turn"):
            low, high = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if low > high:
                raise ConfigError(f"min_{name}={low} is larger than max_{name}={high}", at=f"min_{name}")

    @property
    def n_agents(self) -> int:
        return self.num_taggers + self.num_runners

    @property
    def n_observed(self) -> int:
        """Number of other agents that an agent observes."""
        return self.n_agents - 1 if self.use_full_observation else self.num_other_agents_observed

    def tag_spec(self) -> EnvSpec:
        who = "other" if self.use_full_observation else "nearest"
        names = [f"{who}_{number}_{feature}" for feature in FEATURES for number in range(self.n_observed)]
        action = ActionSpec(
            "multi_discrete",
            n=(self.num_acceleration_levels + 1, self.num_turn_levels + 1),
            names=("acceleration", "turn"),
        )
        groups = _groups(self.num_taggers, self.num_runners, (*names, "time"), action)
        labels = (
            LabelSpec("tagged", "runner", ("in_game", "tagged")),
            LabelSpec("tagger_distance", "runner"),
            LabelSpec("runner_distance", "tagger"),
            LabelSpec("runners_left"),
        )
        return EnvSpec(self.name, groups, max_steps=self.episode_length, labels=labels)


@dataclass(frozen=True)
class TagGridWorldOptions(TagOptions):
    """The options of tag from cell to cell."""

    episode_length: int = option(
        100, help="steps of an episode; the time is observed", unit="steps", ge=1, le=1_000_000
    )
    starts: Starts = option(
        "shared",
        help="shared: taggers start in the middle and the runner in the corner (0, 0); env: in random cells",
        choices=("env", "shared"),
    )
    num_taggers: int = option(10, help="number of taggers", ge=1, le=MAX_AGENTS)
    grid_length: int = option(10, help="cells of a side, less one", ge=1, le=1_000_000)
    wall_hit_penalty: float = option(0.1, help="lost by an agent that runs into a wall", unit="reward", ge=0)
    tag_reward_for_tagger: float = option(10.0, help="for every tagger at the tag", unit="reward", ge=0)
    tag_penalty_for_runner: float = option(2.0, help="lost by the runner at the tag", unit="reward", ge=0)
    step_cost_for_tagger: float = option(
        0.01, help="what the runner gains and taggers lose per step", unit="reward", ge=0
    )
    use_full_observation: bool = option(True, help="observe all agents; without: the runner, or the nearest tagger")
    starting_location_x: tuple[int, ...] = option((), help="cells of shared starts, the runner last", ge=0)
    starting_location_y: tuple[int, ...] = option((), help="cells of shared starts, the runner last", ge=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_starts(self, ("starting_location_x", "starting_location_y"), self.num_taggers + 1)

    def tag_spec(self) -> EnvSpec:
        agents = [*(f"tagger_{number}" for number in range(self.num_taggers)), "runner_0"]
        features = ("x", "y", "is_runner", "is_self") if self.use_full_observation else ("x", "y")
        names = [f"{agent}_{feature}" for feature in features for agent in agents]
        if not self.use_full_observation:
            names = ["x", "y", "nearest_x", "nearest_y", "is_runner"]
        groups = _groups(self.num_taggers, 1, (*names, "time"), ActionSpec("discrete", n=(5,), names=MOVES))
        labels = (LabelSpec("tagger_distance", "runner"),)
        return EnvSpec(self.name, groups, max_steps=self.episode_length, labels=labels)


def _groups(n_taggers: int, n_runners: int, features: tuple[str, ...], action: ActionSpec) -> tuple[GroupSpec, ...]:
    return tuple(
        agent_group(name, n, observes=features, acts=action)
        for name, n in (("tagger", n_taggers), ("runner", n_runners))
    )


def _check_starts(config: TagOptions, names: tuple[str, ...], n_agents: int) -> None:
    for name in names:
        if (n := len(getattr(config, name))) not in (0, n_agents):
            raise ConfigError(f"{name} needs a number for each of {n_agents} agents; got {n}", at=name)
