"""Play a run's policies and print their mean return.

The return is that of one agent in one episode (its undiscounted sum of rewards), averaged over the group's agents and
the episodes; `se` is the standard error of that mean over episodes. Episode k runs under seed + k.

  marlnb evaluate runs/spread --episodes 300 --seed 1000 --json
  marlnb evaluate runs/spread --env pettingzoo/simple_spread env.kwargs.max_cycles=25
  marlnb evaluate runs/spread --policy random
  marlnb evaluate runs/spread --ablate agent/actor/hidden_1:3,17
  marlnb evaluate runs/talk --edits deaf
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from marlnb.cli.environment_options import add_environment_arguments, chosen_environment
from marlnb.cli.output import print_json, print_table, print_text, quiet_stdout
from marlnb.cli.trust_option import add_trust_argument
from marlnb.errors import ConfigError

if TYPE_CHECKING:
    from marlnb.models.hooks.edit import Edit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("run", metavar="RUN", help="the run's folder")
    add_environment_arguments(parser)
    add("--episodes", type=int, default=100, metavar="N", help="episodes played (default %(default)s)")
    add("--seed", type=int, default=1000, metavar="N", help="of the first episode (default %(default)s)")
    add("--policy", default="run", metavar="run|random", help="the run's own, or random actions for a baseline")
    add(
        "--checkpoint",
        default="last",
        metavar="WHICH",
        help="last, best (or best:GROUP) or an iteration (default last)",
    )
    add("--explore", action="store_true", help="sample actions instead of taking the most likely")
    add("--n-envs", type=int, metavar="N", help="environments stepped in parallel")
    help_ablate = "set a site, or some of its units, to zero; repeatable"
    add("--ablate", action="append", default=[], metavar="SITE[:UNIT,...]", help=help_ablate)
    add("--edits", metavar="NAME", help="edits saved with the run (`save_edits`), applied before those of --ablate")
    add_trust_argument(parser)
    add("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> None:
    with quiet_stdout():
        from marlnb.training.policies.evaluation import evaluate
        from marlnb.training.runs.run import Run
        from marlnb.training.runs.saved_edits import load_edits

        saved = load_edits(arguments.run, arguments.edits) if arguments.edits else []
        result = evaluate(
            Run.open(arguments.run, trust=arguments.trust),
            episodes=arguments.episodes,
            seed=arguments.seed,
            explore=arguments.explore,
            env=chosen_environment(arguments),
            policy=arguments.policy,
            edits=[*saved, *(_ablation(text) for text in arguments.ablate)],
            checkpoint=arguments.checkpoint,
            n_envs=arguments.n_envs,
        )
    if arguments.json:
        return print_json(result.to_json())
    print_text(result.title)
    rows = [[name, mean, "-" if error is None else error] for name, mean, error in result.rows()]
    names = "group" if all(name in result.return_mean for name, *_ in rows) else "group or agent"
    print_table([names, "return", "se"], rows)


def _ablation(text: str) -> Edit:
    from marlnb.models.hooks.edits import Ablate

    site, colon, units = text.partition(":")
    try:
        chosen = tuple(int(unit) for unit in units.split(",")) if colon else None
    except ValueError:
        raise ConfigError(
            f"--ablate {text!r}: expected numbers of units, as in agent/actor/hidden_1:3,17; all: no colon"
        ) from None
    return Ablate(site, units=chosen)
