"""What ends a training run: frames, iterations, minutes and agent steps, whichever is reached first, or a return."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marlnb.display.formatting import format_number
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.specs import EnvSpec
from marlnb.training.shared_return import earn_differently, shared_return

LIMIT_OPTIONS = ("frames", "max_iterations", "max_minutes", "max_agent_steps")  # of an Experiment
CHANGEABLE = (*LIMIT_OPTIONS, "device")  # options that `resume` can change


@dataclass(frozen=True)
class Trained:
    """How much has been trained, all sessions together.

    Attributes:
        iterations: number of iterations.
        frames: steps of single environments.
        seconds: training time.
        agent_steps: steps of single agents, counted where they act.
    """

    iterations: int = 0
    frames: int = 0
    seconds: float = 0.0
    agent_steps: int = 0

    @property
    def by_limit(self) -> dict[str, float]:
        """What each option of `LIMIT_OPTIONS` limits, in its unit."""
        amounts = (self.frames, self.iterations, self.seconds / 60, self.agent_steps)
        return dict(zip(LIMIT_OPTIONS, amounts, strict=True))


def limits_of(experiment: Experiment) -> dict[str, float | None]:
    """The experiment's limits by option; None: no limit."""
    return {name: getattr(experiment, name) for name in LIMIT_OPTIONS}


def check_length(experiment: Experiment, spec: EnvSpec, names: Sequence[str] = (), n_players: int = 1) -> None:
    """Raises ConfigError if the training ends before a group that learns would start to.

    Args:
        names: of the algorithms that learn: groups, in a league also roles and players; empty: all groups.
        n_players: of a league, that this training run trains.
    """
    frames = experiment.iterations * experiment.iteration_frames
    if experiment.max_agent_steps is not None and experiment.max_agent_steps > frames * len(spec.agents):
        raise ConfigError(
            f"max_agent_steps={experiment.max_agent_steps} cannot be reached: {frames:,} frames of {spec.name} are at "
            f"most {frames * len(spec.agents):,} steps of its {len(spec.agents)} agents; give more frames",
            at="max_agent_steps",
        )
    max_frames = None
    if experiment.max_agent_steps is not None and spec.simultaneous:
        steps = experiment.iteration_frames * len(spec.agents)
        max_frames = math.ceil(experiment.max_agent_steps / steps) * experiment.iteration_frames
    for name in names or spec.group_names:
        experiment.check_warmup(name, max_frames=max_frames, n_players=n_players)


def reached_limit(experiment: Experiment, trained: Trained) -> str:
    """The option whose limit has been reached, such as `max_minutes=10`; empty while the training continues."""
    done = trained.by_limit
    reached = (name for name, limit in limits_of(experiment).items() if limit is not None and done[name] >= limit)
    return next((f"{name}={getattr(experiment, name)}" for name in reached), "")


def return_of_target(experiment: Experiment, returns: Mapping[str, float]) -> float | None:
    """The return that `target_return` is compared with; None if it is not known yet.

    Args:
        experiment: what is trained.
        returns: by group, the mean return of one agent.
    Raises:
        ConfigError: the groups are rewarded differently, and `target_group` names none of them.
    """
    if experiment.target_group is not None:
        return returns.get(experiment.target_group)
    if experiment.target_return is not None and earn_differently(returns):
        each = ", ".join(f"{name} {format_number(value)}" for name, value in returns.items())
        raise experiment.missing_target_group(returns, f" ({each})")
    return shared_return(returns)


def expected_frames(experiment: Experiment, trained: Trained, rate: float) -> int:
    """The frames at which the training will end, at the present rate.

    Args:
        experiment: what is trained.
        trained: so far.
        rate: frames per second; 0: unknown, so that a limit in minutes has no effect.
    """
    candidates: list[float] = [experiment.frames]
    if experiment.max_iterations is not None:  # a population's evaluations take frames too
        frames_per_iteration = (
            trained.frames / trained.iterations if trained.iterations else experiment.iteration_frames
        )
        candidates.append(experiment.max_iterations * frames_per_iteration)
    if experiment.max_minutes is not None and rate > 0:
        candidates.append(trained.frames + max(0.0, experiment.max_minutes * 60 - trained.seconds) * rate)
    if experiment.max_agent_steps is not None and trained.agent_steps > 0:
        candidates.append(trained.frames * experiment.max_agent_steps / trained.agent_steps)
    return max(1, round(min(candidates)))
