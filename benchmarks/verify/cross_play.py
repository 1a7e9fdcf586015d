"""Two groups that compete, each from another training run: whose players are stronger, whatever they trained against.

    marlnb train env=mpe/simple_tag algorithm=mappo run=runs/tag-mappo            # and another one
    python -m benchmarks.verify.cross_play runs/tag-mappo runs/tag-maddpg

A group's return in its own training run rises when it learns and falls when its opponents do, so two training runs are
not compared by it. Here each row is a training's first group, each column a training's second group, and a cell has the
mean return of one agent of either, over the same greedy episodes. Random players are added, and on tag two scripted
ones: hunters that run straight at the prey, and a prey that runs away from all hunters.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.table import markdown_table
from benchmarks.tune.scoring import MAX_ENVS
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.scripted import FunctionPolicy, RandomPolicy
from marlnb.specs import GroupSpec
from marlnb.training.collect.episodes import play
from marlnb.training.policies.evaluation import action_generator
from marlnb.training.runs.run import Run

EPISODES = 500
SEED = 700_000
LEFT, RIGHT, DOWN, UP = 1, 2, 3, 4
LOOK_AHEAD = 0.3  # the hunters aim at where the prey will be in this time
EDGE = 0.7  # from here on the prey is pushed back
PUSH = 4.0

Players = Mapping[str, Mapping[str, Policy]]  # by name, then by group


def pursue(
    observation: Tensor, mask: Tensor | None, group: GroupSpec, generator: torch.Generator | None = None
) -> Tensor:
    """Tag's hunters, three of them and one prey: straight at the prey."""
    prey, velocity = observation[..., 12:14], observation[..., 14:16]
    return steer(prey + LOOK_AHEAD * velocity)


def flee(
    observation: Tensor, mask: Tensor | None, group: GroupSpec, generator: torch.Generator | None = None
) -> Tensor:
    """Tag's prey: away from the three hunters, from the near ones most, and not far over the edge."""
    position, hunters = observation[..., 2:4], observation[..., 8:14].unflatten(-1, (3, 2))
    away = -(hunters / (hunters.square().sum(-1, keepdim=True) + 1e-3)).sum(-2)
    return steer(away - PUSH * position * (position.abs() > EDGE))


def steer(direction: Tensor) -> Tensor:
    """The move along the longer component of directions `[..., 2]`."""
    x, y = direction.unbind(-1)
    across, along = torch.where(x > 0, RIGHT, LEFT), torch.where(y > 0, UP, DOWN)
    return torch.where(x.abs() > y.abs(), across, along)


SCRIPTED = {"mpe/simple_tag": {"adversary": pursue, "agent": flee}}


def with_references(env: VectorEnv, players: Players) -> dict[str, Mapping[str, Policy]]:
    """The players, after random ones and, where there are any, scripted ones."""
    groups = {group.name: group for group in env.spec.groups}
    references: dict[str, Mapping[str, Policy]] = {"random": {name: RandomPolicy(g) for name, g in groups.items()}}
    if scripted := SCRIPTED.get(env.spec.name):
        references["scripted"] = {
            name: FunctionPolicy(groups[name], act, act.__name__) for name, act in scripted.items()
        }
    return {**references, **players}


def payoffs(env: VectorEnv, players: Players, episodes: int) -> dict[tuple[str, str], tuple[float, float]]:
    """By the names of the first and the second group's player: the mean return of one agent of each group."""
    first, second = env.spec.group_names
    returns = {}
    for one, ones in players.items():
        for other, others in players.items():
            policies = {first: ones[first], second: others[second]}
            generator = action_generator(env, policies, SEED)
            table = play(env, policies, episodes=episodes, seed=SEED, explore=False, generator=generator)
            returns[one, other] = tuple(float(table.group_return(group).mean()) for group in (first, second))
    return returns  # type: ignore[return-value]  # two groups


def text(env: VectorEnv, returns: Mapping[tuple[str, str], tuple[float, float]]) -> str:
    """A table in Markdown: the first group's return, then the second's."""
    first, second = env.spec.group_names
    names = list(dict.fromkeys(other for _, other in returns))
    rows = [
        (one, *(" / ".join(f"{value:.1f}" for value in returns[one, other]) for other in names))
        for one in dict.fromkeys(one for one, _ in returns)
    ]
    return markdown_table((f"{first} \\ {second}", *names), rows)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.verify.cross_play",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs of one environment")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="of each pair (%(default)s)")
    arguments = parser.parse_args(words)
    runs = {folder.name: Run.open(folder) for folder in arguments.runs}
    experiments = [run.experiment for run in runs.values()]
    if any(experiment.env != experiments[0].env for experiment in experiments):
        print("the runs must have one environment, with the same options", file=sys.stderr)
        return 2
    with build_env(experiments[0], min(arguments.episodes, MAX_ENVS)) as env:
        if len(env.spec.groups) != 2:
            print(f"{env.spec.name} has the groups {', '.join(env.spec.group_names)}; expected two", file=sys.stderr)
            return 2
        players = with_references(env, {name: run.policies() for name, run in runs.items()})
        print(text(env, payoffs(env, players, arguments.episodes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
